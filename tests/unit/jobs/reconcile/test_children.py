"""Jobs that become children of a queued job while they have a Workload of their own."""

from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey, key_of
from kueuelib.api.names import STOPPING_ANNOTATION
from kueuelib.jobs.contract.commands import (
    Change,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
)
from kueuelib.jobs.lookups.owners import Ancestor
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.runtime import PatchType, kinds
from kueuelib.testing import (
    eventually,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    queueing,
)
from kueuelib.workload import states

NOW = 1_700_000_000.0
SEEN = {"type": "Suspended", "status": "True"}
RUNS, WAITS = (Ancestor("Job ns/parent", admitted) for admitted in (True, False))
DOUBT = Ancestor("Workload ns/typo", admitted=False, doubt="which does not exist")
PARENTS = pytest.mark.parametrize("parent", [RUNS, WAITS, DOUBT])


def writes(commands):
    return [each for each in commands if not isinstance(each, Emit)]


def is_deleted(commands):
    drop, delete = writes(commands)
    return isinstance(drop, DropFinalizer) and isinstance(delete, Delete)


@PARENTS
def test_the_workload_of_a_child_that_waits_is_deleted(build, parent):
    job = build.job()
    for state in ({}, {"reserved": True}, {"admitted": True}):
        workload = build.workload(job, **state)
        assert is_deleted(plan(build.situation(job, workload, ancestor=parent)))


