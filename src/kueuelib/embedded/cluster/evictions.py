"""Deletes pods that do not, or no longer, tolerate the taints of their nodes."""

from __future__ import annotations

from typing import Final

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.cluster.controller import Controller, Parts
from kueuelib.embedded.cluster.mirror import is_leaving
from kueuelib.embedded.cluster.pod_status import is_terminal
from kueuelib.embedded.cluster.taints import ending_taints, eviction_due
from kueuelib.machinery.store import Delta

COMPONENT: Final = "taint-eviction-controller"


class Evictions(Controller[ObjectKey]):
    """The taint eviction controller."""

    name = "eviction"

    def __init__(self, parts: Parts) -> None:
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
        await self._pods.delete(pod)
        return None
