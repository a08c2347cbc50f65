"""How far a job has come, from the conditions that either manager writes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import attrs
import pytest

import kueuelib
from kueuelib.jobs.batch import BatchJob
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
    progress = progress_of(None, None, found, 0.0)
    assert (progress.state, progress.why.reason) == (state, reason)


def test_a_job_runs_once_its_pods_do() -> None:
    found = workload(RESERVED, ADMITTED)
    assert progress_of(job(suspend=True), None, found, 0.0).state is State.ADMITTED
    assert progress_of(job(), None, found, 0.0).state is State.ADMITTED
    assert progress_of(job(active=1), None, found, 0.0).state is State.RUNNING
    unknown = {"spec": {"suspend": False}}
    assert progress_of(None, unknown, found, 0.0).state is State.RUNNING


def test_the_end_that_an_old_manager_writes_is_told_by_the_job() -> None:
    found = workload(condition("Finished", reason="JobFinished"))
    failed = job(conditions=[{"type": "Failed", "status": "True"}])
    assert progress_of(failed, failed.object, found, 0.0).state is State.FAILED
    assert progress_of(None, failed.object, found, 0.0).state is State.FAILED
    assert progress_of(None, {}, found, 0.0).state is State.FINISHED


def test_a_job_may_outlive_its_workload() -> None:
    waiting = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    assert progress_of(job(), waiting, None, 0.0).state is State.QUEUED
    assert progress_of(job(), {}, None, 0.0).why.reason == "NotQueued"
    assert progress_of(job(suspend=True), {}, None, 0.0).state is State.QUEUED
    done = job(conditions=[{"type": "Complete", "status": "True"}])
    assert progress_of(done, done.object, None, 0.0).state is State.FINISHED


def test_pods_that_run_without_a_workload_are_not_queued() -> None:
    labelled = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    runs = progress_of(job(active=1), labelled, None, 0.0)
    assert (runs.state, runs.why.reason, runs.queue) == (State.RUNNING, "NoWorkload", "q")
    assert runs.text == "Running; No manager has created its Workload yet"
    assert progress_of(job(suspend=True), labelled, None, 0.0).state is State.QUEUED


def test_a_job_tells_its_state_if_its_workload_may_not_be_read() -> None:
    labelled = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    waits = progress_of(job(suspend=True), labelled, None, 0.0, "you may not")
    assert (waits.state, waits.text) == (State.QUEUED, "Waiting: you may not")
    assert progress_of(job(), labelled, None, 0.0, "you may not").state is State.ADMITTED
    assert progress_of(job(active=1), labelled, None, 0.0, "you may not").state is State.RUNNING


def test_reasons_are_a_tree() -> None:
    checks = [
        {"name": "nodes", "state": "Retry", "message": "none left"},
        {"name": "budget", "state": "Ready", "message": ""},
    ]
    state = {"count": 1, "requeueAt": NOW}
    found = workload(RESERVED, EVICTED, admissionChecks=checks, requeueState=state)
    why = progress_of(None, None, found, 0.0).why
    assert [cause.reason for cause in why.causes] == ["BackingOff", "AdmissionCheckRetry"]
    assert str(Why("A", "a", (Why("B"), Why("C", "c")))) == "A: a\n  B\n  C: c"
    assert "AdmissionCheckRetry: nodes: none left" in str(why)


ON_FLAVOR = "insufficient unused quota for {} in flavor {}, {} more needed"
TWO_FLAVORS = (  # the smaller shortage counts, and both resources of a flavor
    "couldn't assign flavors to pod set main: "
    f"{ON_FLAVOR.format('cpu', 'spot', '1500m')}, {ON_FLAVOR.format('cpu', 'big', '3')}, "
    f"{ON_FLAVOR.format('memory', 'big', '2Gi')}"
)
TWO_POD_SETS = (  # the shortage of the second one includes the request of the first
    f"couldn't assign flavors to pod set a: {ON_FLAVOR.format('cpu', 'f', '1')}; "
    f"couldn't assign flavors to pod set b: {ON_FLAVOR.format('cpu', 'f', '3')}. "
    "Pending the preemption of 1 workload(s)"
)
TOO_MUCH = (
    "couldn't assign flavors to pod set main: "
    "insufficient quota for nvidia.com/gpu in flavor a100, "
    "previously considered podsets requests (0) + current podset request (8) > maximum capacity (6)"
)


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        (TOO_MUCH, {"nvidia.com/gpu": "2"}),
        (TWO_FLAVORS, {"cpu": "1500m", "memory": "2Gi"}),
        (TWO_POD_SETS, {"cpu": "3"}),
        (f"couldn't assign flavors to pod set m: {ON_FLAVOR.format('cpu', 'f', 'much')}", {}),
        ("couldn't assign flavors to pod set m: resource a unavailable in ClusterQueue", {}),
        ("too little cpu", {}),
    ],
)
def test_what_is_lacking_is_read_from_the_words_of_either_manager(
    message: str, lacks: dict[str, str]
) -> None:
    found = workload(condition("QuotaReserved", "False", "Pending", message))
    lacking = progress_of(None, None, found, 0.0).lacks
    assert {name: str(amount) for name, amount in lacking.items()} == lacks


def at(type: str, second: int, status: str = "True", reason: str = "", message: str = "") -> Any:
    time = f"2024-01-01T00:00:{second:02d}Z"
    return {**condition(type, status, reason, message), "lastTransitionTime": time}


START = 1704067200.0  # 2024-01-01T00:00:00Z
PREEMPTED = (
    "Preempted to accommodate a workload (UID: u-1, JobUID: j-1) due to reclamation within the "
    "cohort; preemptor path: /all/a; preemptee path: /all/b"
)


@pytest.mark.parametrize(
    ("found", "waited"),
    [
        (workload(), 50.0),
        (workload(RESERVED), 50.0),
        (workload(RESERVED, at("Admitted", 20)), 20.0),
        (workload(RESERVED, at("Admitted", 20), at("Evicted", 30)), 50.0),
        (workload(at("Admitted", 30, "False"), at("Evicted", 30)), 50.0),
        (workload(RESERVED, at("Admitted", 40), at("Evicted", 40, "False")), 40.0),
        (workload(at("Admitted", 20), at("Finished", 45, reason="Succeeded")), 20.0),
        (workload(at("Finished", 45, reason="Failed")), 45.0),
    ],
)
def test_seconds_before_the_last_admission_count_as_waited(found: Any, waited: float) -> None:
    found["metadata"]["creationTimestamp"] = NOW
    assert progress_of(None, None, found, START + 50).waited == waited


def test_an_eviction_says_for_whom_how_often_and_until_when() -> None:
    counts = [
        {"reason": "Preempted", "underlyingCause": "", "count": 2},
        {"reason": "AdmissionCheck", "underlyingCause": "", "count": 1},
    ]
    found = workload(
        at("Evicted", 30, reason="Preempted", message=PREEMPTED),
        condition("QuotaReserved", "False", "Pending", PREEMPTED),
        requeueState={"count": 1, "requeueAt": "2024-01-01T00:01:30Z"},
        schedulingStats={"evictions": counts},
    )
    progress = progress_of(None, None, found, START + 50)
    assert progress.evicted is not None
    assert attrs.astuple(progress.evicted)[2:] == (START + 30, False, 3, "u-1", START + 90)
    assert progress.text == (
        "Waiting: reclamation within the cohort; evicted 3 times, last: Preempted"
    )


POD = {"kind": "Pod", "metadata": {"name": "p"}}
OWNED = {"kind": "Pod", "metadata": {"ownerReferences": [{"kind": "ReplicaSet", "controller": 1}]}}


@pytest.mark.parametrize(
    ("obj", "owner", "active", "comes_back"),
    [
        (POD, "Pod", True, False),
        (None, "Pod", True, False),
        (OWNED, "Pod", True, True),
        ({"kind": "Job", "metadata": {}}, "Job", True, True),
        ({"kind": "Job", "metadata": {}}, "Job", False, False),
        (None, "", True, True),
    ],
)
def test_only_plain_pods_and_what_is_deactivated_stay_away(
    obj: Any, owner: str, active: bool, comes_back: bool
) -> None:
    found = workload(EVICTED, condition("Requeued", "False"), active=active)
    found["metadata"]["ownerReferences"] = [{"kind": owner}] if owner else []
    progress = progress_of(None, obj, found, START)
    assert progress.comes_back is comes_back
    back = "it returns to its queue" if comes_back else "submit it again to run it"
    assert progress.text == f"Evicted (Preempted): for another; {back}"


def test_the_end_of_an_evicted_pod_is_no_failure() -> None:
    end = condition("Finished", reason="OwnerNotFound")
    for kind, state in (("Pod", State.EVICTED), ("Job", State.FAILED)):
        found = workload(EVICTED, end)
        found["metadata"]["ownerReferences"] = [{"kind": kind}]
        assert progress_of(None, None, found, START).state is state
    assert progress_of(None, POD, workload(EVICTED, end), START).state is State.EVICTED
    over = condition("Evicted", "False")
    assert progress_of(None, POD, workload(over, end), START).state is State.FAILED


def test_the_line_for_a_person_has_all_that_is_known() -> None:
    message = f"couldn't assign flavors to pod set m: {ON_FLAVOR.format('cpu', 'spot', '2')}"
    found = workload(condition("QuotaReserved", "False", "Pending", message))
    progress = progress_of(None, None, found, START)
    assert progress.text == "Waiting for quota: cpu on spot: 2 more needed"
    more = attrs.evolve(progress, place=3, start_p50=START + 300, start_p90=START + 1200)
    assert more.text == (
        "Waiting for quota: cpu on spot: 2 more needed; place 3; starts within 5m (p50), 20m (p90)"
    )
    assert attrs.evolve(more, start_p90=None).text.endswith("starts within 5m (p50)")
    assert progress_of(None, None, workload(RESERVED, ADMITTED), 0.0).text == "Admitted"
    done = workload(condition("Finished", reason="Succeeded", message="all done"))
    assert progress_of(None, None, done, 0.0).text == "Finished: all done"


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
