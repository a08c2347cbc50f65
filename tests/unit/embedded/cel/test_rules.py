"""Rules of CustomResourceDefinitions, through the service: what is refused, and in which words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.server import new_service
from kueuelib.embedded.service import ApiService
from kueuelib.errors import Invalid

BOXES = Resource("test.dev", "v1", "boxes", "Box", namespaced=True)


class NoHooks:
    async def call(self, client: Any, body: Obj, *, seconds: float) -> Obj:
        raise AssertionError("nobody calls webhooks here")


@pytest.fixture
async def service() -> AsyncIterator[ApiService]:
    found = await new_service(NoHooks())
    yield found
    await found.close()


def crd(spec: Obj, rules: Any = ()) -> Obj:
    schema: Obj = {"type": "object", "properties": {"spec": spec}}
    if rules:
        schema["x-kubernetes-validations"] = rules
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"plural": "boxes", "kind": "Box"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def box(spec: Any, name: str = "a") -> Obj:
    return {
        "apiVersion": "test.dev/v1",
        "kind": "Box",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def rule(text: str, **more: Any) -> Obj:
    return {"rule": text, **more}


def fields(rules: list[Obj], **properties: Any) -> Obj:
    return {"type": "object", "properties": properties, "x-kubernetes-validations": rules}


def ruled(schema: Obj, text: str, **more: Any) -> Obj:
    return {**schema, "x-kubernetes-validations": [rule(text, **more)]}


INT = {"type": "integer"}
TEXT = {"type": "string"}
SMALL = "quantity(self.memory).isLessThan(quantity('1Gi'))"
MISFIT = (
    "'no such overload': call arguments did not match a supported operator, function or macro "
    "signature"
)


async def causes(service: ApiService, spec: Any, new: Any, old: Any = None) -> list[str]:
    """What is said against a new object, or against the change of an old one."""
    await service.create(CRDS, crd(spec) if "rules" not in spec else crd(**spec))
    if old is None:
        attempt = service.create(BOXES, box(new))
    else:
        stored = await service.create(BOXES, box(old))
        attempt = service.update(BOXES, {**stored, "spec": new})
    try:
        await attempt
    except Invalid as error:
        return [f"{each['field']}: {each['message']}" for each in error.details["causes"]]
    return []


@pytest.mark.parametrize(
    ("spec", "new", "words"),
    [
        (fields([rule("self.a <= self.b")], a=INT, b=INT), {"a": 1, "b": 2}, []),
        (
            fields([rule("self.a <= self.b")], a=INT, b=INT),
            {"a": 3, "b": 2},
            ["spec: Invalid value: failed rule: self.a <= self.b"],
        ),
        (
            fields([rule("self.a <= self.b", message="too much")], a=INT, b=INT),
            {"a": 3, "b": 2},
            ["spec: Invalid value: too much"],
        ),
        (
            fields([rule("self.a > 0", messageExpression="'not %d'.format([self.a])")], a=INT),
            {"a": 0},
            ["spec: Invalid value: not 0"],
        ),
        (
            fields(
                [rule("self.a > 0", message="m", messageExpression="string(1 / self.a)")], a=INT
            ),
            {"a": 0},
            ["spec: Invalid value: m"],
        ),
        (
            fields([rule("self.a > 0", reason="FieldValueForbidden", fieldPath=".a")], a=INT),
            {"a": 0},
            ["spec.a: Forbidden: failed rule: self.a > 0"],
        ),
        (
            fields([rule("self.a > 0", reason="FieldValueRequired")], a=INT),
            {"a": 0},
            ["spec: Required value: failed rule: self.a > 0"],
        ),
        (
            fields([rule("self.a > 0", reason="FieldValueDuplicate")], a=INT),
            {"a": 0},
            ["spec: Duplicate value"],
        ),
        (
            fields([rule("self.a > 0")], a=INT),
            {},
            ['spec: Invalid value: "object": no such key: a evaluating rule: self.a > 0'],
        ),
        (fields([rule("!has(self.a) || self.a > 0")], a=INT), {}, []),
        (
            fields([], l={"type": "array", "items": ruled(INT, "self > 0")}),
            {"l": [1, 0]},
            ["spec.l[1]: Invalid value: 0: failed rule: self > 0"],
        ),
        (
            fields([], m={"type": "object", "additionalProperties": ruled(TEXT, "self != ''")}),
            {"m": {"k": ""}},
            ["spec.m[k]: Invalid value: \"\": failed rule: self != ''"],
        ),
        (
            fields(
                [
                    rule(
                        "self.foo__dash__bar == 'x' && self.a__dot__b == 'y' && self.__namespac"
                        "e__ == 'z' && self.c__underscores__d == 'w'"
                    )
                ],
                **{"foo-bar": TEXT, "a.b": TEXT, "namespace": TEXT, "c__d": TEXT},
            ),
            {"foo-bar": "x", "a.b": "y", "namespace": "z", "c__d": "w"},
            [],
        ),
        (
            fields([rule(SMALL)], memory=TEXT),
            {"memory": "1024Mi"},
            [
                f"spec: Invalid value: failed rule: {SMALL}",
            ],
        ),
        (
            fields(
                [rule("type(self.port) == string ? self.port != '' : self.port > 0")],
                port={"x-kubernetes-int-or-string": True},
            ),
            {"port": 80},
            [],
        ),
        (
            fields(
                [rule("self.at < timestamp('2030-01-01T00:00:00Z') && self.span > duration('1m')")],
                at={"type": "string", "format": "date-time"},
                span={"type": "string", "format": "duration"},
            ),
            {"at": "2026-01-01T00:00:00Z", "span": "1h"},
            [],
        ),
        (
            fields(
                [rule("self.raw == b'hi' && self.ratio > 0.5")],
                raw={"type": "string", "format": "byte"},
                ratio={"type": "number"},
            ),
            {"raw": "aGk=", "ratio": 1},
            [],
        ),
        (
            fields(
                [rule("self.s == ['b', 'a']")],
                s={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
            ),
            {"s": ["a", "b"]},
            [],
        ),
        (
            fields([rule("self.a > 0")], a={**INT, "nullable": True}),
            {"a": None},
            [
                f'spec: Invalid value: "object": {MISFIT} for rule: self.a > 0',
            ],
        ),
    ],
)
async def test_a_new_object_is_held_against_the_rules(
    service: ApiService, spec: Obj, new: Any, words: list[str]
) -> None:
    assert await causes(service, spec, new) == words


KEYED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["n"],
    "items": {
        "type": "object",
        "required": ["n"],
        "properties": {"n": TEXT, "v": ruled(INT, "self >= oldSelf")},
    },
}


@pytest.mark.parametrize(
    ("spec", "old", "new", "words"),
    [
        (fields([rule("self.a >= oldSelf.a")], a=INT), {"a": 2}, {"a": 3}, []),
        (
            fields([rule("self.a >= oldSelf.a", message="shrinks")], a=INT),
            {"a": 2},
            {"a": 1},
            ["spec: Invalid value: shrinks"],
        ),
        (
            fields([], l=KEYED),
            {"l": [{"n": "a", "v": 5}]},
            {"l": [{"n": "b", "v": 1}, {"n": "a", "v": 6}]},
            [],
        ),
        (
            fields([], l=KEYED),
            {"l": [{"n": "a", "v": 5}]},
            {"l": [{"n": "b", "v": 1}, {"n": "a", "v": 4}]},
            ["spec.l[1].v: Invalid value: 4: failed rule: self >= oldSelf"],
        ),
        (
            fields([], a=ruled(INT, "self == oldSelf", message="fixed")),
            {"a": 1},
            {"a": 2},
            ["spec.a: Invalid value: 2: fixed"],
        ),
        (
            fields([], a=ruled(INT, "oldSelf.hasValue() || self == 0", optionalOldSelf=True)),
            {},
            {"a": 2},
            ["spec.a: Invalid value: 2: failed rule: oldSelf.hasValue() || self == 0"],
        ),
    ],
)
async def test_a_change_is_held_against_the_transition_rules(
    service: ApiService, spec: Obj, old: Any, new: Any, words: list[str]
) -> None:
    assert await causes(service, spec, new, old) == words


async def test_transition_rules_do_not_bind_new_objects(service: ApiService) -> None:
    assert await causes(service, fields([rule("self.a == oldSelf.a")], a=INT), {"a": 1}) == []


async def test_a_rule_of_the_whole_object_sees_its_name(service: ApiService) -> None:
    spec = {"spec": {"type": "object"}, "rules": [rule("self.metadata.name.startsWith('x')")]}
    assert await causes(service, spec, {}) == [
        "<nil>: Invalid value: failed rule: self.metadata.name.startsWith('x')"
    ]


async def test_what_did_not_change_is_not_held_against_an_object(service: ApiService) -> None:
    """A rule that was added later binds the values that are written later."""
    await service.create(CRDS, crd(fields([], a=INT, b=INT)))
    stored = await service.create(BOXES, box({"a": 0}))
    inner = ruled(INT, "self > 0")
    changed = crd(fields([], a=inner, b=INT))
    changed["metadata"]["resourceVersion"] = (
        await service.get(CRDS, ObjectKey("", "boxes.test.dev"))
    )["metadata"]["resourceVersion"]
    await service.update(CRDS, changed)
    stored = await service.update(BOXES, {**stored, "spec": {"a": 0, "b": 1}})
    with pytest.raises(Invalid):
        await service.update(BOXES, {**stored, "spec": {"a": -1, "b": 1}})


async def test_rules_wait_for_an_object_of_the_right_shape(service: ApiService) -> None:
    found = await causes(service, fields([rule("self.a > 0")], a=INT), {"a": "x"})
    assert found[0].startswith("spec.a: Invalid value: ")
    assert found[1] == (
        "<nil>: Invalid value: null: some validation rules were not checked because the object "
        "was invalid; correct the existing errors to complete validation"
    )


async def test_a_rule_that_costs_too_much_denies(service: ApiService) -> None:
    items = {"type": "array", "items": INT}
    text = "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))"
    found = await causes(service, fields([rule(text)], l=items), {"l": list(range(300))})
    assert len(found) == 1
    assert "cost" in found[0]


AT = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"


@pytest.mark.parametrize(
    ("broken", "field", "words"),
    [
        (
            rule("self.c > 0"),
            "rule",
            "compilation failed: ERROR: <input>:1:5: undefined field 'c'\n | self.c > 0\n | ....^",
        ),
        (rule("self.a"), "rule", "cel expression must evaluate to a bool"),
        (rule("self.a >"), "rule", "compilation failed: ERROR: <input>:1:9: Syntax error"),
        (
            rule("self.a == 'x'"),
            "rule",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (rule(""), "rule", "Required value: rule is not specified"),
        (rule("self.a > 0", message=" "), "message", "must be non-empty if specified"),
        (rule("self.a > 0", message="a\nb"), "message", "must not contain line breaks"),
        (rule("self.a >\n0"), "message", "message must be specified if rule contains line breaks"),
        (
            rule("self.a > 0", messageExpression="self.a"),
            "messageExpression",
            "messageExpression must evaluate to a string",
        ),
        (
            rule("self.a > 0", messageExpression="("),
            "messageExpression",
            "messageExpression compilation failed",
        ),
        (rule("self.a > 0", reason="Other"), "reason", 'Unsupported value: "Other"'),
        (rule("self.a > 0", fieldPath=".z"), "fieldPath", "must be a valid path"),
        (
            rule("self.a > 0", optionalOldSelf=True),
            "optionalOldSelf",
            "may not be set if oldSelf is not used in rule",
        ),
    ],
)
async def test_a_definition_with_a_broken_rule_is_refused(
    service: ApiService, broken: Obj, field: str, words: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await service.create(CRDS, crd(fields([broken], a=INT)))
    (cause,) = caught.value.details["causes"]
    assert cause["field"] == f"{AT}.{field}"
    assert words in cause["message"]


async def test_old_values_are_not_known_inside_atomic_lists(service: ApiService) -> None:
    item = ruled(INT, "self == oldSelf")
    with pytest.raises(Invalid, match="uncorrelatable portion of the schema within"):
        await service.create(CRDS, crd(fields([], l={"type": "array", "items": item})))