@PARENTS
def test_a_deleted_workload_of_a_child_is_let_go(build, parent):
    job = build.job()
    workload = build.workload(job, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    (drop,) = writes(plan(build.situation(job, workload, ancestor=parent)))
    assert isinstance(drop, DropFinalizer)


@pytest.mark.parametrize("state", [{}, {"reserved": True}, {"admitted": True}])
@pytest.mark.parametrize("evicted", ["", "Preempted"])
@pytest.mark.parametrize("parent", [WAITS, DOUBT])
def test_a_child_of_a_waiting_parent_is_stopped_and_restored_and_loses_its_workload(
    build, state, evicted, parent
):
    job = build.job()
    workload = build.workload(job, evicted=evicted, **state)
    running = {True: build.started(job), False: build.job(suspend=False)}["admitted" in state]
    running["status"] = {"active": 3}
    (stop,) = writes(plan(build.situation(running, workload, ancestor=parent)))
    assert stop.new["spec"]["suspend"]
    assert writes(plan(build.situation(stop.new, workload, ancestor=parent))) == []
    gone = {**stop.new, "status": {"active": 0, "conditions": [SEEN]}}
    (restored,) = writes(plan(build.situation(gone, workload, ancestor=parent)))
    assert STOPPING_ANNOTATION not in restored.new["metadata"]["annotations"]
    assert restored.new["spec"]["template"] == job["spec"]["template"]
    assert is_deleted(plan(build.situation(restored.new, workload, ancestor=parent)))


def test_a_child_of_an_admitted_parent_keeps_the_quota_of_its_own_pods_until_its_end(build):
    job = build.job()
    running, workload = build.started(job, active=3), build.workload(job, admitted=True)
    assert plan(build.situation(running, workload, ancestor=RUNS)) == ()
    victim = build.workload(job, admitted=True, evicted="Preempted")
    (stop,) = writes(plan(build.situation(running, victim, ancestor=RUNS)))
    assert stop.new["spec"]["suspend"]


@PARENTS
def test_a_child_that_has_ended_finishes_its_workload(build, parent):
    ended = build.started(build.job(), conditions=[{"type": "Complete", "status": "True"}])
    workload = build.workload(build.job(), admitted=True)
    finish, *_ = plan(build.situation(ended, workload, ancestor=parent))
    assert isinstance(finish, PatchStatus)
    assert finish.status["conditions"][0]["type"] == "Finished"


@PARENTS
def test_a_child_that_is_about_to_end_is_not_stopped(build, parent):
    status = {"active": 1, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}
    job = build.job()
    ending = build.started(job, **status)
    assert plan(build.situation(ending, build.workload(job, admitted=True), ancestor=parent)) == ()
    assert writes(plan(build.situation(ending, ancestor=parent))) == []


@PARENTS
def test_a_pod_that_runs_with_a_quota_of_its_own_is_not_deleted(parent):
    """Its gate cannot be restored."""
    labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"}
    meta = {"name": "pod", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    gated = {**pod, "spec": {**spec, "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
    created = next(
        each.obj for each in plan(JobSnapshot(PodJob(gated), NOW)) if isinstance(each, Create)
    )
    workload = {**created, "metadata": {**created["metadata"], "resourceVersion": "1"}}
    sets = [{"name": "main", "flavors": {}, "count": 1}]
    admission = {"clusterQueue": "cq", "podSetAssignments": sets}
    held = states.reserve(workload, admission, (), NOW - 9)
    running = {**pod, "spec": {**spec, "nodeName": "n"}, "status": {"phase": "Running"}}
    assert plan(JobSnapshot(PodJob(running), NOW, workloads=(held,), ancestor=parent)) == ()
    assert is_deleted(plan(JobSnapshot(PodJob(gated), NOW, workloads=(held,), ancestor=parent)))


def test_a_child_that_has_ended_is_not_suspended(build):
    for kind in ("Complete", "Failed"):
        ended = build.job(suspend=False, status={"conditions": [{"type": kind, "status": "True"}]})
        assert plan(build.situation(ended, ancestor=WAITS)) == ()


@PARENTS
def test_a_workload_of_somebody_else_is_not_that_of_a_child(build, parent):
    """Such as one that another program makes for the same job."""
    job = build.job()
    workload = build.workload(job, meta={"labels": {}})
    commands = plan(build.situation(job, workload, ancestor=parent))
    assert writes(commands) == []


def test_a_child_without_pod_templates_is_stopped_and_loses_its_workload(build):
    workload = build.workload(build.job(), admitted=True)
    broken = build.started(build.job(), active=3)
    broken["spec"]["template"] = {}
    for parent in (RUNS, WAITS):
        stop = plan(build.situation(broken, workload, ancestor=parent))[0]
        assert isinstance(stop, Change)
        assert stop.new["spec"]["suspend"]
        gone = {**stop.new, "status": {"active": 0, "conditions": [SEEN]}}
        assert any(
            isinstance(each, Delete)
            for each in plan(build.situation(_restored(build, gone), workload, ancestor=parent))
        )


def _restored(build, raw):
    return {**raw, "metadata": build.job()["metadata"]}


# ---- on an embedded API server


def below(owner, kind, name, **fields):
    ref = {field: owner["metadata"][field] for field in ("name", "uid")}
    ref |= {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    made = kind.new(name, "default", **fields)
    made["metadata"]["ownerReferences"] = [ref]
    return made


async def test_jobs_at_any_depth_stop_before_another_job_gets_the_quota_of_the_highest(kube_client):
    """Below another job, and below an object of a kind that is not queued."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    queued = {"spec": {"suspend": True, **spec}, "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    lower = ("middle", "below-a-job", "below-a-map")

    async def running():
        jobs = (await kube_client.list(kinds.JOBS)).items
        return {job["metadata"]["name"] for job in jobs if not job["spec"]["suspend"]}

    async def run(*names):
        async def do():
            return await running() == {*names}

        await eventually(do, 20)

    async with queueing(kube_client):
        cluster_queue = make_cluster_queue("all", {"spot": {"cpu": 1}})
        for each in (make_flavor("spot"), cluster_queue, make_local_queue("q", "all", "default")):
            await kube_client.of(type(each)).create(each)
        top = await kube_client.create(kinds.JOBS, kinds.JOBS.new("top", "default", **queued))
        await run("top")
        between = await kube_client.create(
            kinds.CONFIG_MAPS, below(top, kinds.CONFIG_MAPS, "between")
        )
        middle = await kube_client.create(kinds.JOBS, below(top, kinds.JOBS, "middle", spec=spec))
        for owner, name in ((middle, "below-a-job"), (between, "below-a-map")):
            await kube_client.create(kinds.JOBS, below(owner, kinds.JOBS, name, spec=spec))
        for name in lower:
            key, body = ObjectKey("default", name), {"spec": {"suspend": False}}
            await kube_client.patch(kinds.JOBS, key, body, PatchType.MERGE)
        await run("top", *lower)
        (workload,) = (await kube_client.list(kinds.WORKLOADS)).items
        off = {"spec": {"active": False}}
        await kube_client.patch(kinds.WORKLOADS, key_of(workload), off, PatchType.MERGE)
        await run(*lower)
        seen = {"type": "Suspended", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        body = {"status": {"conditions": [seen]}}
        await kube_client.patch(
            kinds.JOBS, key_of(top), body, PatchType.MERGE, subresource="status"
        )
        await run()
        await kube_client.create(kinds.JOBS, kinds.JOBS.new("other", "default", **queued))
        await run("other")
