"""Kubelets: nodes are ready, and pods start at once and end as annotated or killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, find_condition, key_of
from kueuelib.embedded.builtins.fields import listed, section
from kueuelib.embedded.cluster.contract import CONTROLLERS, KILLED, KUBELET, problems
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.kinds import gone
from kueuelib.embedded.cluster.nodes import (
    LEASE_NAMESPACE,
    RENEW_SECONDS,
    is_lost,
    is_simulated,
    node_lease,
    node_status,
    ready_status,
    silent_at,
    unknown_status,
)
from kueuelib.embedded.cluster.placement import taints_of
from kueuelib.embedded.cluster.pod_life import (
    Action,
    PodStep,
    PodTimes,
    finished_status,
    is_terminal,
    next_step,
    remember,
    running_status,
)
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import AlreadyExists
from kueuelib.machinery.store import Delta

# ---- makes nodes with the label of simulated nodes ready, and keeps the taints of all nodes ------


class NodeKeeper(SimulatedController[ObjectKey]):
    """Reports simulated nodes as ready once, renews their Leases, and taints unhealthy nodes.

    Readiness is reported only once, so that a user may change it afterwards. Other nodes become
    unknown when they do not renew their Lease, and ready once they are simulated again.
    """

    name = "node"
    workers = 1

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._known = 0
        self._renewed: dict[ObjectKey, float] = {}
        self._returned: set[ObjectKey] = set()
        self._nodes.add_handler(self._on_node)
        self._leases = parts.kinds.of(LEASES)
        self._leases.add_handler(self._on_lease)

    def _on_lease(self, delta: Delta[Obj]) -> None:
        if delta.key.namespace == LEASE_NAMESPACE and delta.old is None:
            self.loop.add(ObjectKey("", delta.key.name))

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.new is None:
            self._renewed.pop(delta.key, None)
            self._returned.discard(delta.key)
            return
        if delta.old is not None and is_simulated(delta.new) and not is_simulated(delta.old):
            self._returned.add(delta.key)
        self.loop.add(delta.key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        node = self._nodes.get(key)
        if node is None:
            return None
        if not is_simulated(node):
            now, lease = self._clock.now(), self._leases.get(ObjectKey(LEASE_NAMESPACE, key.name))
            due = silent_at(node, lease)
            if due is not None and due <= now:
                node = await self._nodes.update_status(node, unknown_status(node, now), CONTROLLERS)
                due = None
            await self._taint(key, node)
            return due
        await self._renew(node)
        status = node.get("status") or {}
        if not find_condition(status.get("conditions"), "Ready"):
            self._known = max(self._known + 1, len(self._nodes.store))
            status = node_status(status, self._known, self._clock.now())
            node = await self._nodes.update_status(node, status, KUBELET)
        elif key in self._returned and is_lost(node):
            status = ready_status(status, self._clock.now())
            node = await self._nodes.update_status(node, status, KUBELET)
        self._returned.discard(key)
        await self._taint(key, node)
        return self._renewed[key] + RENEW_SECONDS

    async def _taint(self, key: ObjectKey, node: Obj) -> None:
        wanted = taints_of(node, self._clock.now())
        if wanted != listed(section(node, "spec"), "taints"):
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": {"taints": wanted or None}}
            await self._nodes.patch(key, patch)

    async def _renew(self, node: Obj) -> None:
        """Writes the Lease of a node if it is missing or old."""
        key, now = key_of(node), self._clock.now()
        if now < self._renewed.get(key, -RENEW_SECONDS) + RENEW_SECONDS:
            return
        lease = node_lease(node, now)
        options = WriteOptions(field_manager=KUBELET)
        try:
            await self._service.create(LEASES, lease, options=options)
        except AlreadyExists:
            spec = {"spec": lease["spec"]}
            await self._service.patch(LEASES, key_of(lease), spec, options=options)
        self._renewed[key] = now


# --------------------------------------------------------------------------------------------------


class Kubelet(SimulatedController[ObjectKey]):
    """The kubelets of all simulated nodes in one."""

    name = "kubelet"
    workers = 8

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._memories: dict[str, PodTimes] = {}
        self._complaints: dict[str, tuple[str, ...]] = {}
        self._addresses = 0
        self._pods.add_handler(self._on_pod)
        self._nodes.add_handler(self._on_node)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        if ended := gone(delta):
            self._memories.pop(ended, None)
            self._complaints.pop(ended, None)
        if delta.new is not None and delta.new["spec"].get("nodeName"):
            self.loop.add(delta.key)

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.old is None:
            self.loop.add(*self._pods.on_node(delta.key.name))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        pod = self._pods.get(key)
        if pod is None:
            return None
        node = self._nodes.get(ObjectKey("", pod["spec"].get("nodeName") or ""))
        if node is None or not is_simulated(node):
            return None
        now = self._clock.now()
        uid = pod["metadata"]["uid"]
        memory = self._memories[uid] = remember(pod, self._memories.get(uid), now)
        self._complain(pod, uid)
        step = next_step(pod, memory)
        if step.due is not None and step.due > now:
            return step.due
        await self._act(pod, node, step, now)
        return None

    def _complain(self, pod: Mapping[str, Any], uid: str) -> None:
        """Reports once what is wrong with the annotations of a pod."""
        if is_terminal(pod):
            return
        texts = problems(annotations_of(pod))
        if texts == self._complaints.get(uid, ()):
            return
        self._complaints[uid] = texts
        for text in texts:
            self._events.warning(pod, KUBELET, "InvalidAnnotation", text)

    async def _act(
        self, pod: Mapping[str, Any], node: Mapping[str, Any], step: PodStep, now: float
    ) -> None:
        match step.action:
            case Action.NOTHING:
                return
            case Action.START:
                status = running_status(pod, now, self._next_address(), _host(node))
            case Action.FINISH:
                status = finished_status(pod, step.code, now)
            case Action.EXPIRE:
                status = finished_status(pod, KILLED, now, "DeadlineExceeded")
            case Action.KILL:
                status = finished_status(pod, KILLED, now)
                for container in pod["spec"]["containers"]:
                    text = f"Stopping container {container['name']}"
                    self._events.normal(pod, KUBELET, "Killing", text)
            case Action.REMOVE:
                await self._pods.delete(pod, grace_period=0)
                return
        await self._pods.update_status(pod, status, KUBELET)

    def _next_address(self) -> str:
        self._addresses = (self._addresses + 1) % (2**23 - 2)
        number = self._addresses + 1
        return f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _host(node: Mapping[str, Any]) -> str:
    for address in (node.get("status") or {}).get("addresses") or ():
        if address.get("type") == "InternalIP":
            return str(address.get("address"))
    return "10.0.0.1"
