"""Makes nodes with the label of simulated nodes ready, and keeps the taints of all nodes."""

from __future__ import annotations

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import Obj, ObjectKey, find_condition, key_of
from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.embedded.cluster.contract import KUBELET
from kueuelib.embedded.cluster.controller import Controller, Parts
from kueuelib.embedded.cluster.nodes import RENEW_SECONDS, is_simulated, node_lease, node_status
from kueuelib.embedded.cluster.taints import taints_of
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import AlreadyExists
from kueuelib.machinery.store import Delta


class NodeKeeper(Controller[ObjectKey]):
    """Reports simulated nodes as ready once, renews their Leases, and taints unhealthy nodes.

    Readiness is reported only once, so that a user may change it afterwards.
    """

    name = "node"
    workers = 1

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._known = 0
        self._renewed: dict[ObjectKey, float] = {}
        self._nodes.add_handler(self._on_node)

    def _on_node(self, delta: Delta[Obj]) -> None:
        if delta.new is None:
            self._renewed.pop(delta.key, None)
        else:
            self.loop.add(delta.key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        node = self._nodes.get(key)
        if node is None:
            return None
        if not is_simulated(node):
            await self._taint(key, node)
            return None
        await self._renew(node)
        status = node.get("status") or {}
        if not find_condition(status.get("conditions"), "Ready"):
            self._known = max(self._known + 1, len(self._nodes.store))
            status = node_status(status, self._known, self._clock.now())
            node = await self._nodes.update_status(node, status, KUBELET)
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
