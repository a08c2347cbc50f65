"""What begins and ends a namespace: its ServiceAccount, and the deletion of its content."""

from __future__ import annotations

import contextlib

from kueuelib.api.kinds import EVENTS, NAMESPACES, SERVICE_ACCOUNTS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.builtins.core_rules import NAMESPACE_FINALIZER
from kueuelib.embedded.cluster.collector import Collector
from kueuelib.embedded.cluster.contract import CONTROLLERS
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.kinds import Mirror
from kueuelib.embedded.verbs import Propagation, WriteOptions
from kueuelib.errors import AlreadyExists
from kueuelib.machinery.store import Delta, DeltaKind


class NamespaceController(SimulatedController[str]):
    """Empties namespaces that are being deleted.

    Args:
        parts: of the cluster.
        collector: knows the content of namespaces.
    """

    name = "namespace"

    def __init__(self, parts: ControllerTools, collector: Collector) -> None:
        super().__init__(parts)
        self._collector = collector
        self._doomed: set[str] = set()
        self._namespaces.add_handler(self._on_namespace)
        parts.kinds.follow(self._follow)

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
        """Deletes new content as well; the last deletion finalizes the namespace."""
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
                await self._collector.delete(node, Propagation.BACKGROUND)
        if not self._collector.graph.is_empty(name):
            return None
        await self._service.delete_collection(EVENTS, name)
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        if NAMESPACE_FINALIZER in finalizers:
            rest = [finalizer for finalizer in finalizers if finalizer != NAMESPACE_FINALIZER]
            spec = {**namespace["spec"], "finalizers": rest}
            finalized = {**namespace, "spec": spec}
            options = WriteOptions(field_manager=CONTROLLERS)
            written = await self._service.update(
                NAMESPACES, finalized, subresource="finalize", options=options
            )
            self._namespaces.written(written)
        return None


DEFAULT = "default"


class AccountController(SimulatedController[str]):
    """Creates the account, again if it is deleted; its keys are namespaces."""

    name = "serviceaccount"
    workers = 2

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._accounts = parts.kinds.of(SERVICE_ACCOUNTS)
        self._namespaces.add_handler(self._on_namespace)
        self._accounts.add_handler(self._on_account)

    def _on_namespace(self, delta: Delta[Obj]) -> None:
        if delta.new is not None:
            self.loop.add(delta.key.name)

    def _on_account(self, delta: Delta[Obj]) -> None:
        if delta.new is None and delta.key.name == DEFAULT:
            self.loop.add(delta.key.namespace)

    async def _reconcile(self, namespace: str) -> float | None:
        obj = self._namespaces.get(ObjectKey("", namespace))
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        if self._accounts.get(ObjectKey(namespace, DEFAULT)) is not None:
            return None
        with contextlib.suppress(AlreadyExists):
            await self._service.create(SERVICE_ACCOUNTS, SERVICE_ACCOUNTS.new(DEFAULT, namespace))
        return None
