"""Jobs whose Workload has lost the reference to its owner."""

from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.jobs.contract.commands import Change, Delete, DropFinalizer, Emit, Recheck
from kueuelib.jobs.lookups.stores import OWNER_UID, JobStores, job_uids
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.machinery.store import Store

LOST = {"type": "Finished", "status": "True", "reason": "OwnerNotFound", "message": "gone"}


def without_owner(build, job, **fields):
    workload = build.workload(job, **fields)
    del workload["metadata"]["ownerReferences"]
    return workload


def test_a_running_job_takes_its_workload_back_and_runs_on(build):
    job = build.started(build.job(), active=3)
    recheck, change, event = plan(build.situation(job, without_owner(build, job, admitted=True)))
    assert isinstance(recheck, Recheck)
    (ref,) = change.new["metadata"]["ownerReferences"]
    assert (ref["uid"], ref["controller"]) == ("job-uid", True)
    assert event.message == "Updated Workload job-job-12345: its owner reference was missing"


def test_a_waiting_job_takes_its_workload_back(build):
    job = build.job()
    commands = plan(build.situation(job, without_owner(build, job)))
    assert [type(each) for each in commands] == [Recheck, Change, Emit]


@pytest.mark.parametrize("active", [0, 3])
def test_a_workload_that_was_finished_without_its_owner_is_made_again(build, active):
    job = build.job(status={"active": active} if active else {})
    lost = without_owner(build, job)
    lost["status"]["conditions"].append(LOST)
    commands = plan(build.situation(job, lost))
    kinds = [type(each) for each in commands if not isinstance(each, Emit)]
    assert kinds == ([] if active else [DropFinalizer, Delete])
    stop, *_ = plan(build.situation(build.started(job, active=3), lost))
    assert stop.new["spec"]["suspend"] is True


def test_a_job_finds_the_workload_that_was_made_for_it_without_an_owner(build):
    job = build.job()
    lost, other = without_owner(build, job), build.workload(job, name="other")
    other["metadata"]["ownerReferences"][0]["uid"] = "somebody"
    workloads = Store({OWNER_UID: job_uids})
    for each in (lost, other):
        workloads.put(ObjectKey("ns", each["metadata"]["name"]), each)
    nothing = Store()
    stores = JobStores({}, workloads, nothing, nothing, nothing)
    assert stores.workloads_of("job-uid") == (lost,)
    assert stores.workloads_of("somebody") == (other,)
