"""Admission gates can be named when an object is created, and only be removed later."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.names import admission_gates
from kueuelib.api.validation import validate_workload
from kueuelib.api.validation.fields import gate_errors

Obj = dict[str, Any]
KEY = "kueue.x-k8s.io/admission-gated-by"
PATH = f"metadata.annotations[{KEY}]"
A, B = "example.com/a", "example.com/b"


def gated(gates: str | None, **parts: Any) -> Obj:
    notes = {} if gates is None else {KEY: gates}
    return {"metadata": {"name": "w", "namespace": "ns", "annotations": notes}, **parts}


@pytest.mark.parametrize(
    ("text", "gates"),
    [("", ()), (" ", ()), (A, (A,)), (f" {A} ,{B}", (A, B)), (f"{A},,", (A,))],
)
def test_gates_are_names_between_commas(text: str, gates: tuple[str, ...]) -> None:
    assert admission_gates({KEY: text}) == gates
    assert admission_gates({}) == ()


@pytest.mark.parametrize(
    "text", [None, "", " ", A, f"{A}, {B}", "acme.io/a/b~c:d", f"a/{'b' * 61}"]
)
def test_an_object_may_be_created_with_gates(text: str | None) -> None:
    assert list(gate_errors(gated(text), None)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{A},", "cannot contain empty gate names"),
        (f"{A},{B},{A}", f"duplicate gate name: {A}"),
        ("gate", "must be a domain-prefixed path"),
        ("/gate", "must be a domain-prefixed path"),
        ("Example.com/gate", "must be a domain-prefixed path"),
        ("example.com/", "must be a domain-prefixed path"),
        ("example.com/a b", "must be a domain-prefixed path"),
        (f"a/{'b' * 62}", "Too long: may not be more than 63 bytes"),
    ],
)
def test_gates_of_another_form_are_refused(text: str, message: str) -> None:
    (error,) = gate_errors(gated(text), None)
    assert error.path == PATH
    assert message in error.message


@pytest.mark.parametrize(
    ("before", "after"),
    [(A, None), (A, ""), (f"{A},{B}", B), (f"{A},{B}", f"{B}, {A}"), (None, ""), ("bad", "bad")],
)
def test_gates_may_be_removed(before: str | None, after: str | None) -> None:
    assert list(gate_errors(gated(after), gated(before))) == []


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (None, A, "Forbidden: cannot add admission gate after creation"),
        ("", A, "Forbidden: cannot add admission gate after creation"),
        (A, B, "Forbidden: can only remove gates, not add new ones"),
        (A, f"{A},{B}", "Forbidden: can only remove gates, not add new ones"),
        (f"{A},{B}", f"{A},", "cannot contain empty gate names"),
    ],
)
def test_no_gate_is_added_later(before: str | None, after: str, message: str) -> None:
    (error,) = gate_errors(gated(after), gated(before))
    assert message in error.message


def test_the_gates_of_a_workload_are_judged_although_only_its_metadata_changes() -> None:
    spec = {"podSets": [{"name": "main", "template": {"spec": {"containers": [{"name": "c"}]}}}]}
    old, new = gated(None, spec=spec), gated(A, spec=spec)
    assert [error.path for error in validate_workload(new, old)] == [PATH]
    assert validate_workload(old, new) == []
    assert [error.path for error in validate_workload(gated("bad", spec=spec))] == [PATH]
