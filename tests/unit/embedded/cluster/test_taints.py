"""Nodes that are not ready, and what becomes of their pods."""

from __future__ import annotations

import pytest

from kueuelib.api.kinds import EVENTS, LEASES, NODES, PODS
from kueuelib.api.meta import Obj, ObjectKey, find_condition, format_micro_time
from kueuelib.api.nodes import UNSCHEDULABLE
from kueuelib.embedded.cluster.placement import NOT_READY, UNREACHABLE

KEY = ObjectKey("", "simulated-node-0")
EVER = {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}
ANYWHERE = [{"operator": "Exists", "effect": "NoSchedule"}]


async def say(sandbox, status: str) -> None:
    node = await sandbox.get(NODES, KEY.name)
    others = [each for each in node["status"]["conditions"] if each["type"] != "Ready"]
    ready = {"type": "Ready", "status": status, "reason": "Test"}
    node["status"]["conditions"] = [*others, ready]
    await sandbox.service.update_status(NODES, node)
    await sandbox.settle()


async def taints(sandbox) -> list[tuple[str, str]]:
    node = await sandbox.get(NODES, KEY.name)
    return [(each["key"], each["effect"]) for each in node["spec"].get("taints") or ()]


@pytest.mark.parametrize(("status", "key"), [("False", NOT_READY), ("Unknown", UNREACHABLE)])
async def test_a_node_that_is_not_ready_has_taints_until_it_is(sandbox, status, key) -> None:
    own = [{"key": "mine", "effect": "PreferNoSchedule"}]
    await sandbox.service.patch(NODES, KEY, {"spec": {"taints": own}})
    await say(sandbox, status)
    expected = [("mine", "PreferNoSchedule"), (key, "NoSchedule"), (key, "NoExecute")]
    assert await taints(sandbox) == expected
    await say(sandbox, "True")
    assert await taints(sandbox) == [("mine", "PreferNoSchedule")]


async def test_a_cordon_and_pressure_are_taints_too(sandbox) -> None:
    await sandbox.service.patch(NODES, KEY, {"spec": {"unschedulable": True}})
    node = await sandbox.get(NODES, KEY.name)
    node["status"]["conditions"].append({"type": "DiskPressure", "status": "True"})
    await sandbox.service.update_status(NODES, node)
    await sandbox.settle()
    expected = [("node.kubernetes.io/disk-pressure", "NoSchedule"), (UNSCHEDULABLE, "NoSchedule")]
    assert await taints(sandbox) == expected


async def test_pods_leave_when_they_no_longer_tolerate_it(sandbox) -> None:
    on_it = {"kubernetes.io/hostname": KEY.name}
    wanted = {
        "default": [],
        "soon": [{**EVER, "tolerationSeconds": 10}],
        "stays": [EVER],
    }
    for name, tolerations in wanted.items():
        spec = {"nodeSelector": on_it, "tolerations": tolerations}
        await sandbox.pod(name, terminationGracePeriodSeconds=0, **spec)
    await say(sandbox, "False")
    for seconds, left in ((9, set(wanted)), (2, {"default", "stays"}), (280, {"default", "stays"})):
        await sandbox.pass_time(seconds)
        assert {each["metadata"]["name"] for each in await sandbox.pods()} == left
    await sandbox.pass_time(10)
    assert [each["metadata"]["name"] for each in await sandbox.pods()] == ["stays"]
    found = (await sandbox.service.list(EVENTS)).items
    assert sum(each["reason"] == "TaintManagerEviction" for each in found) == 2


async def test_a_pod_that_has_to_leave_says_why(sandbox) -> None:
    on_it = {"kubernetes.io/hostname": KEY.name}
    seconds = [{**EVER, "tolerationSeconds": 0}]
    await sandbox.pod("leaves", nodeSelector=on_it, tolerations=seconds)
    await say(sandbox, "False")
    await sandbox.pass_time(1)
    found = await sandbox.get(PODS, "leaves")
    assert found["metadata"]["deletionTimestamp"]
    told = [
        (each["type"], each["status"], each.get("reason")) for each in found["status"]["conditions"]
    ]
    assert ("DisruptionTarget", "True", "DeletionByTaintManager") in told


async def test_a_pod_that_tolerates_it_gets_there(sandbox) -> None:
    await say(sandbox, "False")
    on_it = {"kubernetes.io/hostname": KEY.name}
    await sandbox.pod("waits", nodeSelector=on_it)
    await sandbox.pod("comes", nodeSelector=on_it, tolerations=ANYWHERE)
    assert "nodeName" not in (await sandbox.get(PODS, "waits"))["spec"]
    assert (await sandbox.get(PODS, "comes"))["spec"]["nodeName"] == KEY.name
    await say(sandbox, "True")
    assert (await sandbox.get(PODS, "waits"))["spec"]["nodeName"] == KEY.name


async def test_a_node_that_does_not_renew_its_lease_is_unknown_until_it_returns(sandbox) -> None:
    name, ready = "real", [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    await sandbox.create(NODES, NODES.new(name, status={"conditions": ready}))
    at = format_micro_time(sandbox.clock.now())
    spec = {"holderIdentity": name, "renewTime": at}
    await sandbox.create(LEASES, LEASES.new(name, "kube-node-lease", spec=spec))

    async def states() -> tuple[str, list[str]]:
        node = await sandbox.get(NODES, name)
        (condition,) = node["status"]["conditions"]
        return condition["status"], [each["key"] for each in node["spec"].get("taints") or ()]

    await sandbox.pass_time(49)
    assert await states() == ("True", [])
    await sandbox.pass_time(2)
    assert await states() == ("Unknown", [UNREACHABLE, UNREACHABLE])
    key = ObjectKey("kube-node-lease", name)
    renewed = {"spec": {"renewTime": format_micro_time(sandbox.clock.now())}}
    await sandbox.service.patch(LEASES, key, renewed)
    node = await sandbox.get(NODES, name)
    await sandbox.service.update_status(NODES, {**node, "status": {"conditions": ready}})
    await sandbox.settle()
    assert await states() == ("True", [])


async def test_a_node_that_is_simulated_again_is_ready_again(sandbox) -> None:
    async def labelled(value: str | None) -> Obj:
        labels = {"metadata": {"labels": {"kueuelib.dev/simulated": value}}}
        await sandbox.service.patch(NODES, KEY, labels)
        await sandbox.pass_time(60)
        return await sandbox.get(NODES, KEY.name)

    before = await sandbox.get(NODES, KEY.name)
    lost = await labelled(None)
    assert find_condition(lost["status"]["conditions"], "Ready")["status"] == "Unknown"
    assert {each["key"] for each in lost["spec"]["taints"]} == {UNREACHABLE}
    back = await labelled("true")
    assert find_condition(back["status"]["conditions"], "Ready")["status"] == "True"
    assert "taints" not in back["spec"]
    assert back["status"]["addresses"] == before["status"]["addresses"]


async def test_a_user_who_makes_a_simulated_node_unknown_is_not_overruled(sandbox) -> None:
    node = await sandbox.get(NODES, KEY.name)
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    status = {**node["status"], "conditions": [unknown]}
    await sandbox.service.update_status(NODES, {**node, "status": status})
    await sandbox.pass_time(60)
    node = await sandbox.get(NODES, KEY.name)
    assert find_condition(node["status"]["conditions"], "Ready")["status"] == "Unknown"
