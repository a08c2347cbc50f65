"""Pods in the simulated cluster: placed, started, ended, killed."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import EVENTS, LEASES, NODES, PODS
from kueuelib.api.meta import find_condition
from kueuelib.embedded.schema.messages import json_fields

SIMPLE_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "small", "labels": {"kueuelib.dev/simulated": "true", "size": "small"}},
    "status": {
        "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


async def test_two_ready_nodes_exist_from_the_start(sandbox) -> None:
    nodes = (await sandbox.service.list(NODES)).items
    assert [node["metadata"]["labels"]["kueuelib.dev/pool"] for node in nodes] == [
        "on-demand",
        "spot",
    ]
    for node in nodes:
        assert node["metadata"]["labels"]["kueuelib.dev/simulated"] == "true"
        assert find_condition(node["status"]["conditions"], "Ready")["status"] == "True"


async def test_a_node_tells_everything_that_clients_take_for_granted(sandbox) -> None:
    """Clients that are generated from OpenAPI refuse a node that lacks one of these."""
    for node in (await sandbox.service.list(NODES)).items:
        info = node["status"]["nodeInfo"]
        needed = {field.name for field in json_fields("core.NodeSystemInfo")} - {"swap"}
        assert info.keys() == needed
        assert all(info.values())


async def test_a_pod_is_bound_and_runs_at_once(sandbox) -> None:
    await sandbox.pod(nodeSelector={"kueuelib.dev/pool": "spot"})
    pod = await sandbox.get(PODS, "pod")
    assert pod["spec"]["nodeName"] == "simulated-node-1"
    assert pod["status"]["phase"] == "Running"
    for name in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        assert find_condition(pod["status"]["conditions"], name)["status"] == "True"
    (container,) = pod["status"]["containerStatuses"]
    assert container["ready"] is True
    assert "running" in container["state"]
    assert pod["status"]["podIP"]
    await sandbox.pass_time(100_000)
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("code", "phase"), [(None, "Succeeded"), ("0", "Succeeded"), ("3", "Failed")]
)
async def test_annotations_end_a_pod(sandbox, code, phase) -> None:
    notes = {"kueuelib.dev/run-seconds": "2.5"}
    if code is not None:
        notes["kueuelib.dev/exit-code"] = code
    await sandbox.pod(annotations=notes)
    await sandbox.pass_time(2.4)
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"
    await sandbox.pass_time(0.2)
    pod = await sandbox.get(PODS, "pod")
    assert pod["status"]["phase"] == phase
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == int(code or 0)
    assert find_condition(pod["status"]["conditions"], "Ready")["status"] == "False"


async def test_annotations_may_come_while_the_pod_runs(sandbox) -> None:
    await sandbox.pod()
    await sandbox.pass_time(50)
    await sandbox.patch(
        PODS, "pod", {"metadata": {"annotations": {"kueuelib.dev/run-seconds": "5"}}}
    )
    await sandbox.pass_time(4)
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"
    await sandbox.pass_time(1)
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Succeeded"


async def test_annotations_that_are_no_numbers_are_ignored(sandbox) -> None:
    await sandbox.pod(annotations={"kueuelib.dev/run-seconds": "soon"})
    await sandbox.pass_time(1000)
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"


async def test_a_deleted_pod_runs_until_its_grace_period_is_over(sandbox) -> None:
    await sandbox.pod(terminationGracePeriodSeconds=10, finalizers=["example.com/keep"])
    await sandbox.delete(PODS, "pod")
    await sandbox.pass_time(9)
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"
    await sandbox.pass_time(2)
    pod = await sandbox.get(PODS, "pod")
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    for name in ("Ready", "ContainersReady"):
        found = find_condition(pod["status"]["conditions"], name)
        assert (found["status"], found["reason"]) == ("False", "PodFailed")
    await sandbox.patch(PODS, "pod", {"metadata": {"finalizers": None}})
    assert not await sandbox.exists(PODS, "pod")


@pytest.mark.parametrize("seconds", [2**40, 2**63 - 1])
async def test_a_grace_period_beyond_all_times_stops_nothing(sandbox, seconds) -> None:
    await sandbox.pod(terminationGracePeriodSeconds=seconds)
    await sandbox.delete(PODS, "pod")
    found = await sandbox.get(PODS, "pod")
    assert found["metadata"]["deletionTimestamp"] == "9999-12-31T23:59:59Z"
    await sandbox.pod("other")
    assert (await sandbox.get(PODS, "other"))["status"]["phase"] == "Running"


async def test_a_pod_that_ends_within_its_grace_period_keeps_its_result(sandbox) -> None:
    await sandbox.pod(
        annotations={"kueuelib.dev/run-seconds": "5"}, finalizers=["example.com/keep"]
    )
    await sandbox.delete(PODS, "pod")
    await sandbox.pass_time(5)
    pod = await sandbox.get(PODS, "pod")
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_pod_without_finalizers_is_removed_after_its_grace_period(sandbox) -> None:
    await sandbox.pod(terminationGracePeriodSeconds=10)
    await sandbox.delete(PODS, "pod")
    await sandbox.pass_time(11)
    assert not await sandbox.exists(PODS, "pod")


async def test_pods_that_were_never_bound_or_have_ended_are_removed_at_once(sandbox) -> None:
    await sandbox.pod("gated", schedulingGates=[{"name": "example.com/gate"}])
    await sandbox.delete(PODS, "gated")
    assert not await sandbox.exists(PODS, "gated")
    await sandbox.pod("done", annotations={"kueuelib.dev/run-seconds": "0"})
    await sandbox.delete(PODS, "done")
    assert not await sandbox.exists(PODS, "done")


async def test_a_gated_pod_says_so_and_is_bound_when_the_last_gate_goes(sandbox) -> None:
    await sandbox.pod(schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}])
    pod = await sandbox.get(PODS, "pod")
    found = find_condition(pod["status"]["conditions"], "PodScheduled")
    assert (found["status"], found["reason"]) == ("False", "SchedulingGated")
    await sandbox.patch(PODS, "pod", {"spec": {"schedulingGates": [{"name": "example.com/b"}]}})
    assert "nodeName" not in (await sandbox.get(PODS, "pod"))["spec"]
    await sandbox.patch(PODS, "pod", {"spec": {"schedulingGates": None}})
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"


async def test_a_pod_that_fits_nowhere_is_unschedulable_until_a_node_comes(sandbox) -> None:
    await sandbox.pod(nodeSelector={"size": "small"})
    pod = await sandbox.get(PODS, "pod")
    found = find_condition(pod["status"]["conditions"], "PodScheduled")
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    assert found["message"].startswith("0/2 nodes are available: 2 node(s) didn't match")
    await sandbox.create(NODES, SIMPLE_NODE)
    assert (await sandbox.get(PODS, "pod"))["spec"]["nodeName"] == "small"


async def test_a_pod_waits_for_room(sandbox) -> None:
    await sandbox.create(NODES, SIMPLE_NODE)
    resources = {"requests": {"cpu": "1500m"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    fields = {"nodeSelector": {"size": "small"}, "containers": containers}
    first = await sandbox.create(PODS, {**pod_of("first"), "spec": fields})
    await sandbox.create(PODS, {**pod_of("second"), "spec": fields})
    waiting = await sandbox.get(PODS, "second")
    found = find_condition(waiting["status"]["conditions"], "PodScheduled")
    assert "1 Insufficient cpu" in found["message"]
    await sandbox.finish(first)
    assert (await sandbox.get(PODS, "second"))["status"]["phase"] == "Running"


def pod_of(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
    }


async def test_pods_of_other_schedulers_and_nodes_are_left_alone(sandbox) -> None:
    await sandbox.pod("else", schedulerName="mine")
    assert "nodeName" not in (await sandbox.get(PODS, "else"))["spec"]
    node = {**SIMPLE_NODE, "metadata": {"name": "real"}}
    await sandbox.create(NODES, node)
    await sandbox.pod("there", nodeName="real")
    assert (await sandbox.get(PODS, "there"))["status"]["phase"] == "Pending"


async def test_a_pod_beyond_its_own_deadline_fails(sandbox) -> None:
    await sandbox.pod(activeDeadlineSeconds=10)
    await sandbox.pass_time(10)
    pod = await sandbox.get(PODS, "pod")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


async def test_a_node_with_the_label_of_simulated_ones_is_made_ready(sandbox) -> None:
    meta = {"name": "mine", "labels": {"kueuelib.dev/simulated": "true", "mine": "yes"}}
    capacity = {"cpu": "3", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"capacity": capacity}}
    await sandbox.create(NODES, node)
    found = await sandbox.get(NODES, "mine")
    assert find_condition(found["status"]["conditions"], "Ready")["status"] == "True"
    assert found["status"]["allocatable"] == capacity
    await sandbox.pod(nodeSelector={"mine": "yes"})
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"


async def test_a_cordoned_node_gets_no_pods(sandbox) -> None:
    for name in ("simulated-node-0", "simulated-node-1"):
        await sandbox.patch(NODES, name, {"spec": {"unschedulable": True}})
    await sandbox.pod()
    pod = await sandbox.get(PODS, "pod")
    found = find_condition(pod["status"]["conditions"], "PodScheduled")
    assert found["message"] == "0/2 nodes are available: 2 node(s) were unschedulable."
    await sandbox.patch(NODES, "simulated-node-1", {"spec": {"unschedulable": None}})
    assert (await sandbox.get(PODS, "pod"))["spec"]["nodeName"] == "simulated-node-1"


async def test_simulated_nodes_have_leases_and_renew_them(sandbox) -> None:
    async def lease() -> dict:
        return await sandbox.get(LEASES, "simulated-node-0", "kube-node-lease")

    await sandbox.settle()
    first = await lease()
    node = await sandbox.get(NODES, "simulated-node-0")
    assert first["spec"]["holderIdentity"] == "simulated-node-0"
    assert first["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    await sandbox.pass_time(1200)
    assert (await lease())["spec"]["renewTime"] > first["spec"]["renewTime"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run-seconds", "1m"),
        ("run-seconds", "-5"),
        ("run-seconds", "nan"),
        ("run-seconds", "inf"),
        ("exit-code", "x"),
        ("exit-code", "999"),
        ("exit-code", "-1"),
    ],
)
async def test_an_annotation_that_cannot_be_read_is_told_once(sandbox, name, text):
    await sandbox.pod(annotations={f"kueuelib.dev/{name}": text})
    await sandbox.pass_time(60)
    (event,) = [
        each
        for each in (await sandbox.service.list(EVENTS)).items
        if each["reason"] == "InvalidAnnotation"
    ]
    assert event["type"] == "Warning"
    assert f"kueuelib.dev/{name}: {text!r} is not " in event["message"]
    assert event.get("count", 1) == 1
    assert (await sandbox.get(PODS, "pod"))["status"]["phase"] == "Running"
