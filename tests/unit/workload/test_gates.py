"""A Workload with admission gates says so, and waits."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.scheduler.object_reasons import LocalQueueFacts
from kueuelib.scheduler.quota.queue_spec import ACTIVE
from kueuelib.workload import states
from kueuelib.workload.next_step import NOTHING, Step, WorkloadContext, next_step
from kueuelib.workload.states import IllegalTransition

Obj = dict[str, Any]
NOW = 1_700_000_000.0
GATES = "kueue.x-k8s.io/admission-gated-by"
QUEUE = {"metadata": {"name": "cq"}, "spec": {"stopPolicy": "None"}}
AROUND = WorkloadContext(LocalQueueFacts("main", "cq"), QUEUE, ACTIVE)
ADMISSION: Obj = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}


def gated(text: str = "example.com/a,example.com/b", wl: Obj | None = None, **spec: Any) -> Obj:
    meta = {"name": "wl", "namespace": "ns", "uid": "u", "annotations": {GATES: text}}
    status = {} if wl is None else wl["status"]
    return {"metadata": meta, "spec": {"queueName": "main", **spec}, "status": status}


def said(step: Step) -> tuple[str, str, list[str]]:
    assert step.workload is not None
    found = states.condition(step.workload, "QuotaReserved")
    assert found["status"] == "False"
    return found["reason"], found["message"], [note.reason for note in step.notes]


@pytest.mark.parametrize("around", [AROUND, WorkloadContext()], ids=["sound", "no queue"])
def test_its_condition_names_the_gates_once(around: WorkloadContext) -> None:
    step = next_step(gated(), around, NOW)
    message = "Admission is gated by: example.com/a,example.com/b"
    assert said(step) == ("AdmissionGated", message, ["AdmissionGated"])
    assert next_step(gated(wl=step.workload), around, NOW + 9) == NOTHING


def test_a_gate_less_is_told_without_an_event() -> None:
    told = next_step(gated(), AROUND, NOW).workload
    step = next_step(gated("example.com/b", told), AROUND, NOW)
    assert said(step) == ("AdmissionGated", "Admission is gated by: example.com/b", [])


@pytest.mark.parametrize("text", ["", " "])
def test_when_the_last_gate_is_gone_the_scheduler_decides(text: str) -> None:
    told = next_step(gated(), AROUND, NOW).workload
    step = next_step(gated(text, told), AROUND, NOW)
    message = "AdmissionGatedBy cleared, waiting for quota reservation"
    assert said(step) == ("PendingEvaluation", message, ["AdmissionGateCleared"])
    assert next_step(gated(text, step.workload), AROUND, NOW) == NOTHING


def test_a_deactivated_workload_says_that_first() -> None:
    assert said(next_step(gated(active=False), AROUND, NOW))[0] == "Deactivated"


def test_a_gate_takes_no_quota_away() -> None:
    free = gated("")
    running = states.reserve(free, ADMISSION, [], NOW)
    assert next_step(gated(wl=running), AROUND, NOW) == NOTHING


def test_quota_is_not_reserved_for_what_is_gated() -> None:
    with pytest.raises(IllegalTransition, match="it is gated"):
        states.reserve(gated(), ADMISSION, [], NOW)
