"""The rules of checks say the same of a raw object as of a decoded one."""

from __future__ import annotations

from itertools import product

import pytest

from kueuelib.api.codec import decode
from kueuelib.api.kueue import ClusterQueue, Workload
from kueuelib.api.meta import Obj
from kueuelib.api.workload_state import passed, passed_all
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.workload.checks import (
    may_preempt,
    named_checks,
    required_checks,
    retry_pause,
)

STATES = ("Pending", "PreemptionRequired", "Ready", "Retry", "")


def workload(*states: str) -> Obj:
    """A raw Workload whose checks `a`, `b` are in these states; empty for not listed."""
    entries = [
        {
            "name": name,
            "state": "Pending" if state == "PreemptionRequired" else state,
            "reason": state if state == "PreemptionRequired" else "",
            "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }
        for name, state in zip("ab", states, strict=False)
        if state
    ]
    metadata = {"name": "w", "namespace": "ns", "uid": "u"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"podSets": [], "queueName": "q"},
        "status": {"admissionChecks": entries},
    }


@pytest.mark.parametrize(
    ("entry", "delay", "pause"),
    [
        ({}, 900.0, 900.0),
        ({"requeueAfterSeconds": 5, "retryCount": 7}, 900.0, 5.0),
        ({}, 0.0, 1.0),
        ({"retryCount": 3}, 0.0, 8.0),
        ({"requeueAfterSeconds": 0, "retryCount": 3}, 900.0, 8.0),
        ({"retryCount": 2**31 - 1}, 0.0, 300.0),
    ],
)
def test_a_retry_without_a_delay_backs_off(entry: Obj, delay: float, pause: float) -> None:
    assert retry_pause(entry, delay) == pause


@pytest.mark.parametrize("late", [(), ("a",), ("a", "b")])
@pytest.mark.parametrize("required", [(), ("a",), ("a", "b")])
@pytest.mark.parametrize("states", list(product(STATES, repeat=2)))
def test_a_raw_and_a_decoded_workload_agree(
    states: tuple[str, str], required: tuple[str, ...], late: tuple[str, ...]
) -> None:
    wl = workload(*states)
    decoded = decode(Workload, wl)
    ready = {name for name, state in zip("ab", states, strict=True) if state == "Ready"}
    listed = {name for name, state in zip("ab", states, strict=True) if state}
    all_passed = ready == listed and ready >= {*required}
    assert passed_all(wl, required) == passed_all(decoded, required) == all_passed
    assert passed(wl, late) == passed(decoded, late) == (ready >= {*late})
    early = "PreemptionRequired" in states or ready >= {*late}
    assert may_preempt(wl, required, late) == (all_passed or early)


@pytest.mark.parametrize("state", ["Pending", "Ready", "Retry", "Rejected"])
def test_only_an_undecided_check_asks_for_preemption(state: str) -> None:
    wl = workload(state)
    wl["status"]["admissionChecks"][0]["reason"] = "PreemptionRequired"
    assert may_preempt(wl, ["a", "late"], ["late"]) is (state == "Pending")


@pytest.mark.parametrize(
    ("flavors", "expected"), [((), ("a",)), (("x",), ("a", "b")), (("y",), ("a",))]
)
def test_required_checks_depend_on_the_flavors(
    flavors: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    rules = [{"name": "a"}, {"name": "b", "onFlavors": ["x"]}, {"name": "a", "onFlavors": ["x"]}]
    raw: Obj = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {"admissionChecksStrategy": {"admissionChecks": rules}},
    }
    admission = {
        "podSetAssignments": [{"flavors": dict.fromkeys(flavors, name)} for name in flavors]
    }
    assert required_checks(raw, admission) == expected
    assert queue_spec(decode(ClusterQueue, raw)).checks_for(frozenset(flavors)) == expected
    assert named_checks(raw) == ("a", "b")
