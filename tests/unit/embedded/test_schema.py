"""Pruning, defaults and validation by structural schema, in the words of Kubernetes."""

from __future__ import annotations

import pytest

from kueuelib.api.crd import all_crds
from kueuelib.embedded.schema.messages import builtin_node, custom_node
from kueuelib.embedded.schema.node import ListType, PatchStrategy, from_openapi
from kueuelib.embedded.schema.structural import StructuralSchema


def schema(**spec):
    return StructuralSchema.of(
        {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    )


def of_x(**x):
    return schema(properties={"x": x})


def errors(found, obj, old=None):
    return [str(error) for error in found.validate(obj, old)]


# ---- validation ---------------------------------------------------------------------------------

STRING = {"type": "string"}
LIST = {"type": "array", "items": {"type": "integer"}}
MAP = {"type": "object", "additionalProperties": {"type": "integer"}}


@pytest.mark.parametrize(
    ("x", "value", "text"),
    [
        (STRING, 1, 'Invalid value: "integer": spec.x in body must be of type string: "integer"'),
        (
            {"type": "integer"},
            "a",
            'Invalid value: "string": spec.x in body must be of type integer: "string"',
        ),
        (
            {"type": "integer"},
            True,
            'Invalid value: "boolean": spec.x in body must be of type integer: "boolean"',
        ),
        (
            {"type": "boolean"},
            1,
            'Invalid value: "integer": spec.x in body must be of type boolean: "integer"',
        ),
        (
            STRING,
            None,
            'Invalid value: "null": spec.x in body must be of type string: "null"',
        ),
        (
            LIST,
            {},
            'Invalid value: "object": spec.x in body must be of type array: "object"',
        ),
        (
            MAP,
            [],
            'Invalid value: "array": spec.x in body must be of type object: "array"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"',
        ),
        (
            {**STRING, "enum": ["A", "B"]},
            "y",
            'Unsupported value: "y": supported values: "A", "B"',
        ),
        (
            {**STRING, "pattern": "^a+$"},
            "b",
            "Invalid value: \"b\": spec.x in body should match '^a+$'",
        ),
        (
            {**STRING, "pattern": "^a+$"},
            "a\n",
            "Invalid value: \"a\\n\": spec.x in body should match '^a+$'",
        ),
        ({**STRING, "maxLength": 2}, "abc", "Too long: may not be more than 2 bytes"),
        (
            {**STRING, "minLength": 2},
            "a",
            'Invalid value: "a": spec.x in body should be at least 2 chars long',
        ),
        (
            {**STRING, "format": "date-time"},
            "now",
            'Invalid value: "now": spec.x in body must be of type date-time: "now"',
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            1,
            "Invalid value: 1: spec.x in body should be greater than 1",
        ),
        (
            {"type": "integer", "maximum": 5},
            6,
            "Invalid value: 6: spec.x in body should be less than or equal to 5",
        ),
        (
            {"type": "number", "maximum": 0.5, "exclusiveMaximum": True},
            0.5,
            "Invalid value: 0.5: spec.x in body should be less than 0.5",
        ),
        (
            {"type": "integer", "multipleOf": 5},
            6,
            "Invalid value: 6: spec.x in body should be a multiple of 5",
        ),
        ({**LIST, "maxItems": 2}, [1, 2, 3], "Too many: 3: must have at most 2 items"),
        (
            {**LIST, "minItems": 1},
            [],
            "Invalid value: []: spec.x in body should have at least 1 items",
        ),
        ({**MAP, "maxProperties": 0}, {"a": 1}, "Too many: 1: must have at most 0 items"),
        (
            {**MAP, "minProperties": 1},
            {},
            "Invalid value: {}: spec.x in body should have at least 1 properties",
        ),
        (
            {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]},
            3,
            'Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
        ),
        (
            {"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]},
            3,
            (
                'Invalid value: "": "spec.x" must validate one and only one schema (oneOf). '
                "Found 2 valid alternatives"
            ),
        ),
        (
            {"type": "integer", "not": {"minimum": 1}},
            3,
            'Invalid value: "": "spec.x" must not validate the schema (not)',
        ),
        (
            {"type": "integer", "allOf": [{"minimum": 5}]},
            3,
            "Invalid value: 3: spec.x in body should be greater than or equal to 5",
        ),
    ],
)
def test_each_broken_rule_has_the_words_of_kubernetes(x, value, text):
    assert errors(of_x(**x), {"spec": {"x": value}}) == [f"spec.x: {text}"]


@pytest.mark.parametrize(
    ("x", "value"),
    [
        ({**STRING, "nullable": True}, None),
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 1),
        ({"x-kubernetes-int-or-string": True}, "25%"),
        ({"x-kubernetes-int-or-string": True}, 25),
        ({**STRING, "format": "date-time"}, "2024-01-02T03:04:05.123456Z"),
        ({**STRING, "format": "date-time"}, "2024-01-02T03:04:05+02:00"),
        ({**STRING, "format": "no-such-format"}, "x"),
        ({**STRING, "enum": ["A"]}, "A"),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"a": None}]),
        ({"type": "integer", "multipleOf": 5}, 10),
        ({**STRING, "maxLength": 2}, "éé"),
    ],
)
def test_values_that_fit_pass(x, value):
    assert errors(of_x(**x), {"spec": {"x": value}}) == []


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "1::2::3"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/99"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("byte", "aGk=", "a"),
        ("date-time", "2024-01-01T00:00:00Z", "2024-13-01T00:00:00Z"),
    ],
)
def test_formats(format, good, bad):
    found = of_x(type="string", format=format)
    assert errors(found, {"spec": {"x": good}}) == []
    assert len(errors(found, {"spec": {"x": bad}})) == 1


