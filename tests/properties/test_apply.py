"""Laws of server-side apply and of pruning, on random small objects."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "embedded"))

from applying import run

from kueuelib.embedded.patching.apply import FieldWrite, apply_steps, track_steps
from kueuelib.embedded.patching.fieldsets import (
    FieldDifference,
    compare,
    fields_of,
    from_fields_v1,
    merge,
    to_fields_v1,
)
from kueuelib.embedded.schema.messages import custom_node
from kueuelib.embedded.schema.node import from_openapi
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.errors import Conflict

TEXT = {"type": "string"}
OPENAPI = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": TEXT,
                "b": {"type": "integer", "default": 3},
                "labels": {"type": "object", "additionalProperties": TEXT},
                "whole": {
                    "type": "object",
                    "additionalProperties": TEXT,
                    "x-kubernetes-map-type": "atomic",
                },
                "plain": {"type": "array", "items": TEXT},
                "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {"name": TEXT, "x": TEXT, "y": TEXT},
                    },
                },
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}
NODE = custom_node(from_openapi(OPENAPI))
SCHEMA = StructuralSchema.of(OPENAPI)

letters = st.sampled_from("pqr")
texts = st.sampled_from(["1", "2"])
small_maps = st.dictionaries(letters, texts, max_size=2)
items = st.lists(
    st.fixed_dictionaries({"name": letters}, optional={"x": texts, "y": texts}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
parts = {
    "a": texts,
    "b": st.integers(1, 2),
    "labels": small_maps,
    "whole": small_maps,
    "plain": st.lists(texts, max_size=2),
    "set": st.lists(letters, max_size=3, unique=True),
    "items": items,
    "open": st.recursive(small_maps, lambda inner: st.dictionaries(letters, inner, max_size=2)),
}
specs = st.fixed_dictionaries({}, optional=parts)


def whole(spec):
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "o"}, "spec": spec}


def apply(live, spec, manager, time="t", force=True):
    steps = apply_steps(lambda _: NODE, live, whole(spec), FieldWrite(manager, time), force=force)
    return run(steps)


def update(live, spec, manager):
    new = {**live, "spec": spec}
    entries = run(track_steps(lambda _: NODE, live, new, FieldWrite(manager, "t")))
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def shuffled(value, seed):
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: crc32(f"{seed}{name}".encode()))
        return {name: shuffled(value[name], seed) for name in names}
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


writes = st.lists(
    st.tuples(st.sampled_from(["apply", "update"]), st.sampled_from("mn"), specs), max_size=5
)


def played(history):
    live = apply(None, {}, "m")
    for verb, manager, spec in history:
        live = (apply if verb == "apply" else update)(live, spec, manager)
    return live


@settings(max_examples=100, deadline=None)
@given(writes, specs)
def test_applying_twice_is_applying_once(history, spec):
    live = played(history)
    before = copy.deepcopy((live, spec))
    once = apply(live, spec, "z", time="later")
    assert (live, spec) == before, "the arguments were changed"
    assert apply(once, spec, "z", time="much later", force=False) is once


@settings(max_examples=100, deadline=None)
@given(writes, specs)
def test_what_is_applied_is_there_and_owned(history, spec):
    found = apply(played(history), spec, "z")
    assert merge(NODE, found, whole(spec)) == found
    entries = {each["manager"]: each["fieldsV1"] for each in found["metadata"]["managedFields"]}
    assert from_fields_v1(entries.get("z", {})) == fields_of(NODE, {"spec": spec})


@settings(max_examples=100, deadline=None)
@given(specs, specs)
def test_disjoint_managers_commute(one, two):
    two = {name: value for name, value in two.items() if name not in one}
    base = apply(None, {}, "base")
    left = apply(apply(base, one, "m", force=False), two, "n", force=False)
    right = apply(apply(base, two, "n", force=False), one, "m", force=False)
    assert left == right


@settings(max_examples=80, deadline=None)
@given(writes, st.integers())
def test_results_do_not_depend_on_the_order_of_keys(history, seed):
    other = [(verb, who, shuffled(spec, seed)) for verb, who, spec in history]
    assert played(history) == played(other)


@settings(max_examples=80, deadline=None)
@given(specs, specs)
def test_withdrawing_everything_leaves_what_others_applied(one, two):
    one = {name: value for name, value in one.items() if value != []}  # nobody owns those
    base = apply(None, one, "m")
    try:
        both = apply(base, two, "n", force=False)
    except Conflict:
        return
    left = apply(both, {}, "n", force=False)
    missing = compare(NODE, left, merge(NODE, left, whole(one)))  # whatever the order of items
    assert missing == FieldDifference(frozenset(), frozenset(), frozenset())
    entries = [each for each in left["metadata"]["managedFields"] if each["manager"] == "m"]
    assert entries == base["metadata"]["managedFields"]


@settings(max_examples=80, deadline=None)
@given(writes)
def test_nobody_owns_what_does_not_exist(history):
    live = played(history)
    present = compare(NODE, {}, live).added
    for each in live["metadata"].get("managedFields", ()):
        assert from_fields_v1(each["fieldsV1"]) <= present


@given(specs, specs)
def test_a_difference_is_empty_only_between_equals(one, two):
    found = compare(NODE, whole(one), whole(two))
    same = not (found.added or found.modified or found.removed)
    assert same or one != two
    assert not (found.added & found.removed)


@given(specs)
def test_field_sets_survive_their_json_form(spec):
    fields = fields_of(NODE, whole(spec))
    assert from_fields_v1(to_fields_v1(fields)) == fields


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*parts, "name", "odd"]), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(json_values)
def test_schemas_take_any_json_and_pruning_and_defaults_settle_at_once(value):
    obj = {"apiVersion": "g/v1", "kind": "K", "metadata": {}, "spec": value}
    SCHEMA.prune(obj)
    SCHEMA.default(obj)
    settled = copy.deepcopy(obj)
    assert SCHEMA.prune(obj) == []
    SCHEMA.default(obj)
    assert obj == settled
    assert SCHEMA.validate(obj, obj) == []
    SCHEMA.validate(obj)


@given(specs)
def test_objects_that_follow_the_schema_are_valid(spec):
    obj = whole(copy.deepcopy(spec))
    assert SCHEMA.prune(obj) == []
    SCHEMA.default(obj)
    assert SCHEMA.validate(obj) == []
