"""Jobs that are being deleted, and that a finalizer of somebody else keeps."""

from __future__ import annotations

import pytest

from kueuelib.jobs.contract.commands import Delete, DropFinalizer, Emit, PatchStatus
from kueuelib.jobs.reconcile.plan import plan

DELETED = {"deletionTimestamp": "2024-01-01T00:00:00Z"}


def writes(commands):
    return [type(command) for command in commands if not isinstance(command, Emit)]


@pytest.mark.parametrize("fields", [{}, {"reserved": True}, {"admitted": True}])
def test_the_workload_of_a_waiting_job_that_is_being_deleted_is_deleted(build, fields):
    """The job does not start, and blocks nobody."""
    job = build.job(meta=DELETED)
    commands = plan(build.situation(job, build.workload(job, **fields)))
    assert writes(commands) == [DropFinalizer, Delete]


def test_a_running_job_that_is_being_deleted_keeps_its_quota(build):
    job = build.started(build.job(meta=DELETED), active=3)
    assert writes(plan(build.situation(job, build.workload(job, admitted=True)))) == [DropFinalizer]


def test_a_job_that_is_being_deleted_is_stopped_when_it_is_evicted(build):
    job = build.job(meta=DELETED)
    evicted = build.workload(job, admitted=True, evicted="Preempted")
    stop, *rest = plan(build.situation(build.started(job, active=3), evicted))
    assert stop.new["spec"]["suspend"] is True
    assert writes(rest) == [DropFinalizer]
    stopping = build.job(meta=DELETED, status={"active": 2})
    assert writes(plan(build.situation(stopping, evicted))) == [DropFinalizer]
    seen = {"conditions": [{"type": "Suspended", "status": "True"}]}
    stopped = build.job(meta=DELETED, status=seen)
    assert writes(plan(build.situation(stopped, evicted))) == [DropFinalizer, Delete]


@pytest.mark.parametrize("evicted", ["", "ClusterQueueStopped"])
def test_a_job_whose_pods_are_gone_is_freed_while_a_finalizer_keeps_it(build, evicted):
    """Its controller does not say of a deleted Job that it is suspended, and creates no pods."""
    job = build.started(build.job(meta=DELETED))
    workload = build.workload(job, admitted=True, evicted=evicted)
    stop, *rest = plan(build.situation(job, workload))
    assert stop.new["spec"]["suspend"] is True
    assert writes(rest) == [DropFinalizer]
    stopping = {**stop.new, "status": {}}
    restored, *freed = plan(build.situation(stopping, workload))
    assert "kueue.x-k8s.io/stopping" not in (restored.new["metadata"].get("annotations") or {})
    assert writes(freed) == [DropFinalizer]
    assert writes(plan(build.situation(restored.new, workload))) == [DropFinalizer, Delete]


def test_a_job_that_is_deleted_before_its_controller_has_seen_its_start_keeps_its_quota(build):
    job = build.started(build.job(meta=DELETED))
    del job["status"]["startTime"]
    assert writes(plan(build.situation(job, build.workload(job, admitted=True)))) == [DropFinalizer]


def test_the_workload_of_a_job_that_ends_while_it_is_being_deleted_is_finished(build):
    complete = [{"type": "Complete", "status": "True"}]
    job = build.started(build.job(meta=DELETED), conditions=complete)
    commands = plan(build.situation(job, build.workload(job, admitted=True)))
    assert writes(commands) == [PatchStatus, DropFinalizer]