def test_required_fields_and_paths_into_lists_and_maps():
    found = schema(
        required=["foo"],
        properties={
            "foo": STRING,
            "list": {
                "type": "array",
                "items": {"type": "object", "required": ["a"], "properties": {"a": STRING}},
            },
            "map": MAP,
        },
    )
    assert errors(found, {"spec": {"list": [{"a": "x"}, {}], "map": {"k": "v"}}}) == [
        "spec.foo: Required value",
        "spec.list[1].a: Required value",
        'spec.map.k: Invalid value: "string": spec.map.k in body must be of type integer: "string"',
    ]


def test_equal_items_of_sets_and_map_lists_are_duplicates():
    found = schema(
        properties={
            "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
            "map": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"port": {"type": "integer"}, "protocol": {"default": "TCP"}},
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
            },
        }
    )
    obj = {"spec": {"set": ["a", "b", "a"], "map": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}}
    assert errors(found, obj) == [
        'spec.set[2]: Duplicate value: "a"',
        'spec.map[1]: Duplicate value: {"port":1,"protocol":"TCP"}',
    ]


def test_what_did_not_change_is_not_held_against_an_object():
    found = schema(
        properties={
            "x": {**STRING, "enum": ["A"]},
            "y": {**STRING, "maxLength": 1},
            "list": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": STRING, "n": MAP}},
            },
        }
    )
    old = {"spec": {"x": "B", "y": "a", "list": [{"name": "a", "n": {"k": "bad"}}]}}
    assert errors(found, old, old) == []
    new = {"spec": {**old["spec"], "y": "long", "list": [{"name": "b"}, *old["spec"]["list"]]}}
    assert errors(found, new, old) == ["spec.y: Too long: may not be more than 1 bytes"]


def test_heads_of_wrong_types_are_left_to_the_decoder():
    found = schema(properties={"x": {"type": "object", "x-kubernetes-embedded-resource": True}})
    inner = {"apiVersion": 1, "kind": 2, "metadata": 3}
    obj = {"apiVersion": 1, "kind": "K", "metadata": {"odd": 1}, "spec": {"x": inner}}
    assert errors(found, obj) == []
    assert found.prune(obj) == []


@pytest.mark.parametrize(
    "pattern", ["(x+x+)+y", "(a|a)*(a|aa)*(x*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_a_hostile_pattern_is_matched_all_the_same(pattern):
    found = schema(properties={"x": {"type": "string", "pattern": pattern}})
    (error,) = errors(found, {"spec": {"x": "x" * 5_000}})
    assert error.endswith(f"should match '{pattern}'")


def test_patterns_are_those_of_go():
    found = schema(properties={"x": {"type": "string", "pattern": r"^\pL+\z"}})
    assert errors(found, {"spec": {"x": "äß"}}) == []
    assert len(errors(found, {"spec": {"x": "ä\n"}})) == 1
    with pytest.raises(ValueError, match="is not a pattern"):
        from_openapi({"type": "string", "pattern": "(?=a)"})


def test_a_schema_that_is_none_is_refused():
    with pytest.raises(ValueError, match="is not a pattern"):
        from_openapi({"type": "string", "pattern": "("})
    with pytest.raises(ValueError, match="odd"):
        from_openapi({"type": "array", "x-kubernetes-list-type": "odd"})


# ---- pruning and defaults -----------------------------------------------------------------------


def test_unknown_fields_are_removed_at_every_level_and_named():
    found = schema(
        properties={
            "known": STRING,
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": STRING}}},
            "map": {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"a": STRING}},
            },
            "open": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"a": {"type": "object"}},
            },
            "free": {"type": "object", "additionalProperties": True},
        }
    )
    obj = {
        "apiVersion": "g/v1",
        "kind": "K",
        "metadata": {"anything": 1},
        "extra": 1,
        "spec": {
            "known": "x",
            "odd": 1,
            "list": [{"a": "1", "b": 2}],
            "map": {"k": {"a": "1", "b": 2}},
            "open": {"a": {"gone": 1}, "kept": {"deep": 1}},
            "free": {"x": {"y": 1}},
        },
    }
    assert found.prune(obj) == [
        "extra",
        "spec.odd",
        "spec.list[0].b",
        "spec.map.k.b",
        "spec.open.a.gone",
    ]
    assert obj == {
        "apiVersion": "g/v1",
        "kind": "K",
        "metadata": {"anything": 1},
        "spec": {
            "known": "x",
            "list": [{"a": "1"}],
            "map": {"k": {"a": "1"}},
            "open": {"a": {}, "kept": {"deep": 1}},
            "free": {"x": {"y": 1}},
        },
    }


