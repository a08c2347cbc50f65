"""Submitting, watching and waiting from Python, as the author of a framework does."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from rest import JOBS, KUEUE, WORKLOADS, Rest, eventually

import kueuelib
from kueuelib import State
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


@pytest.fixture
def kubeconfig(cluster: LocalCluster, rest: Rest) -> str:
    for obj in yaml.safe_load(QUEUES):
        path = obj.pop("path")
        rest.create(f"{KUEUE}/{path}", {"apiVersion": "kueue.x-k8s.io/v1beta2", **obj})
    return str(cluster.kubeconfig)


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
    found = await kueuelib.wait(first, State.RUNNING, timeout=30, kubeconfig=kubeconfig)
    assert found.state is State.RUNNING
    second = await kueuelib.submit(job("second"), queue="team", kubeconfig=kubeconfig)
    with pytest.raises(TimeoutError, match="it is Queued: .*quota for cpu"):
        await kueuelib.wait(second, timeout=2, kubeconfig=kubeconfig)
    rest.merge(f"{WORKLOADS}/{found.workload}", {"spec": {"active": False}})
    evicted = await kueuelib.wait(first, State.EVICTED, timeout=30, kubeconfig=kubeconfig)
    assert evicted.why.reason == "Deactivated"
    admitted = await kueuelib.wait(second, State.ADMITTED, timeout=30, kubeconfig=kubeconfig)
    assert admitted.state in (State.ADMITTED, State.RUNNING)


async def test_a_deleted_job_is_an_error(kubeconfig: str, rest: Rest) -> None:
    handle = await kueuelib.submit(job("big", cpu="5"), queue="team", kubeconfig=kubeconfig)
    eventually(lambda: rest.items(WORKLOADS))
    rest.delete(f"{JOBS}/big")
    with pytest.raises(kueuelib.JobGone, match="Job default/big is deleted"):
        await kueuelib.wait(handle, timeout=30, kubeconfig=kubeconfig)
