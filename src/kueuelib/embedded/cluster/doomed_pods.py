"""Deletes pods: old ones of too many that have ended, those whose node is gone, and those that do
not tolerate a taint.
"""

from __future__ import annotations

import asyncio
import contextlib
from heapq import nsmallest
from typing import Final

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.kinds import is_leaving
from kueuelib.embedded.cluster.owned_pods import is_deleted
from kueuelib.embedded.cluster.placement import ending_taints, eviction_due
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.embedded.subresources import disrupted_status
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Delta

ENDED_LIMIT: Final = 12_500
"""The default of `--terminated-pod-gc-threshold` of kube-controller-manager."""

PERIOD: Final = 20.0
"""Seconds between two looks, and between the end of a pod and its deletion: controllers must
count it first.
"""

_BATCH: Final = 50
_ALL: Final = ""


class EndedPods(SimulatedController[str]):
    """Deletes the oldest ended pods if there are too many.

    Args:
        parts: of the cluster.
        limit: how many ended pods are kept.
    """

    name = "ended pods"
    workers = 1

    def __init__(self, parts: ControllerTools, limit: int = ENDED_LIMIT) -> None:
        super().__init__(parts)
        self._limit = limit
        self._ended: dict[ObjectKey, float] = {}
        self._pods.add_handler(self._on_pod)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        if delta.new is None or not is_terminal(delta.new):
            self._ended.pop(delta.key, None)
        elif delta.key not in self._ended:
            self._ended[delta.key] = self._clock.now()
            if len(self._ended) == self._limit + 1:
                self.loop.add(_ALL, after=PERIOD)

    async def _reconcile(self, _: str) -> float | None:
        now = self._clock.now()
        surplus = len(self._ended) - self._limit
        settled = [key for key, since in self._ended.items() if since + PERIOD <= now]
        for number, key in enumerate(nsmallest(max(0, surplus), settled, self._age), 1):
            await self._delete(key)
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        return now + PERIOD if len(self._ended) > self._limit else None

    def _age(self, key: ObjectKey) -> tuple[str, ObjectKey]:
        pod = self._pods.get(key)
        return (pod["metadata"]["creationTimestamp"] if pod is not None else ""), key

    async def _delete(self, key: ObjectKey) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        with contextlib.suppress(NotFound, Conflict):  # replaced: the watch reports it
            await self._pods.delete(pod, grace_period=0)


QUARANTINE: Final = 40.0
"""How many seconds a node has to come back before its pods are deleted, as in
kube-controller-manager.
"""


class OrphanedPods(SimulatedController[ObjectKey]):
    """Deletes pods that are bound to a node that does not exist: no kubelet ends them."""

    name = "orphaned pods"

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._pods.add_handler(self._on_pod)
        self._nodes.add_handler(self._on_node)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        if delta.new is not None and self._is_orphaned(delta.new):
            self.loop.add(delta.key, after=QUARANTINE)

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.new is None:
            self.loop.add(*self._pods.on_node(delta.key.name), after=QUARANTINE)

    def _is_orphaned(self, pod: Obj) -> bool:
        meta, name = pod["metadata"], pod["spec"].get("nodeName")
        if not name or (is_deleted(pod) and not meta.get("deletionGracePeriodSeconds")):
            return False
        return self._nodes.get(ObjectKey("", name)) is None

    async def _reconcile(self, key: ObjectKey) -> None:
        pod = self._pods.get(key)
        if pod is None or not self._is_orphaned(pod):
            return
        if not is_terminal(pod):
            disruption = ("DeletionByPodGC", "PodGC: node no longer exists")
            status = {**disrupted_status(pod, *disruption, self._clock.now()), "phase": "Failed"}
            pod = await self._pods.update_status(pod, status)
        await self._pods.delete(pod, grace_period=0)


COMPONENT: Final = "taint-eviction-controller"


class Evictions(SimulatedController[ObjectKey]):
    """The taint eviction controller."""

    name = "eviction"

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._pods.add_handler(self._on_pod)
        self._nodes.add_handler(self._on_node)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        if delta.new is not None and self._due(delta.new) is not None:
            self.loop.add(delta.key)

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.new is None or not (taints := ending_taints(delta.new)):
            return
        if delta.old is not None and ending_taints(delta.old) == taints:
            return
        self.loop.add(*self._pods.on_node(delta.key.name))

    def _due(self, pod: Obj) -> float | None:
        name = pod["spec"].get("nodeName")
        if not name or is_leaving(pod) or is_terminal(pod):
            return None
        node = self._nodes.get(ObjectKey("", name))
        taints = [] if node is None else ending_taints(node)
        return eviction_due(pod, taints) if taints else None

    async def _reconcile(self, key: ObjectKey) -> float | None:
        pod = self._pods.get(key)
        due = None if pod is None else self._due(pod)
        if pod is None or due is None or due > self._clock.now():
            return due
        text = f"Marking for deletion Pod {key}"
        self._events.normal(pod, COMPONENT, "TaintManagerEviction", text)
        disruption = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        pod = await self._pods.update_status(
            pod, disrupted_status(pod, *disruption, self._clock.now())
        )
        await self._pods.delete(pod)
        return None
