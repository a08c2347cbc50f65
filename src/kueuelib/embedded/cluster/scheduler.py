"""The scheduler: binds pods to nodes, and says why if none fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.kinds import PERSISTENT_VOLUME_CLAIMS
from kueuelib.api.meta import Obj, ObjectKey, find_condition, with_raw_condition
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins.fields import listed, section
from kueuelib.embedded.builtins.resources import pod_requests
from kueuelib.embedded.cluster.contract import DEFAULT_SCHEDULER, SCHEDULER
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.kinds import gone
from kueuelib.embedded.cluster.placement import NodeChoice, NodeRoom, place, room_of
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.embedded.cluster.volumes import is_bound
from kueuelib.errors import ApiError
from kueuelib.machinery.store import Delta

Taken = tuple[str, dict[str, Quantity]]


def wants_node(pod: Mapping[str, Any]) -> bool:
    """Whether this scheduler has to place the pod."""
    spec = pod["spec"]
    return not (
        spec.get("nodeName")
        or listed(spec, "schedulingGates")
        or pod["metadata"].get("deletionTimestamp")
        or is_terminal(pod)
        or (spec.get("schedulerName") or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER
    )


def unschedulable(pod: Mapping[str, Any], message: str, now: float) -> Obj | None:
    """The status with the condition Unschedulable; None if it has it already."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or ()
    before = find_condition(conditions, "PodScheduled")
    said = ("False", "Unschedulable", message)
    if (before.get("status"), before.get("reason"), before.get("message")) == said:
        return None
    changed = with_raw_condition(
        conditions, "PodScheduled", False, "Unschedulable", message, now=now
    )
    return {**status, "conditions": changed}


class Scheduler(SimulatedController[ObjectKey]):
    """Places pods; those without a place wait for a change of the nodes or for room."""

    name = "scheduler"
    workers = 8

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._rooms: dict[str, NodeRoom] = {}
        self._taken: dict[str, Taken] = {}
        self._waiting: set[ObjectKey] = set()
        self._cramped: set[ObjectKey] = set()
        self._claims = parts.kinds.of(PERSISTENT_VOLUME_CLAIMS)
        self._claims.add_handler(lambda _: self.loop.add(*self._waiting))
        self._nodes.add_handler(self._on_node)
        self._pods.add_handler(self._on_pod)

    def _on_node(self, delta: Delta[Obj]) -> None:
        name = delta.key.name
        if delta.new is None:
            self._rooms.pop(name, None)
            return
        room = room_of(delta.new)
        for node, requests in self._taken.values():
            if node == name:
                room.take(requests)
        self._rooms[name] = room
        self.loop.add(*self._waiting)

    def _forget(self, key: ObjectKey) -> None:
        self._waiting.discard(key)
        self._cramped.discard(key)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        new = delta.new
        if ended := gone(delta):
            self._forget(delta.key)
            self._release(ended)
        if new is None:
            return
        if is_terminal(new):
            self._release(new["metadata"]["uid"])
        elif new["spec"].get("nodeName"):
            self._forget(delta.key)
            self._take(new["metadata"]["uid"], new["spec"]["nodeName"], new)
        elif wants_node(new):
            self.loop.add(delta.key, priority=new["spec"].get("priority") or 0)

    def _take(self, uid: str, node: str, pod: Mapping[str, Any]) -> None:
        if uid in self._taken:
            if self._taken[uid][0] == node:
                return
            self._release(uid)
        requests = pod_requests(pod["spec"])
        self._taken[uid] = (node, requests)
        room = self._rooms.get(node)
        if room is not None:
            room.take(requests)

    def _release(self, uid: str) -> None:
        taken = self._taken.pop(uid, None)
        if taken is None:
            return
        node, requests = taken
        room = self._rooms.get(node)
        if room is not None:
            room.give_back(requests)
            self.loop.add(*self._cramped)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        pod = self._pods.get(key)
        if pod is None or not wants_node(pod):
            self._forget(key)
            return None
        uid = pod["metadata"]["uid"]
        if uid in self._taken:
            return None
        if unclaimed := self._unclaimed(pod):
            count = len(self._nodes.store)
            placement = NodeChoice("", f"0/{count} nodes are available: {unclaimed}.")
        else:
            placement = place(pod, self._nodes.store.items(), self._rooms)
        if not placement.node:
            self._waiting.add(key)
            if placement.cramped:
                self._cramped.add(key)
            status = unschedulable(pod, placement.message, self._clock.now())
            if status is not None:
                await self._pods.update_status(pod, status, SCHEDULER)
                self._events.warning(pod, DEFAULT_SCHEDULER, "FailedScheduling", placement.message)
            return None
        self._take(uid, placement.node, pod)
        try:
            await self._service.bind(key, placement.node, uid=uid)
        except ApiError:
            self._release(uid)
            raise
        text = f"Successfully assigned {key} to {placement.node}"
        self._events.normal(pod, DEFAULT_SCHEDULER, "Scheduled", text)
        return None

    def _unclaimed(self, pod: Mapping[str, Any]) -> str:
        """Which claim keeps the pod from a node, in the words of the scheduler; empty if none."""
        for volume in listed(pod["spec"], "volumes"):
            name = section(volume, "persistentVolumeClaim").get("claimName")
            if not name:
                continue
            claim = self._claims.get(ObjectKey(pod["metadata"]["namespace"], name))
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim["metadata"].get("deletionTimestamp"):
                return f'persistentvolumeclaim "{name}" is being deleted'
            if not is_bound(claim):
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""
