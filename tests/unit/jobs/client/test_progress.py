"""How far a job has come, from the conditions that either manager writes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import kueuelib
from kueuelib.jobs.batch.job import BatchJob
from kueuelib.jobs.client.progress import State, Why, progress_of

NOW = "2024-01-01T00:00:00Z"


def condition(type: str, status: str = "True", reason: str = "", message: str = "") -> Any:
    found = {"type": type, "status": status, "reason": reason or type, "message": message}
    return {**found, "lastTransitionTime": NOW}


def workload(*conditions: Any, active: bool = True, **status: Any) -> Any:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "metadata": {"name": "wl"},
        "spec": {"active": active},
        "status": {"conditions": list(conditions), **status},
    }


def job(*, suspend: bool = False, **status: Any) -> BatchJob:
    spec = {"suspend": suspend, "parallelism": 1, "template": {}}
    return BatchJob({"metadata": {}, "spec": spec, "status": status})


RESERVED, ADMITTED = condition("QuotaReserved"), condition("Admitted")
PENDING = condition("QuotaReserved", "False", "Pending", "too little cpu")
EVICTED = condition("Evicted", reason="Preempted", message="for another")


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (workload(), State.QUEUED, "NotEvaluated"),
        (workload(PENDING), State.QUEUED, "Pending"),
        (workload(RESERVED, admission={"clusterQueue": "cq"}), State.QUEUED, "WaitingForChecks"),
        (workload(RESERVED, ADMITTED), State.ADMITTED, "Admitted"),
        (workload(RESERVED, ADMITTED, EVICTED), State.EVICTED, "Preempted"),
        # evicted and back in the queue
        (workload(PENDING, EVICTED, condition("Requeued")), State.QUEUED, "Pending"),
        (workload(PENDING, EVICTED, condition("Requeued", "False")), State.EVICTED, "Preempted"),
        (workload(PENDING, EVICTED, active=False), State.EVICTED, "Preempted"),
        (workload(condition("Finished", reason="Succeeded")), State.FINISHED, "Succeeded"),
        (workload(condition("Finished", reason="Failed")), State.FAILED, "Failed"),
        (workload(condition("Finished", reason="OutOfSync")), State.FAILED, "OutOfSync"),
    ],
)
def test_conditions_tell_the_state_and_the_reason(found: Any, state: State, reason: str) -> None:
    progress = progress_of(None, None, found)
    assert (progress.state, progress.why.reason) == (state, reason)


def test_a_job_runs_once_its_pods_do() -> None:
    found = workload(RESERVED, ADMITTED)
    assert progress_of(job(suspend=True), None, found).state is State.ADMITTED
    assert progress_of(job(), None, found).state is State.ADMITTED
    assert progress_of(job(active=1), None, found).state is State.RUNNING
    unknown = {"spec": {"suspend": False}}
    assert progress_of(None, unknown, found).state is State.RUNNING


def test_the_end_that_an_old_manager_writes_is_told_by_the_job() -> None:
    found = workload(condition("Finished", reason="JobFinished"))
    failed = job(conditions=[{"type": "Failed", "status": "True"}])
    assert progress_of(failed, failed.object, found).state is State.FAILED
    assert progress_of(None, failed.object, found).state is State.FAILED
    assert progress_of(None, {}, found).state is State.FINISHED


def test_a_job_may_outlive_its_workload() -> None:
    assert progress_of(job(), {}, None).state is State.QUEUED
    done = job(conditions=[{"type": "Complete", "status": "True"}])
    assert progress_of(done, done.object, None).state is State.FINISHED


def test_reasons_are_a_tree() -> None:
    checks = [
        {"name": "nodes", "state": "Retry", "message": "none left"},
        {"name": "budget", "state": "Ready", "message": ""},
    ]
    state = {"count": 1, "requeueAt": NOW}
    found = workload(RESERVED, EVICTED, admissionChecks=checks, requeueState=state)
    why = progress_of(None, None, found).why
    assert [cause.reason for cause in why.causes] == ["BackingOff", "AdmissionCheckRetry"]
    assert str(Why("A", "a", (Why("B"), Why("C", "c")))) == "A: a\n  B\n  C: c"
    assert "AdmissionCheckRetry: nodes: none left" in str(why)


def test_the_package_is_light_until_a_name_is_used() -> None:
    code = (
        "import sys, kueuelib; assert 'aiohttp' not in sys.modules; "
        "assert 'kueuelib.api' not in sys.modules; kueuelib.State; "
        "assert 'aiohttp' not in sys.modules, 'the states need no client'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_public_names_exist_and_others_do_not() -> None:
    for name in kueuelib.__all__:
        assert getattr(kueuelib, name) is not None
        assert name in dir(kueuelib)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kueuelib.nothing  # noqa: B018
