"""Declared paths are compared with the schema of the CRD."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.jobs import (
    AtMost,
    Done,
    HasCondition,
    Integration,
    Pods,
    declare,
    differs,
    enough,
    equals,
    every,
)
from kueuelib.jobs.declared.crd_mismatches import mismatches
from kueuelib.runtime import Resource

THINGS = Resource("g.example.com", "v1", "things", "Thing", namespaced=True)
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ROLE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "template": OPEN},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "paused": {"type": "boolean"},
                "mode": {"type": "string"},
                "count": {"type": "integer"},
                "limit": {"type": "integer"},
                "template": OPEN,
                "roles": {"type": "array", "items": ROLE},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "active": {"type": "integer"},
                "phase": {"type": "string", "enum": ["Busy", "Done"]},
                "message": {"type": "string"},
                "conditions": {"type": "array", "items": OPEN},
                "roles": {"type": "object", "additionalProperties": ROLE},
                "sum": {"type": "object"},
            },
        },
    },
}


def crd(version: str = "v1") -> dict[str, Any]:
    return {"spec": {"versions": [{"name": version, "schema": {"openAPIV3Schema": SCHEMA}}]}}


def kind(**changed: Any) -> Integration:
    arguments: dict[str, Any] = {
        "pods": [
            Pods(
                template="spec.template.spec.anything",
                count=("spec.count", AtMost("spec.count", "spec.limit")),
                succeeded=Done("status.roles", "count"),
                when=equals("spec.mode", "wide"),
            ),
            Pods("", each="spec.roles", template="template", count="count"),
        ],
        "active": "status.roles.*.count",
        "ready": enough("status.active", units="spec.roles.*.count"),
        "succeeded": [HasCondition("Complete"), every(equals("status.phase", "Done"))],
        "failed": lambda _: False,
        "suspend": "spec.paused",
        "message": "status.conditions.0.message",
    }
    return declare(THINGS, **{**arguments, **changed})


def test_paths_that_the_schema_has_are_fine() -> None:
    assert mismatches(kind(), crd()) == ()
    assert mismatches(kind(priority_class="metadata.labels.class"), crd()) == ()


def test_a_version_without_schema_is_not_judged() -> None:
    assert mismatches(kind(suspend="spec.pausd"), crd("v2")) == ()
    assert mismatches(kind(suspend="spec.pausd"), {}) == ()


@pytest.mark.parametrize(
    ("changed", "argument", "fix"),
    [
        ({"suspend": "spec.pausd"}, "suspend='spec.pausd'", "write 'paused' for 'pausd'"),
        ({"pods": [Pods(template="spec.tmplate")]}, "template='spec.tmplate'", "write 'template'"),
        (
            {"pods": [Pods("n", each="spec.roles", template="template", count="count")]},
            "name='spec.roles.*.n'",
            "spec.roles.* has count, name, template",
        ),
        ({"active": "status.sum.x"}, "active='status.sum.x'", "status.sum has no fields"),
        ({"failed": equals("status.fase", 1)}, "failed='status.fase'", "write 'phase' for 'fase'"),
        (
            {"succeeded": HasCondition("Done", path="status.condition")},
            "succeeded='status.condition'",
            "write 'conditions' for 'condition'",
        ),
        (
            {"message": "status.roles.a.b"},
            "message='status.roles.a.b'",
            "status.roles.a has count, name, template",
        ),
    ],
)
def test_a_path_to_nothing_is_named_with_its_fix(
    changed: dict[str, Any], argument: str, fix: str
) -> None:
    lost, *_ = mismatches(kind(**changed), crd())
    assert str(lost).startswith(f"{argument} is not a field of the CRD: {fix}")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("spec.mode", "string: write suspend=Word('spec.mode', suspended=..., running=...)"),
        ("spec.count", "integer: give a boolean"),
    ],
)
def test_a_field_that_suspends_is_a_boolean_or_has_words(path: str, said: str) -> None:
    (unfit,) = mismatches(kind(suspend=path), crd())
    assert str(unfit) == f"suspend={path!r} is of type {said}"


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"succeeded": equals("status.phase", "Done", "Dnoe")}, "succeeded"),
        ({"failed": [HasCondition("Failed"), every(differs("status.phase", "Dnoe"))]}, "failed"),
        ({"pods": [Pods(template="spec.template", when=equals("status.phase", "Dnoe"))]}, "when"),
    ],
)
def test_a_value_that_the_schema_does_not_allow_is_named(
    changed: dict[str, Any], argument: str
) -> None:
    (unfit,) = mismatches(kind(**changed), crd())
    assert str(unfit) == f"{argument}='status.phase' is never 'Dnoe': the CRD allows 'Busy', 'Done'"
