"""Deletes pods that do not tolerate the taints of their nodes, or no longer."""

from __future__ import annotations

from typing import Final

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.embedded.cluster.clock import Clock
from kueuelib.embedded.cluster.events import Events
from kueuelib.embedded.cluster.loop import Loop
from kueuelib.embedded.cluster.mirror import Mirror, is_leaving
from kueuelib.embedded.cluster.pod_status import is_terminal
from kueuelib.embedded.cluster.taints import ending_taints, eviction_due
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import DeleteOptions
from kueuelib.machinery.store import Delta

COMPONENT: Final = "taint-eviction-controller"


class Evictions:
    """The taint eviction controller.

    Attributes:
        loop: the work queue; run it.
    """

    def __init__(
        self, service: ApiService, pods: Mirror, nodes: Mirror, clock: Clock, events: Events
    ) -> None:
        self._service = service
        self._pods = pods
        self._nodes = nodes
        self._clock = clock
        self._events = events
        self.loop: Loop[ObjectKey] = Loop("eviction", self._reconcile, clock, workers=4)
        pods.add_handler(self._on_pod)
        nodes.add_handler(self._on_node)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        if delta.new is not None and self._due(delta.new) is not None:
            self.loop.add(delta.key)

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.new is None or not (taints := ending_taints(delta.new)):
            return
        if delta.old is not None and ending_taints(delta.old) == taints:
            return
        name = delta.key.name
        for pod in self._pods.store.items():
            if pod["spec"].get("nodeName") == name:
                self.loop.add(key_of(pod))

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
        options = DeleteOptions(uid=pod["metadata"]["uid"])
        self._pods.written(await self._service.delete(PODS, key, options))
        return None
