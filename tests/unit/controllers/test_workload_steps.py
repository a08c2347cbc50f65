"""Which changes of a Workload are reconciled: those that lead to a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.workload import Informers, WorkloadReconciler
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.scheduler.quota.queue_spec import Activity
from kueuelib.workload.life import LifeSettings

KEY = ObjectKey("ns", "w")
HELD = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
ADMITTED = {"type": "Admitted", "status": "True", "reason": "Admitted"}
FINISHED = {"type": "Finished", "status": "True", "reason": "Succeeded"}
READY = {"admissionChecks": [{"name": "c", "state": "Ready"}]}


@pytest.fixture
def reconciler() -> WorkloadReconciler:
    queue = {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    stored: list[Any] = [{}, {ObjectKey("ns", "q"): queue}, {}, {}, {}]
    stored[2][ObjectKey("", "cq")] = {"metadata": {"name": "cq"}, "spec": {}}
    informers: Any = Informers(*(SimpleNamespace(store=store) for store in stored))
    active = Activity(active=True, reason="Ready", message="")
    activities: Any = SimpleNamespace(activity=lambda _: active)
    nothing: Any = None
    return WorkloadReconciler(nothing, informers, activities, nothing, nothing, preempt=nothing)


def workload(*conditions: Obj, queue: str = "q", active: bool = True, **status: Any) -> Obj:
    listed = [{**each, "lastTransitionTime": "2026-01-02T03:04:05Z"} for each in conditions]
    if HELD in conditions:
        status["admission"] = {"clusterQueue": "cq"}
    return {
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"queueName": queue, "active": active},
        "status": {"conditions": listed, **status},
    }


def changed(new: Obj | None, *, initial: bool = False) -> Delta[Obj]:
    kind = DeltaKind.DELETED if new is None else DeltaKind.UPDATED
    return Delta(kind, KEY, workload(), new, initial)


@pytest.mark.parametrize(
    "new", [None, workload(), workload(HELD, ADMITTED), workload(HELD, ADMITTED, FINISHED)]
)
def test_the_usual_changes_lead_to_no_step(reconciler: WorkloadReconciler, new: Obj | None) -> None:
    assert not reconciler.has_step(changed(new))


@pytest.mark.parametrize(
    "new",
    [
        workload(queue="missing"),
        workload(active=False),
        workload(HELD, ADMITTED, active=False),
        workload(HELD, ADMITTED, **READY),
        {"metadata": {"name": "w"}},
    ],
)
def test_what_needs_a_step_is_reconciled(reconciler: WorkloadReconciler, new: Obj) -> None:
    assert reconciler.has_step(changed(new))


def test_a_step_at_a_later_time_is_one(reconciler: WorkloadReconciler) -> None:
    reconciler.life = LifeSettings(delete_finished_after=1e12)
    assert reconciler.has_step(changed(workload(HELD, ADMITTED, FINISHED)))


def test_an_initial_change_is_always_reconciled(reconciler: WorkloadReconciler) -> None:
    assert reconciler.has_step(changed(workload(), initial=True))


def test_a_workload_without_its_owner_waits_for_a_job_that_exists(
    reconciler: WorkloadReconciler,
) -> None:
    lost = workload()
    lost["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "there"}
    ended = reconciler._next_step(lost, 0.0).workload
    assert ended is not None
    assert ended["status"]["conditions"][-1]["reason"] == "OwnerNotFound"
    reconciler._exists = lambda uid, namespace: (uid, namespace) == ("there", "ns")
    assert reconciler._next_step(lost, 0.0).workload is None
    assert reconciler.has_step(changed(lost))
