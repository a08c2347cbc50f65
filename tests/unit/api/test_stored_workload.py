"""Workloads of an informer share the typed values of parts that they have alike."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kueuelib.api.codec import decode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj
from kueuelib.controllers.feed import RECENT, stored_workload
from kueuelib.errors import InvalidObject
from kueuelib.machinery.store import strip

RESERVED = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "QuotaReserved",
    "message": "Quota reserved in ClusterQueue q",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}


def stored(name: str = "w", cpu: int = 1, version: str = "v1beta2", **status: Any) -> Obj:
    """A raw Workload as an informer stores it."""
    usage = {"cpu": str(cpu)}
    container = {"name": "c", "resources": {"requests": usage}}
    assignment = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": usage, "count": 1}
    raw = {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {
            "queueName": "q",
            "podSets": [
                {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
            ],
        },
        "status": {
            "conditions": [RESERVED],
            "admission": {"clusterQueue": "q", "podSetAssignments": [assignment]},
            **status,
        },
    }
    return strip(orjson.loads(orjson.dumps(raw)))


def test_equal_parts_have_one_typed_value() -> None:
    one, other = stored_workload(stored("a")), stored_workload(stored("b"))
    assert one.spec.pod_sets is other.spec.pod_sets
    assert one.status.admission is other.status.admission
    assert one.status.conditions[0] is other.status.conditions[0]


@pytest.mark.parametrize(
    "raw",
    [
        stored(),
        stored(cpu=2),
        stored(conditions=[], admission=None),
        stored(conditions=[{**RESERVED, "status": "False", "observedGeneration": 2}, RESERVED]),
        stored(version="v1beta1"),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "metadata": {"name": "w"},
            "spec": {"podSets": []},
        },
    ],
)
def test_the_typed_value_is_the_decoded_one(raw: Obj) -> None:
    assert stored_workload(raw) == decode(Workload, raw)


def test_many_different_parts_do_not_stay() -> None:
    first = stored(cpu=1)
    before = stored_workload(first)
    for cpu in range(2, RECENT + 3):
        raw = stored(cpu=cpu)
        assert stored_workload(raw) == decode(Workload, raw)
    after = stored_workload(first)
    assert after == before
    assert after.spec.pod_sets is not before.spec.pod_sets


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{**RESERVED, "status": True}]},
        {"conditions": [{**RESERVED, "reason": ["a"]}]},
        {"conditions": ["a"]},
        {"conditions": 5},
        {"admission": {"podSetAssignments": []}},
        {"admission": 5},
    ],
)
def test_every_bad_field_is_named_with_its_place(status: Obj) -> None:
    raw = stored(**status, requeueState=5)
    with pytest.raises(InvalidObject) as plain:
        decode(Workload, raw)
    with pytest.raises(InvalidObject) as found:
        stored_workload(raw)
    assert str(found.value) == str(plain.value)
    assert len(found.value.errors) == 2
