"""Workloads name the nodes that they lost, and pods that wait for such a node end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib.api.kinds import EVENTS, NODES, PODS, WORKLOADS
from kueuelib.api.meta import ObjectKey, find_condition, format_time
from kueuelib.controllers.node_failures import PAUSE, NodeFailureReconciler
from kueuelib.errors import ApiError, Conflict, Forbidden, NotFound, ServerError
from kueuelib.runtime.client import Client
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.queries import PatchType
from kueuelib.scheduler.settings import NOT_READY_SECONDS, NodeFailureRules

from .test_nodes import RACK, cluster, hosts_of, job
from .test_ungater import KEY, workload

if TYPE_CHECKING:
    from .conftest import World

Obj = dict[str, Any]
HOST, KUEUE = "kubernetes.io/hostname", "kueue.x-k8s.io"
NODE = "rack-0-node-0"


async def pod(world: World, name: str, host: str, *, bound: bool = True) -> None:
    meta = {
        "name": name,
        "namespace": "default",
        "labels": {f"{KUEUE}/podset": "main"},
        "annotations": {f"{KUEUE}/workload": "wl", f"{KUEUE}/podset-required-topology": RACK},
    }
    spec: Obj = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {HOST: host}}
    if bound:
        spec["nodeName"] = host
    await world.client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    )


async def ready(world: World, status: str) -> None:
    node = await world.get(NODES, NODE)
    conditions = [{**one, "status": status} for one in node["status"]["conditions"]]
    await world.patch(NODES, NODE, {"status": {"conditions": conditions}}, subresource="status")


async def placed(world: World, count: int = 2) -> None:
    """A Workload with all its pods on one of two nodes."""
    await job(world, "wl", count, required=RACK)
    (one,) = await hosts_of(world, "wl")
    assert one["valuesPerLevel"] == [{"universal": NODE}]


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The unhealthy nodes of each write of a Workload's status that names any."""
    found: list[list[str]] = []
    patch = Client.patch

    async def noted(
        self: Any, resource: Any, key: ObjectKey, body: Any, *more: Any, **kw: Any
    ) -> Any:
        answer = await patch(self, resource, key, body, *more, **kw)
        named = (body.get("status") or {}).get("unhealthyNodes") if resource == WORKLOADS else None
        if named:
            found.append([one["name"] for one in named])
        return answer

    monkeypatch.setattr(Client, "patch", noted)
    return found


