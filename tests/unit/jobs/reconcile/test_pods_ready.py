"""PodsReady: whether the pods of an admitted job are ready."""

from __future__ import annotations

import attrs
import pytest

from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.commands import PatchStatus
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.reconcile.plan import plan


def condition(status, reason="Started", at="2024-01-01T00:00:00Z"):
    text = {"type": "PodsReady", "status": status, "reason": reason, "message": ""}
    return {**text, "lastTransitionTime": at}


def told_of(commands):
    found = (each.status for each in commands if isinstance(each, PatchStatus))
    return [status["conditions"][0] for status in found if "conditions" in status]


@pytest.mark.parametrize(
    ("status", "admitted", "expected"),
    [
        ({}, True, ("False", "WaitForStart")),
        ({"ready": 1}, True, ("False", "WaitForStart")),
        ({"succeeded": 1}, True, ("False", "WaitForStart")),
        ({"ready": 2}, True, ("True", "Started")),
        ({"ready": 1, "succeeded": 1}, True, ("True", "Started")),
        ({"succeeded": 2}, True, ("True", "Started")),
        ({"ready": 2}, False, ("False", "WaitForStart")),
    ],
)
def test_pods_ready_is_told(build, status, admitted, expected):
    job = build.job(parallelism=2)
    workload = build.workload(job, admitted=admitted)
    running = build.started(job, **status) if admitted else build.job(parallelism=2, status=status)
    settings = JobSettings(wait_for_pods_ready=True)
    commands = plan(build.situation(running, workload, settings=settings))
    told = commands[-1].status["conditions"][0]
    assert (told["status"], told["reason"]) == expected
    assert told_of(plan(build.situation(running, workload))) == [], "a setting"


def test_a_job_that_is_not_admitted_is_not_asked_whether_its_pods_are_ready(build):
    class Unready(BatchJob):
        def pods_ready(self):
            raise AssertionError("there are no pods yet")

    job = build.job()
    settings = JobSettings(wait_for_pods_ready=True)
    waiting = build.situation(job, build.workload(job), settings=settings)
    (told,) = plan(attrs.evolve(waiting, job=Unready(job)))
    assert told.status["conditions"][0]["reason"] == "WaitForStart"


@pytest.mark.parametrize("recovery", [True, False])
def test_a_failed_pod_is_noticed_when_recovery_is_watched(build, recovery):
    job = build.job(parallelism=2)
    workload = build.workload(job, admitted=True)
    workload["status"]["conditions"].append(condition("True"))
    settings = JobSettings(wait_for_pods_ready=True, pods_ready_recovery=recovery)
    commands = plan(build.situation(build.started(job, ready=1), workload, settings=settings))
    told = [found.status["conditions"][0]["reason"] for found in commands]
    assert told == (["WaitForRecovery"] if recovery else [])


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("admitted", "left", "told"),
    [
        (True, condition("False", "WaitForStart"), ("True", "Started")),
        (True, condition("False", "WaitForStart", "2023-01-01T00:00:00Z"), ("True", "Started")),
        (True, condition("True", at="2023-01-01T00:00:00Z"), None),
        (True, condition("True"), None),
        (True, condition("True", "PodsReady"), None),
        (False, condition("True"), ("False", "WaitForStart")),
        (False, condition("False", "WaitForStart"), None),
    ],
)
def test_what_the_go_manager_has_left_becomes_true(build, waits, admitted, left, told):
    """It writes the condition by default, and its scheduler owns a copy."""
    job = build.job(parallelism=2)
    workload = build.workload(job, admitted=admitted)
    workload["status"]["conditions"].append(left)
    seen = build.started(job, ready=2) if admitted else job
    settings = JobSettings(wait_for_pods_ready=waits)
    commands = plan(build.situation(seen, workload, settings=settings))
    found = [(each["status"], each["reason"]) for each in told_of(commands)]
    assert found == ([] if told is None else [told])
    assert all(each.force for each in commands if isinstance(each, PatchStatus))
