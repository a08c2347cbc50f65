"""The rules of metadata that all kinds share."""

from __future__ import annotations

import pytest

from kueuelib.embedded.builtins import metadata
from kueuelib.embedded.builtins.metadata import (
    name_rule,
    validate_finalizers,
    validate_metadata,
    validate_metadata_update,
)

GOOD = {"name": "n", "namespace": "default"}


def errors_of(meta, *, group="", kind="Pod", namespaced=True, builtin=True) -> list[str]:
    obj = {"kind": kind, "metadata": meta}
    found = validate_metadata(obj, name_rule(group, obj.get("kind", "")), namespaced=namespaced)
    found += validate_finalizers(meta) if builtin else []
    return [str(error) for error in found]


def test_good_metadata_passes() -> None:
    labels = {"a": "b", "example.com/x": "", "x.y_z": "A.b_c"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    meta = {
        **GOOD,
        "labels": labels,
        "annotations": {"Example.com/A": "anything at all"},
        "finalizers": ["example.com/f", "orphan"],
        "ownerReferences": [owner],
    }
    assert errors_of(meta) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "A"}, 'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain'),
        ({"name": "a" * 254}, "must be no more than 253 characters"),
        ({"namespace": ""}, "metadata.namespace: Required value"),
        ({"labels": {"a": "b c"}}, 'metadata.labels: Invalid value: "b c": a valid label must be'),
        ({"labels": {"a": "b" * 64}}, "must be no more than 63 bytes"),
        ({"labels": {"-a": "b"}}, 'metadata.labels: Invalid value: "-a": name part must consist'),
        ({"labels": {"/a": "b"}}, "prefix part must be non-empty"),
        ({"labels": {"A.b/a": "b"}}, "prefix part a lowercase RFC 1123 subdomain"),
        ({"labels": {"a/b/c": "d"}}, "a qualified name must consist of"),
        ({"annotations": {"a b": ""}}, "metadata.annotations: Invalid value"),
        (
            {"annotations": {"a": "x" * 262_144}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (
            {"finalizers": ["mine"]},
            'metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer',
        ),
        ({"finalizers": ["a b/c"]}, "metadata.finalizers: Invalid value"),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, "cannot be both set"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
            'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
        ),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "p", "uid": "u"}]},
            "is disallowed from being an owner",
        ),
        (
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": n, "uid": n, "controller": True}
                    for n in ("p", "q")
                ]
            },
            "Only one reference can have Controller set to true",
        ),
    ],
)
def test_bad_metadata_is_refused(change, text) -> None:
    found = errors_of({**GOOD, **change})
    assert any(text in error for error in found), found


def test_cluster_scoped_objects_have_no_namespace() -> None:
    found = errors_of({"name": "n", "namespace": "x"}, kind="Node", namespaced=False)
    assert found == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_custom_resources_may_have_short_finalizers() -> None:
    assert errors_of({**GOOD, "finalizers": ["mine"]}, kind="Thing", builtin=False) == []


@pytest.mark.parametrize(
    ("group", "kind", "name", "fine"),
    [
        ("", "Pod", "a.b", True),
        ("", "Namespace", "a.b", False),
        ("", "Service", "1a", False),
        ("rbac.authorization.k8s.io", "ClusterRole", "system:A", True),
        ("rbac.authorization.k8s.io", "ClusterRole", "a/b", False),
        ("rbac.authorization.k8s.io", "ClusterRole", "..", False),
    ],
)
def test_each_kind_has_its_rule_of_names(group, kind, name, fine) -> None:
    assert (metadata.name_rule(group, kind)(name) == []) is fine


def test_identity_does_not_change() -> None:
    old = {"metadata": {**GOOD, "uid": "1"}}
    new = {"metadata": {**GOOD, "uid": "2"}}
    (error,) = validate_metadata_update(new, old)
    assert str(error) == 'metadata.uid: Invalid value: "2": field is immutable'


def test_a_doomed_object_gets_no_new_finalizers() -> None:
    doomed = {**GOOD, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    kept = validate_metadata_update(
        {"metadata": {**doomed, "finalizers": []}}, {"metadata": doomed}
    )
    assert kept == []
    added = {"metadata": {**doomed, "finalizers": ["a/b", "c/d"]}}
    (error,) = validate_metadata_update(added, {"metadata": doomed})
    assert str(error) == (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
        'deleted, found new finalizers []string{"c/d"}'
    )
