"""Pods of a node that is deleted."""

from __future__ import annotations

from kueuelib.api.kinds import NODES, PODS
from kueuelib.api.meta import find_condition
from kueuelib.embedded.cluster.doomed_pods import QUARANTINE
from kueuelib.embedded.cluster.nodes import simulated_node

NODE = "simulated-node-0"
HERE = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
ELSEWHERE = {"nodeSelector": {"kubernetes.io/hostname": "simulated-node-1"}}
SHORT = {"kueuelib.dev/run-seconds": "0.5"}


async def names(sandbox) -> set[str]:
    return {pod["metadata"]["name"] for pod in await sandbox.pods()}


async def test_the_pods_of_a_deleted_node_go_when_it_does_not_come_back(sandbox) -> None:
    await sandbox.pod("ended", annotations=SHORT, **HERE)
    await sandbox.pass_time(1)
    await sandbox.pod("runs", **HERE)
    await sandbox.pod("terminates", **HERE)
    await sandbox.pod("elsewhere", **ELSEWHERE)
    everything = await names(sandbox)
    await sandbox.delete(PODS, "terminates")
    await sandbox.delete(NODES, NODE)
    await sandbox.pass_time(QUARANTINE - 1)
    assert await names(sandbox) == everything
    await sandbox.pass_time(1)
    assert await names(sandbox) == {"elsewhere"}


async def test_a_pod_that_a_finalizer_holds_has_failed_and_says_why(sandbox) -> None:
    await sandbox.pod("held", finalizers=["a.example/b"], **HERE)
    await sandbox.delete(NODES, NODE)
    await sandbox.pass_time(QUARANTINE)
    pod = await sandbox.get(PODS, "held")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 0
    assert pod["status"]["phase"] == "Failed"
    told = find_condition(pod["status"]["conditions"], "DisruptionTarget")
    assert (told["status"], told["reason"]) == ("True", "DeletionByPodGC")
    version = pod["metadata"]["resourceVersion"]
    await sandbox.pass_time(QUARANTINE)
    await sandbox.pass_time(QUARANTINE)
    assert (await sandbox.get(PODS, "held"))["metadata"]["resourceVersion"] == version


async def test_a_node_that_comes_back_in_time_keeps_its_pods(sandbox) -> None:
    await sandbox.pod("runs", **HERE)
    await sandbox.delete(NODES, NODE)
    await sandbox.pass_time(QUARANTINE - 1)
    await sandbox.create(NODES, simulated_node(0))
    await sandbox.pass_time(2)
    assert (await sandbox.get(PODS, "runs"))["status"]["phase"] == "Running"


async def test_a_pod_that_names_a_node_that_never_was_goes_too(sandbox) -> None:
    await sandbox.pod("lost", nodeName="nowhere")
    await sandbox.pass_time(QUARANTINE - 1)
    assert await names(sandbox) == {"lost"}
    await sandbox.pass_time(1)
    assert await names(sandbox) == set()


async def test_a_job_replaces_the_pods_of_a_deleted_node(sandbox) -> None:
    await sandbox.running_job(parallelism=4, completions=4, backoffLimit=9)
    await sandbox.delete(NODES, NODE)
    for _ in range(3):
        await sandbox.pass_time(QUARANTINE)
    pods = await sandbox.pods()
    running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    assert len(running) == 4
    assert {pod["spec"]["nodeName"] for pod in running} == {"simulated-node-1"}
