"""The whole queueing system in a test."""

from __future__ import annotations

import asyncio
import gc

import pytest

from kueuelib import State, submit, wait
from kueuelib.api.meta import find_condition, key_of
from kueuelib.checks import Ready, check
from kueuelib.errors import ConfigError
from kueuelib.runtime import Client, Obj, ObjectKey, PatchType, kinds
from kueuelib.testing import (
    eventually,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    queueing,
)


async def test_what_runs_ends_with_the_block(
    kube_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = asyncio.all_tasks()
    for name in ("freeze", "unfreeze"):  # the collector belongs to the program of the test
        monkeypatch.delattr(gc, name)
    async with queueing(kube_client):
        assert not (await kube_client.list(kinds.CLUSTER_QUEUES)).items
        assert asyncio.all_tasks() > before
    assert asyncio.all_tasks() == before


async def test_the_failure_of_a_block_is_raised(kube_client: Client) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with queueing(kube_client):
            raise LookupError("mine")


async def test_a_bundled_kind_is_enabled_by_its_name(kube_client: Client) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    pod = kinds.PODS.new("one", "default", labels=labels, spec={"containers": [container]})
    async with queueing(kube_client, "pod"):
        made = await kube_client.create(kinds.PODS, pod)
    gates = [gate["name"] for gate in made["spec"]["schedulingGates"]]
    assert gates == ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]


async def test_an_unknown_name_is_refused(kube_client: Client) -> None:
    with pytest.raises(ConfigError, match="unknown name: pods; use some of: batch/job"):
        async with queueing(kube_client, "pods"):
            pass


@pytest.mark.api_server(simulate=True)
async def test_a_job_passes_its_check_and_runs_to_its_end(kube_client: Client) -> None:
    @check("example.com/yes")
    async def yes(_: object, __: object) -> Ready:
        return Ready()

    spec = {"controllerName": "example.com/yes"}
    pod = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        "restartPolicy": "Never",
    }
    ends = {"annotations": {"kueuelib.dev/run-seconds": "0.1"}}
    job = kinds.JOBS.new("one", spec={"template": {"metadata": ends, "spec": pod}})
    queue = make_cluster_queue("all", {"any": {"cpu": 1}}, checks=["yes"])
    async with queueing(kube_client, yes):
        await kube_client.create(
            kinds.ADMISSION_CHECKS, kinds.ADMISSION_CHECKS.new("yes", spec=spec)
        )
        for each in (make_flavor("any"), queue, make_local_queue("q", "all", "default")):
            await kube_client.of(type(each)).create(each)
        handle = await submit(job, queue="q", client=kube_client)
        end = await wait(handle, client=kube_client, timeout=60)
    assert end.state is State.FINISHED


@pytest.mark.api_server(simulate=True)
async def test_a_job_deleted_without_its_workload_gives_its_quota_to_the_next(
    kube_client: Client,
) -> None:
    """`DELETE` without a propagation policy orphans what a batch/v1 Job owns."""
    pod = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        "restartPolicy": "Never",
    }
    template = {"metadata": {"annotations": {"kueuelib.dev/run-seconds": "600"}}, "spec": pod}
    queue = make_cluster_queue("all", {"any": {"cpu": 1}})
    async with queueing(kube_client):
        for each in (make_flavor("any"), queue, make_local_queue("q", "all", "default")):
            await kube_client.of(type(each)).create(each)
        for name in ("one", "two"):
            job = kinds.JOBS.new(name, spec={"template": template})
            handle = await submit(job, queue="q", client=kube_client)
            await wait(handle, until=State.RUNNING, client=kube_client, timeout=30)
            await kube_client.delete(kinds.JOBS, ObjectKey("default", name))
        workloads = await eventually(lambda: _without_owners(kube_client))
    ended = [find_condition(each["status"]["conditions"], "Finished") for each in workloads]
    assert "OwnerNotFound" in [each.get("reason") for each in ended]


async def _without_owners(client: Client) -> list[Obj] | None:
    """All Workloads, once the garbage collector has orphaned them."""
    workloads = (await client.list(kinds.WORKLOADS)).items
    owned = any(each["metadata"].get("ownerReferences") for each in workloads)
    return None if owned else list(workloads)


@pytest.mark.api_server(simulate=True)
async def test_a_running_job_takes_a_workload_back_that_has_lost_its_owner(
    kube_client: Client,
) -> None:
    pod = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        "restartPolicy": "Never",
    }
    template = {"metadata": {"annotations": {"kueuelib.dev/run-seconds": "600"}}, "spec": pod}
    queue = make_cluster_queue("all", {"any": {"cpu": 1}})
    async with queueing(kube_client):
        for each in (make_flavor("any"), queue, make_local_queue("q", "all", "default")):
            await kube_client.of(type(each)).create(each)
        job = kinds.JOBS.new("one", spec={"template": template})
        handle = await submit(job, queue="q", client=kube_client)
        await wait(handle, until=State.RUNNING, client=kube_client, timeout=30)
        (workload,) = (await kube_client.list(kinds.WORKLOADS)).items
        lost = {"metadata": {"ownerReferences": None}}
        await kube_client.patch(kinds.WORKLOADS, key_of(workload), lost, PatchType.MERGE)
        owned = await eventually(lambda: _with_owner(kube_client))
        assert find_condition(owned["status"]["conditions"], "Finished") == {}
        (job,) = (await kube_client.list(kinds.JOBS)).items
        assert not job["spec"].get("suspend")


async def _with_owner(client: Client) -> Obj | None:
    """The Workload, once it has an owner."""
    (workload,) = (await client.list(kinds.WORKLOADS)).items
    return workload if workload["metadata"].get("ownerReferences") else None
