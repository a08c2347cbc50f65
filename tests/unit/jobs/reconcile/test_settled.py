"""When a reconciliation of a job needs no other one for the changes that it made itself, and whose
Workloads it takes for those of the job.
"""

from __future__ import annotations

import asyncio

import attrs
import pytest

from kueuelib.api.meta import ObjectKey, key_of
from kueuelib.jobs import BatchJob
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.commands import Create, DropFinalizer, Emit
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.stores import (
    OWNER_NAME,
    OWNER_UID,
    JobStores,
    owner_names,
    owner_uids,
)
from kueuelib.jobs.reconcile.executor import PlanResult
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.reconciler import JobReconciler
from kueuelib.machinery.store import Store
from kueuelib.runtime.controller import DONE, SETTLED

KEY = ObjectKey("ns", "job")


class Executing:
    """Stores the Workload that a plan creates, after what else happens meanwhile."""

    def __init__(self, workloads: Store, meanwhile=lambda: None):
        self.workloads = workloads
        self.meanwhile = meanwhile
        self.warnings = []

    def warn(self, about, message):
        self.warnings.append((about["metadata"]["name"], message))

    async def run(self, commands, _about):
        self.meanwhile()
        for command in commands:
            if isinstance(command, Create):
                meta = {**command.obj["metadata"], "uid": "wl", "creationTimestamp": "t"}
                self.workloads.put(key_of(command.obj), {**command.obj, "metadata": meta})
        return PlanResult()


class Foreign:
    """Knows no owner before it is read."""

    def get(self, _ref):
        return None

    async def learn(self, _ref, _namespace):
        return None


def reconciler(*, labels=None, meanwhile=lambda _: None, job_type=BatchJob):
    integration = builtin_registry().enabled(("batch/job",))[0]
    integration = attrs.evolve(integration, job_type=job_type)
    jobs, workloads = Store(), Store({OWNER_UID: owner_uids, OWNER_NAME: owner_names})
    meta = {"name": "job", "namespace": "ns", "uid": "u", "labels": labels or {}}
    meta["labels"] |= {"kueue.x-k8s.io/queue-name": "main"}
    spec = {"suspend": True, "template": {"spec": {"containers": [{"name": "c"}]}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    jobs.put(KEY, job)
    stores = JobStores({integration.name: jobs}, workloads, Store(), Store(), Store())
    settings = JobSettings()
    executor = Executing(workloads, lambda: meanwhile(jobs))
    owners = Owners([integration], stores, settings, Foreign())
    return JobReconciler(integration, stores, owners, executor, settings)


def test_a_created_workload_leaves_nothing_to_do():
    assert asyncio.run(reconciler().reconcile(KEY)) == SETTLED


def test_a_plan_without_commands_is_not_made_twice():
    made = reconciler()
    asyncio.run(made.reconcile(KEY))
    assert asyncio.run(made.reconcile(KEY)) == DONE


def moved(jobs):
    job = jobs.get(KEY)
    meta = {**job["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "other"}}
    jobs.put(KEY, {**job, "metadata": meta})


def unsuspended(jobs):
    job = jobs.get(KEY)
    jobs.put(KEY, {**job, "spec": {**job["spec"], "suspend": False}})


def owned(jobs):
    job = jobs.get(KEY)
    owner = {"apiVersion": "apps/v1", "kind": "Other", "name": "o", "uid": "o", "controller": True}
    jobs.put(KEY, {**job, "metadata": {**job["metadata"], "ownerReferences": [owner]}})


@pytest.mark.parametrize("change", [moved, unsuspended, owned])
def test_a_change_that_came_meanwhile_needs_another_run(change):
    assert asyncio.run(reconciler(meanwhile=change).reconcile(KEY)) == DONE


def test_a_step_that_would_be_repeated_is_not_settled():
    labels = {"kueue.x-k8s.io/prebuilt-workload-name": "missing"}
    assert asyncio.run(reconciler(labels=labels).reconcile(KEY)) == DONE


class Misspelled(BatchJob):
    """A method of its author raises an error."""

    def finished(self):
        return self.object.get("status").get("phase")


def test_an_error_of_the_kind_is_reported_once_while_the_job_is_unchanged():
    made = reconciler(job_type=Misspelled)
    jobs, executor = made._stores.jobs["batch/job"], made._executor

    def look():
        with pytest.raises(AttributeError):
            asyncio.run(made.reconcile(KEY))
        return len(executor.warnings)

    assert (look(), look()) == (1, 1)
    job = jobs.get(KEY)
    jobs.put(KEY, {**job, "metadata": {**job["metadata"], "generation": 2}})
    assert look() == 2
    name, message = executor.warnings[0]
    assert name == "job"
    assert "AttributeError(\"'NoneType' object has no attribute 'get'\")" in message
    assert "in finished, test_settled.py:" in message


@pytest.mark.parametrize("life", [{}, {"admitted": True}, {"finished": True}])
def test_a_job_that_was_recreated_takes_no_workload_of_the_last_one(build, life):
    """It would start on the admission of the last one: garbage collection may come later."""
    made = reconciler()
    job = made._stores.jobs["batch/job"].get(KEY)
    last = {**job, "metadata": {**job["metadata"], "uid": "last"}}
    workload = build.workload(last, name="job-job-last", **life)
    made._stores.workloads.put(key_of(workload), workload)
    commands = plan(made.observe(KEY, job))
    assert [type(one) for one in commands] == [DropFinalizer, Create, Emit]
    assert commands[1].obj["metadata"]["ownerReferences"][0]["uid"] == "u"


@pytest.mark.parametrize("life", [{}, {"admitted": True}, {"finished": True}])
@pytest.mark.parametrize("controller", [True, False], ids=["of another job", "of nobody"])
def test_a_workload_that_only_refers_to_a_job_is_not_its_workload(build, controller, life):
    """Such as the prebuilt one of another job, which goes with both."""
    made = reconciler()
    job = made._stores.jobs["batch/job"].get(KEY)
    other = build.job(meta={"name": "other", "uid": "other"})
    workload = build.workload(other, name="a", **life)
    plain = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u"}
    refs = workload["metadata"]["ownerReferences"] if controller else []
    workload["metadata"]["ownerReferences"] = [plain, *refs]
    made._stores.workloads.put(key_of(workload), workload)
    commands = plan(made.observe(KEY, job))
    assert [type(one) for one in commands] == [Create, Emit]
    deleted = {**job, "metadata": {**job["metadata"], "deletionTimestamp": "t"}}
    assert plan(made.observe(KEY, deleted)) == ()
    assert plan(made.observe(KEY, None)) == ()
