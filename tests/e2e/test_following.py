"""Submitting, watching and waiting from Python, as the author of a framework does."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rest import JOBS, KUEUE, PODS, WORKLOADS, Rest, eventually
from warm import Processes

import kueuelib
from kueuelib import State, sync
from kueuelib.testing.processes import LocalCluster

QUEUES = """
[{kind: ResourceFlavor, path: resourceflavors, metadata: {name: f}, spec: {}},
 {kind: ClusterQueue, path: clusterqueues, metadata: {name: cq}, spec: {namespaceSelector: {},
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [
   {name: cpu, nominalQuota: "1"}]}]}]}},
 {kind: LocalQueue, path: namespaces/default/localqueues, metadata: {name: team},
  spec: {clusterQueue: cq}}]
"""


def job(name: str, cpu: str = "1", seconds: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    meta = {"annotations": {"kueuelib.dev/run-seconds": seconds}} if seconds else {}
    spec = {"template": {"metadata": meta, "spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with queues, which every test leaves without jobs."""
    with Processes(tmp_path_factory.mktemp("shared")) as processes:
        found = LocalCluster(processes)
        found.start()
        with Rest(found.kubeconfig) as rest:
            make_queues(rest)
        yield found


@pytest.fixture
def rest(shared: LocalCluster) -> Iterator[Rest]:
    with Rest(shared.kubeconfig) as found:
        yield found
        for left in found.items(JOBS):
            found.delete(f"{JOBS}/{left['metadata']['name']}")
        eventually(lambda: not found.items(WORKLOADS) and not found.items(PODS))


@pytest.fixture
def kubeconfig(shared: LocalCluster, rest: Rest) -> str:
    return str(shared.kubeconfig)


def make_queues(rest: Rest) -> None:
    for obj in yaml.safe_load(QUEUES):
        path = obj.pop("path")
        rest.create(f"{KUEUE}/{path}", {"apiVersion": "kueue.x-k8s.io/v1beta2", **obj})


async def test_a_job_is_followed_from_submission_to_its_end(kubeconfig: str) -> None:
    given = job("quick", seconds="0.5")
    handle = await kueuelib.submit(given, queue="team", kubeconfig=kubeconfig)
    assert "labels" not in given["metadata"]
    assert handle.object["spec"]["suspend"] is True
    seen = [progress async for progress in kueuelib.watch(handle, kubeconfig=kubeconfig)]
    states = [progress.state for progress in seen]
    assert states[-1] is State.FINISHED
    assert State.RUNNING in states
    assert seen[-1].why.reason == "Succeeded"
    assert {progress.cluster_queue for progress in seen if progress.state is State.RUNNING} == {
        "cq"
    }


async def test_what_waits_says_why_and_an_eviction_is_a_state(kubeconfig: str, rest: Rest) -> None:
    first = await kueuelib.submit(job("first"), queue="team", kubeconfig=kubeconfig)
    found = await kueuelib.wait(first, State.RUNNING, timeout=180, kubeconfig=kubeconfig)
    assert found.state is State.RUNNING
    second = await kueuelib.submit(job("second"), queue="team", kubeconfig=kubeconfig)
    with pytest.raises(TimeoutError, match="it is Queued: .*quota for cpu"):
        await kueuelib.wait(second, timeout=2, kubeconfig=kubeconfig)
    rest.merge(f"{WORKLOADS}/{found.workload}", {"spec": {"active": False}})
    evicted = await kueuelib.wait(first, State.EVICTED, timeout=180, kubeconfig=kubeconfig)
    assert evicted.why.reason == "Deactivated"
    admitted = await kueuelib.wait(second, State.ADMITTED, timeout=180, kubeconfig=kubeconfig)
    assert admitted.state in (State.ADMITTED, State.RUNNING)


def test_a_script_submits_and_waits_without_a_loop(kubeconfig: str) -> None:
    handle = sync.submit(job("script", seconds="0.5"), queue="team", kubeconfig=kubeconfig)
    states = [progress.state for progress in sync.watch(handle, kubeconfig=kubeconfig)]
    assert State.RUNNING in states
    assert states[-1] is State.FINISHED
    assert sync.wait(handle, timeout=180, kubeconfig=kubeconfig).state is State.FINISHED


# A call that is cancelled just before its loop ends may leave a socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_notebook_waits_although_its_loop_runs(kubeconfig: str, rest: Rest) -> None:
    handle = sync.submit(job("cell", cpu="5"), queue="team", kubeconfig=kubeconfig)
    moments = sync.watch(handle, kubeconfig=kubeconfig)
    assert next(moments).state is State.QUEUED
    moments.close()
    with pytest.raises(TimeoutError, match="it is Queued: .*quota for cpu"):
        sync.wait(handle, timeout=2, kubeconfig=kubeconfig)
    rest.delete(f"{JOBS}/cell")
    with pytest.raises(kueuelib.JobGone, match="Job default/cell is deleted"):
        list(sync.watch(handle, kubeconfig=kubeconfig))
    gc.collect()


def test_a_script_is_refused_in_the_words_of_the_twin(kubeconfig: str) -> None:
    with pytest.raises(kueuelib.errors.ConfigError, match="'Gone' is not a state"):
        sync.wait(job("none"), "Gone", kubeconfig=kubeconfig)  # type: ignore[arg-type]


async def test_a_deleted_job_is_an_error(kubeconfig: str, rest: Rest) -> None:
    handle = await kueuelib.submit(job("big", cpu="5"), queue="team", kubeconfig=kubeconfig)
    eventually(lambda: rest.items(WORKLOADS))
    rest.delete(f"{JOBS}/big")
    with pytest.raises(kueuelib.JobGone, match="Job default/big is deleted"):
        await kueuelib.wait(handle, timeout=180, kubeconfig=kubeconfig)


def member(name: str, total: int, where: str) -> dict[str, Any]:
    spec = job(name)["spec"]["template"]["spec"]
    notes = {"kueue.x-k8s.io/pod-group-total-count": str(total), "kueuelib.dev/run-seconds": "60"}
    meta = {"name": name, "labels": {}, "annotations": notes}
    meta[where]["kueue.x-k8s.io/pod-group-name"] = "together"
    spec = {**spec, "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.mark.parametrize("where", ["labels", "annotations"])
async def test_a_pod_of_a_group_stands_for_the_group(tmp_path: Path, where: str) -> None:
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes, frameworks=("pod",))
        cluster.start()
        config = str(cluster.kubeconfig)
        with Rest(cluster.kubeconfig) as rest:
            make_queues(rest)
            first = await kueuelib.submit(member("a", 2, where), queue="team", kubeconfig=config)
            with pytest.raises(TimeoutError, match="it is Queued: .*1 of 2 pods"):
                await kueuelib.wait(first, timeout=1, kubeconfig=config)
            second = await kueuelib.submit(member("b", 2, where), queue="team", kubeconfig=config)
            for handle in (first, second):
                found = await kueuelib.wait(handle, State.RUNNING, timeout=180, kubeconfig=config)
                assert (found.state, found.workload) == (State.RUNNING, "together")
            for name in "ab":
                notes = {"kueuelib.dev/run-seconds": "0"}
                rest.merge(f"{PODS}/{name}", {"metadata": {"annotations": notes}})
            found = await kueuelib.wait(first, timeout=180, kubeconfig=config)
            assert found.state is State.FINISHED
