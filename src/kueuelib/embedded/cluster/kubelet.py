"""Kubelets: pods on simulated nodes start at once, end as their annotations say, are killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, ObjectKey, annotations_of
from kueuelib.embedded.cluster.clock import Clock
from kueuelib.embedded.cluster.contract import KILLED, problems
from kueuelib.embedded.cluster.events import Events
from kueuelib.embedded.cluster.loop import Loop
from kueuelib.embedded.cluster.mirror import Mirror
from kueuelib.embedded.cluster.nodes import is_simulated
from kueuelib.embedded.cluster.pod_life import Action, Memory, Step, next_step, remember
from kueuelib.embedded.cluster.pod_status import (
    finished_status,
    is_terminal,
    killed_status,
    running_status,
)
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import DeleteOptions
from kueuelib.machinery.store import Delta


class Kubelet:
    """The kubelets of all simulated nodes in one.

    Attributes:
        loop: the work queue; run it.
    """

    def __init__(
        self, service: ApiService, pods: Mirror, nodes: Mirror, clock: Clock, events: Events
    ) -> None:
        self._events = events
        self._service = service
        self._pods = pods
        self._nodes = nodes
        self._clock = clock
        self._memories: dict[str, Memory] = {}
        self._complaints: dict[str, tuple[str, ...]] = {}
        self._addresses = 0
        self.loop: Loop[ObjectKey] = Loop("kubelet", self._reconcile, clock, workers=8)
        pods.add_handler(self._on_pod)
        nodes.add_handler(self._on_node)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        if delta.old is not None and (
            delta.new is None or delta.new["metadata"]["uid"] != delta.old["metadata"]["uid"]
        ):
            self._memories.pop(delta.old["metadata"]["uid"], None)
            self._complaints.pop(delta.old["metadata"]["uid"], None)
        if delta.new is not None and delta.new["spec"].get("nodeName"):
            self.loop.add(delta.key)

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.old is None:
            name = delta.key.name
            self.loop.add(
                *(
                    ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
                    for pod in self._pods.store.items()
                    if pod["spec"].get("nodeName") == name
                )
            )

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
        """Tells once what is wrong with the annotations that say how a pod goes on."""
        if is_terminal(pod):
            return
        found = problems(annotations_of(pod))
        if found == self._complaints.get(uid, ()):
            return
        self._complaints[uid] = found
        for text in found:
            self._events.warning(pod, "kubelet", "InvalidAnnotation", text)

    async def _act(
        self, pod: Mapping[str, Any], node: Mapping[str, Any], step: Step, now: float
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
                status = killed_status(pod, now)
                for container in pod["spec"]["containers"]:
                    text = f"Stopping container {container['name']}"
                    self._events.normal(pod, "kubelet", "Killing", text)
            case Action.REMOVE:
                await self._remove(pod)
                return
        written = await self._service.update_status(PODS, {**pod, "status": status})
        self._pods.written(written)

    async def _remove(self, pod: Mapping[str, Any]) -> None:
        meta = pod["metadata"]
        key = ObjectKey(meta["namespace"], meta["name"])
        options = DeleteOptions(grace_period=0, uid=meta["uid"])
        self._pods.written(await self._service.delete(PODS, key, options))

    def _next_address(self) -> str:
        self._addresses = (self._addresses + 1) % (2**23 - 2)
        number = self._addresses + 1
        return f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _host(node: Mapping[str, Any]) -> str:
    for found in (node.get("status") or {}).get("addresses") or ():
        if found.get("type") == "InternalIP":
            return str(found.get("address"))
    return "10.0.0.1"
