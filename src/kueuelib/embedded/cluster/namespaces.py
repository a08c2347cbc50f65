"""The namespace controller: deletes the content of a doomed namespace, then lets it go."""

from __future__ import annotations

from kueuelib.api.kinds import EVENTS, NAMESPACES
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.builtins.core_rules import NAMESPACE_FINALIZER
from kueuelib.embedded.cluster.clock import Clock
from kueuelib.embedded.cluster.collector import Collector
from kueuelib.embedded.cluster.garbage import Node
from kueuelib.embedded.cluster.kinds import Kinds
from kueuelib.embedded.cluster.loop import Loop
from kueuelib.embedded.cluster.mirror import Mirror
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import DeleteOptions, Propagation
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Delta, DeltaKind


class NamespaceController:
    """Empties namespaces that are being deleted.

    Attributes:
        loop: the work queue, by name; run it.
    """

    def __init__(
        self, service: ApiService, kinds: Kinds, collector: Collector, clock: Clock
    ) -> None:
        self._service = service
        self._namespaces = kinds.of(NAMESPACES)
        self._collector = collector
        self._doomed: set[str] = set()
        self.loop: Loop[str] = Loop("namespace", self._reconcile, clock, workers=4)
        self._namespaces.add_handler(self._on_namespace)
        kinds.follow(self._follow)

    def _on_namespace(self, delta: Delta[Obj]) -> None:
        name = delta.key.name
        if delta.new is not None and delta.new["metadata"].get("deletionTimestamp"):
            self._doomed.add(name)
            self.loop.add(name)
        else:
            self._doomed.discard(name)

    def _follow(self, mirror: Mirror) -> None:
        if mirror.resource.namespaced:
            mirror.add_handler(self._on_content)

    def _on_content(self, delta: Delta[Obj]) -> None:
        """New content is deleted as well; the last deletion lets the namespace go."""
        name = delta.key.namespace
        if name not in self._doomed:
            return
        if delta.kind is DeltaKind.ADDED or self._collector.graph.is_empty(name):
            self.loop.add(name)

    async def _reconcile(self, name: str) -> float | None:
        namespace = self._namespaces.get(ObjectKey("", name))
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return None
        for node in self._collector.graph.content(name):
            if not node.deleted:
                await self._delete(node)
        if not self._collector.graph.is_empty(name):
            return None
        await self._service.delete_collection(EVENTS, name)
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        if NAMESPACE_FINALIZER in finalizers:
            rest = [found for found in finalizers if found != NAMESPACE_FINALIZER]
            spec = {**namespace["spec"], "finalizers": rest}
            finalized = {**namespace, "spec": spec}
            written = await self._service.update(NAMESPACES, finalized, subresource="finalize")
            self._namespaces.written(written)
        return None

    async def _delete(self, node: Node) -> None:
        options = DeleteOptions(uid=node.uid, propagation=Propagation.BACKGROUND)
        try:
            await self._service.delete(node.resource, node.key, options)
        except (NotFound, Conflict):
            return  # it is gone, or another object has its name: the watch tells