def test_absent_fields_get_their_defaults_and_those_of_the_defaults():
    inner = {
        "type": "object",
        "default": {},
        "properties": {"n": {"type": "integer", "default": 7}, "t": STRING},
    }
    found = schema(
        properties={
            "inner": inner,
            "items": {"type": "array", "items": {**inner, "default": None}},
            "flag": {"type": "boolean", "default": False},
        }
    )
    obj = {"spec": {"items": [{}, {"n": 1}]}}
    found.default(obj)
    assert obj == {
        "spec": {"items": [{"n": 7}, {"n": 1}], "inner": {"n": 7}, "flag": False},
    }
    obj["spec"]["inner"]["t"] = "changed"
    other = {"spec": {}}
    found.default(other)
    assert other["spec"]["inner"] == {"n": 7}


def test_defaults_do_not_reach_into_what_is_absent():
    obj = {}
    schema(properties={"x": {"default": 1}}).default(obj)
    assert obj == {}


def test_null_counts_as_absent_where_it_is_not_allowed():
    found = schema(
        properties={
            "x": {**STRING, "default": "d"},
            "y": STRING,
            "z": {**STRING, "nullable": True},
            "map": {"type": "object", "additionalProperties": STRING},
        }
    )
    obj = {"spec": {"x": None, "y": None, "z": None, "map": {"k": None}}}
    found.default(obj)
    assert obj == {"spec": {"x": "d", "z": None, "map": {}}}


# ---- our own schemas and the tables -------------------------------------------------------------


def test_our_own_definitions_compile():
    for definition in all_crds():
        for version in definition["spec"]["versions"]:
            found = StructuralSchema.of(version["schema"]["openAPIV3Schema"])
            obj = {"apiVersion": "x", "kind": "y", "metadata": {}}
            found.default(obj)
            assert found.prune(obj) == []


@pytest.mark.parametrize(
    ("kind", "path", "list_type", "keys", "merge_key"),
    [
        ("Pod", "spec.containers", "map", ["name"], "name"),
        ("Pod", "spec.containers.env", "map", ["name"], "name"),
        ("Pod", "spec.containers.ports", "map", ["containerPort", "protocol"], "containerPort"),
        ("Pod", "spec.containers.volumeMounts", "map", ["mountPath"], "mountPath"),
        ("Pod", "spec.volumes", "map", ["name"], "name"),
        ("Pod", "spec.tolerations", "atomic", [], None),
        ("Pod", "spec.schedulingGates", "map", ["name"], "name"),
        (
            "Pod",
            "spec.topologySpreadConstraints",
            "map",
            ["topologyKey", "whenUnsatisfiable"],
            "topologyKey",
        ),
        ("Pod", "status.conditions", "map", ["type"], "type"),
        ("Pod", "status.hostIPs", "atomic", [], "ip"),
        ("Pod", "metadata.finalizers", "set", [], ""),
        ("Pod", "metadata.ownerReferences", "map", ["uid"], "uid"),
        ("Node", "status.addresses", "map", ["type"], "type"),
        ("Node", "spec.taints", "atomic", [], None),
        ("Service", "spec.ports", "map", ["port", "protocol"], "port"),
    ],
)
def test_lists_of_core_kinds_merge_as_they_should(kind, path, list_type, keys, merge_key):
    node = builtin_node("", kind)
    for name in path.split("."):
        node = node.item if node.items is not None else node
        node = node.child(name)
    assert node.list_type is ListType(list_type)
    assert list(node.list_map_keys) == keys
    assert (node.patch_strategy is PatchStrategy.MERGE) == (merge_key is not None)
    assert node.patch_merge_key == (merge_key or "")


def test_every_kind_has_metadata_that_merge():
    for group, kind in (("", "Pod"), ("batch", "Job"), ("other", "Unknown")):
        meta = builtin_node(group, kind).child("metadata")
        assert meta.child("finalizers").list_type is ListType.SET
    custom = custom_node(from_openapi({"type": "object", "properties": {"metadata": {}}}))
    assert custom.child("metadata").child("ownerReferences").list_map_keys == ("uid",)
