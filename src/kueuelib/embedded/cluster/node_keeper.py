"""Makes nodes that users add with the label of simulated nodes as ready as the first ones."""

from __future__ import annotations

from kueuelib.api.kinds import NODES
from kueuelib.api.meta import Obj, ObjectKey, find_condition
from kueuelib.embedded.cluster.clock import Clock
from kueuelib.embedded.cluster.loop import Loop
from kueuelib.embedded.cluster.mirror import Mirror
from kueuelib.embedded.cluster.nodes import is_simulated, node_status
from kueuelib.embedded.service import ApiService
from kueuelib.machinery.store import Delta


class NodeKeeper:
    """Reports simulated nodes as ready once; a user may say otherwise afterwards.

    Attributes:
        loop: the work queue; run it.
    """

    def __init__(self, service: ApiService, nodes: Mirror, clock: Clock) -> None:
        self._service = service
        self._nodes = nodes
        self._clock = clock
        self._known = 0
        self.loop: Loop[ObjectKey] = Loop("node", self._reconcile, clock, workers=1)
        nodes.add_handler(self._on_node)

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.new is not None:
            self.loop.add(delta.key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        node = self._nodes.get(key)
        if node is None or not is_simulated(node):
            return None
        status = node.get("status") or {}
        if not find_condition(status.get("conditions"), "Ready"):
            self._known = max(self._known + 1, len(self._nodes.store))
            status = node_status(status, self._known, self._clock.now())
            self._nodes.written(
                await self._service.update_status(NODES, {**node, "status": status})
            )
        return None