async def test_a_node_that_is_gone_is_named_though_a_pod_seems_to_run_there(
    world: World, marks: list[list[str]]
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
        await pod(world, "p", NODE)
        await world.delete(NODES, NODE)
        await world.until(lambda: marks == [[NODE]])


async def test_a_node_that_is_not_ready_is_named_once_its_pods_leave(
    world: World, marks: list[list[str]]
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
        await pod(world, "runs", NODE)
        await ready(world, "Unknown")
        await pod(world, "waits", NODE, bound=False)

        async def ended() -> bool:
            waits = await world.get(PODS, "waits", "default")
            told = find_condition(waits["status"].get("conditions"), "TerminatedByKueue")
            assert told["reason"] == "UnschedulableOnAssignedNode"
            assert (told["status"], waits["status"]["phase"]) == ("True", "Failed")
            events = (await world.client.list(EVENTS, "default")).items
            return any(one["reason"] == "PodTerminatedByKueue" for one in events)

        await world.until(ended)
        assert marks == []
        await world.client.delete(PODS, ObjectKey("default", "runs"), grace_period=0)
        await world.until(lambda: marks == [[NODE]])


async def test_nodes_that_may_not_be_read_are_not_taken_for_gone(
    world: World, marks: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
    listed = Client.list

    async def forbidden(self: Any, resource: Any, *args: Any, **more: Any) -> Any:
        if resource == NODES:
            raise Forbidden("nodes is forbidden")
        return await listed(self, resource, *args, **more)

    monkeypatch.setattr(Client, "list", forbidden)
    async with world.running():
        await world.workload("other")
        await world.is_("other", "QuotaReserved", "False")
        assert marks == []


@pytest.mark.parametrize("error", [ServerError("try again"), Forbidden("not now")])
async def test_a_refused_write_is_repeated(
    world: World, marks: list[list[str]], monkeypatch: pytest.MonkeyPatch, error: ApiError
) -> None:
    await cluster(world, "1x2")
    patch, failures = Client.patch, [error, error]

    async def failing(self: Any, resource: Any, key: Any, body: Any, *more: Any, **kw: Any) -> Any:
        status = (body.get("status") or {}) if more and more[0] is PatchType.APPLY else {}
        if resource == WORKLOADS and status.get("unhealthyNodes") and failures:
            raise failures.pop()
        return await patch(self, resource, key, body, *more, **kw)

    async with world.running():
        await placed(world)
        monkeypatch.setattr(Client, "patch", failing)
        await world.delete(NODES, NODE)
        await world.until(lambda: marks == [[NODE]])


async def test_what_was_missed_while_no_manager_ran_is_made_up_for(
    world: World, marks: list[list[str]]
) -> None:
    await cluster(world, "1x2")
    async with world.running():
        await placed(world)
    await world.patch(NODES, NODE, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})
    async with world.running():
        await world.until(lambda: marks == [[NODE]])


NOW = 1_704_067_200.0
CLOSED = {"key": "closed", "effect": "NoSchedule"}
TOLERATED = {"key": "closed", "operator": "Exists"}


class Shell:
    """What looks at the node of a Workload, and what it writes."""

    def __init__(self, node: Obj, *pods: Obj, **rules: bool) -> None:
        self.wl = workload(("a", 1))
        self.wl["metadata"] |= {"uid": "u", "resourceVersion": "7"}
        self.wl["spec"]["podSets"][0]["template"] = {"spec": {}}
        self.wl["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "f"}
        self.flavor: Obj = {"metadata": {"name": "f"}, "spec": {"topologyName": "t"}}
        self.bodies: list[Obj] = []
        self.refused = False
        labels, name = node["metadata"].get("labels") or {}, node["metadata"]["name"]
        hosts = {labels.get(HOST): (node,)}
        nodes = stored({ObjectKey("", name): node}, lambda _, host: hosts.get(host, ()))
        flavors = stored({ObjectKey("", "f"): self.flavor})
        held = stored({}, lambda *_: pods)
        client: Any = SimpleNamespace(patch=self.patch)
        none: Any = SimpleNamespace(learn=id, learn_gone=id, event=lambda *_, **__: None)
        clock: Any = SimpleNamespace(now=lambda: NOW)
        of_rules = NodeFailureRules(**rules)
        self.reconciler = NodeFailureReconciler(
            client, stored({KEY: self.wl}), flavors, nodes, held, none, none, none,
            rules=of_rules, clock=clock,
        )  # fmt: skip

    async def patch(self, resource: Any, key: ObjectKey, body: Obj, *_: Any, **__: Any) -> Obj:
        del key
        self.bodies.append(body)
        if self.refused:
            raise Conflict("changed") if resource == WORKLOADS else NotFound("gone")
        return self.wl

    async def failed(self) -> bool:
        """Whether the Workload names its node as failed."""
        await self.reconciler.reconcile(KEY)
        return any("unhealthyNodes" in body["status"] for body in self.bodies)


def stored(objects: dict[ObjectKey, Obj], by_index: Any = None) -> Any:
    async def refresh(key: ObjectKey) -> Obj | None:
        return objects.get(key)

    store = SimpleNamespace(get=objects.get, by_index=by_index, items=objects.values)
    quiet = {"learn": lambda *_, **__: None, "add_index": lambda *_: None, "synced": True}
    return SimpleNamespace(store=store, refresh=refresh, **quiet)


def at(name: str, ready: str, *taints: Obj, labels: Obj | None = None, age: float = 0) -> Obj:
    since = format_time(NOW - age)
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    meta = {"name": name, "labels": {HOST: name} if labels is None else labels}
    return {
        "metadata": meta,
        "spec": {"taints": [*taints]},
        "status": {"conditions": [condition]},
    }


async def test_a_node_that_lost_its_label_is_not_gone() -> None:
    assert not await Shell(at("a", "True", labels={})).failed()
    assert await Shell(at("b", "True", labels={})).failed()


@pytest.mark.parametrize("where", ["nowhere", "template", "flavor", "check", "other pod set"])
async def test_a_taint_counts_unless_template_flavor_or_check_tolerates_it(where: str) -> None:
    shell = Shell(at("a", "True", CLOSED))
    if where == "template":
        shell.wl["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = [TOLERATED]
    elif where == "flavor":
        shell.flavor["spec"]["tolerations"] = [TOLERATED]
    elif where in ("check", "other pod set"):
        name = "main" if where == "check" else "other"
        update = {"name": name, "tolerations": [TOLERATED]}
        check = {"name": "c", "state": "Ready", "podSetUpdates": [update]}
        shell.wl["status"]["admissionChecks"] = [check]
    assert await shell.failed() == (where in ("nowhere", "other pod set"))


async def test_a_node_is_looked_at_again_when_it_has_not_been_ready_for_too_long() -> None:
    shell = Shell(at("a", "False", age=10), waits_for_pods=False)
    again = Result(requeue_after=NOT_READY_SECONDS - 10)
    assert await shell.reconciler.reconcile(KEY) == again
    assert shell.bodies == []


async def test_a_failure_that_meets_conflicts_is_written_later() -> None:
    shell = Shell(at("b", "True"))
    shell.refused = True
    assert await shell.reconciler.reconcile(KEY) == Result(requeue_after=PAUSE)


async def test_only_the_pod_that_was_seen_ends() -> None:
    meta = {
        "name": "p",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "3",
        "labels": {f"{KUEUE}/podset": "main"},
    }
    waits = {"metadata": meta, "spec": {"nodeSelector": {HOST: "x"}}}
    shell = Shell(at("a", "True"), waits)
    assert await shell.reconciler.reconcile(KEY) == DONE
    (body,) = shell.bodies
    assert body["metadata"] == {"uid": "u", "resourceVersion": "3"}
    assert body["status"]["phase"] == "Failed"
