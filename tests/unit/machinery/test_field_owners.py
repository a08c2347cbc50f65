"""Who owns the fields of an object after a program took over from another."""

from __future__ import annotations

from typing import Any

from kueuelib.machinery.ownership import taken_over

OURS = {"f:data": {".": {}, "f:a": {}}}


def entry(manager: str, operation: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    made = {"manager": manager, "operation": operation, "apiVersion": "v1"}
    return {**made, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def taken(*entries: dict[str, Any]) -> Any:
    obj = {"apiVersion": "v1", "metadata": {"managedFields": list(entries)}}
    return taken_over(obj, ["old", "older"], "new")


def test_what_others_wrote_becomes_what_one_manager_applied() -> None:
    old = entry("old", "Update", {"f:data": {"f:b": {}}, "f:spec": {"f:x": {}}})
    older = entry("older", "Update", {"f:spec": {"f:y": {}}}, time="2026-01-01T00:00:00Z")
    other = entry("kubectl-edit", "Update", {"f:data": {"f:c": {}}})
    own = entry("new", "Apply", OURS)
    union = {"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:spec": {"f:x": {}, "f:y": {}}}
    assert taken(old, other, own, older) == [other, entry("new", "Apply", union)]
    assert taken(other, old) == [other, entry("new", "Apply", old["fieldsV1"])]


def test_applies_subresources_and_other_versions_remain_theirs() -> None:
    applied = entry("old", "Apply", OURS)
    status = entry("old", "Update", OURS, subresource="status")
    version = entry("old", "Update", OURS, apiVersion="v1beta1")
    assert taken(applied, status, version, entry("new", "Apply", OURS)) is None
    assert taken() is None
    plain = entry("old", "Update", {"f:data": {"f:b": {}}})
    foreign = entry("new", "Apply", OURS, subresource="status")
    made = entry("new", "Apply", {"f:data": {"f:b": {}}})
    assert taken(applied, status, foreign, plain) == [applied, status, foreign, made]
