"""The garbage collector: background, foreground and orphaning deletion."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded.cluster.contract import CONTROLLERS
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.kinds import Mirror, gone
from kueuelib.embedded.verbs import DeleteOptions, Propagation, WriteOptions
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Delta

# ---- owners, and the effects of their deletion: the pure half of garbage collection --------------

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
PROTECTIONS = frozenset(("kubernetes.io/pv-protection", "kubernetes.io/pvc-protection"))


@attrs.frozen
class OwnerNode:
    """One object in the graph.

    Attributes:
        resource: its kind.
        key: its name.
        uid: its UID.
        owners: the raw owner references.
        finalizers: its finalizers.
        deleted: whether its deletion was requested.
    """

    resource: Resource
    key: ObjectKey
    uid: str
    owners: tuple[Mapping[str, Any], ...]
    finalizers: tuple[str, ...]
    deleted: bool

    @property
    def waits(self) -> bool:
        """Whether its deletion waits for its dependents."""
        return self.deleted and FOREGROUND in self.finalizers

    def blocks(self, owner: str) -> bool:
        """Whether a foreground deletion of the owner waits for this object."""
        return any(ref["uid"] == owner and ref.get("blockOwnerDeletion") for ref in self.owners)


def node_of(resource: Resource, key: ObjectKey, obj: Obj) -> OwnerNode:
    """The node of an object."""
    meta = obj["metadata"]
    return OwnerNode(
        resource,
        key,
        meta["uid"],
        tuple(meta.get("ownerReferences") or ()),
        tuple(meta.get("finalizers") or ()),
        bool(meta.get("deletionTimestamp")),
    )


class Graph:
    """All objects by UID, by owner, and by namespace."""

    def __init__(self) -> None:
        self._nodes: dict[str, OwnerNode] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._namespaces: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> OwnerNode | None:
        """The object with the UID."""
        return self._nodes.get(uid)

    def put(self, node: OwnerNode) -> None:
        """Adds or replaces an object."""
        self.remove(node.uid)
        self._nodes[node.uid] = node
        for ref in node.owners:
            self._dependents.setdefault(ref["uid"], {})[node.uid] = None
        if node.key.namespace:
            self._namespaces.setdefault(node.key.namespace, {})[node.uid] = None

    def remove(self, uid: str) -> OwnerNode | None:
        """Removes and returns an object."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return None
        for ref in node.owners:
            self._discard(self._dependents, ref["uid"], uid)
        if node.key.namespace:
            self._discard(self._namespaces, node.key.namespace, uid)
        return node

    @staticmethod
    def _discard(index: dict[str, dict[str, None]], key: str, uid: str) -> None:
        uids = index.get(key)
        if uids is not None:
            uids.pop(uid, None)
            if not uids:
                del index[key]

    def dependents(self, uid: str) -> Iterator[OwnerNode]:
        """The objects that name the UID as their owner."""
        for dependent in tuple(self._dependents.get(uid, ())):
            yield self._nodes[dependent]

    def content(self, namespace: str) -> Iterator[OwnerNode]:
        """The objects in a namespace."""
        for member in tuple(self._namespaces.get(namespace, ())):
            yield self._nodes[member]

    def is_empty(self, namespace: str) -> bool:
        """Whether a namespace is empty."""
        return namespace not in self._namespaces


def without_owners(node: OwnerNode, gone: frozenset[str]) -> Obj:
    """The merge patch that removes owners from an object."""
    kept = [dict(ref) for ref in node.owners if ref["uid"] not in gone]
    return {"metadata": {"uid": node.uid, "ownerReferences": kept or None}}


def unblocked(node: OwnerNode) -> Obj:
    """The merge patch after which no owner waits for an object."""
    owners = [{**ref, "blockOwnerDeletion": False} for ref in node.owners]
    return {"metadata": {"uid": node.uid, "ownerReferences": owners}}


def without_finalizer(node: OwnerNode, name: str) -> Obj:
    """The merge patch that removes a finalizer from an object."""
    kept = [finalizer for finalizer in node.finalizers if finalizer != name]
    return {"metadata": {"uid": node.uid, "finalizers": kept or None}}


# --------------------------------------------------------------------------------------------------

REMEMBERED = 2000
"""The number of deleted objects that are remembered, even if their kind is gone."""
_OURS = PROTECTIONS | {ORPHAN, FOREGROUND}


class Collector(SimulatedController[str]):
    """Deletes objects without owners, and executes deletions with dependents.

    Its keys are UIDs.

    Attributes:
        graph: the owners of objects.
    """

    name = "garbage"
    workers = 8

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self.graph = Graph()
        self._absent: dict[str, None] = {}
        parts.kinds.follow(self._follow)

    def _follow(self, mirror: Mirror) -> None:
        resource = mirror.resource

        def handle(delta: Delta[Obj]) -> None:
            self._observe(resource, delta)

        mirror.add_handler(handle)

    def _observe(self, resource: Resource, delta: Delta[Obj]) -> None:
        new = delta.new
        if ended := gone(delta):
            self._gone(ended)
        if new is None:
            return
        node = node_of(resource, delta.key, new)
        before = self.graph.get(node.uid)
        if before == node:
            return
        self.graph.put(node)
        if node.deleted:
            if not _OURS.isdisjoint(node.finalizers):
                self.loop.add(node.uid)
        elif node.owners and (before is None or before.owners != node.owners):
            if any(self.graph.get(ref["uid"]) is None for ref in node.owners):
                self.loop.add(node.uid)
            self._wake_doomed_owners(node)

    def _gone(self, uid: str) -> None:
        self._absent[uid] = None
        if len(self._absent) > REMEMBERED:
            del self._absent[next(iter(self._absent))]
        node = self.graph.remove(uid)
        self.loop.add(*(dependent.uid for dependent in self.graph.dependents(uid)))
        if node is not None:
            self._wake_doomed_owners(node)

    def _wake_doomed_owners(self, node: OwnerNode) -> None:
        for ref in node.owners:
            owner = self.graph.get(ref["uid"])
            if owner is not None and owner.waits:
                self.loop.add(owner.uid)

    async def _reconcile(self, uid: str) -> float | None:
        node = self.graph.get(uid)
        if node is None:
            return None
        if node.deleted and ORPHAN in node.finalizers:
            await self._orphan(node)
        elif node.waits:
            await self._delete_dependents(node)
        elif node.deleted and (protections := PROTECTIONS.intersection(node.finalizers)):
            await self._patch(node, without_finalizer(node, min(protections)))
        elif node.owners and not node.deleted:
            await self._collect(node)
        return None

    async def _collect(self, node: OwnerNode) -> None:
        """Deletes an object without living owners, or removes its dead owner references."""
        alive = await asyncio.gather(*(self._lives(node, ref) for ref in node.owners))
        gone = frozenset(
            ref["uid"] for ref, lives in zip(node.owners, alive, strict=True) if lives is False
        )
        if not gone:
            return
        if len(gone) < len({ref["uid"] for ref in node.owners}):
            await self._patch(node, without_owners(node, gone))
            return
        await self.delete(node, Propagation.BACKGROUND)

    async def _lives(self, node: OwnerNode, ref: Mapping[str, Any]) -> bool:
        """Whether an owner exists; one of an unknown kind counts as existing."""
        if self.graph.get(ref["uid"]) is not None:
            return True
        if ref["uid"] in self._absent:
            return False
        group = ref.get("apiVersion", "").rpartition("/")[0]
        resource = self._kinds.find(group, ref.get("kind", ""))
        if resource is None:
            return True
        namespace = node.key.namespace if resource.namespaced else ""
        if resource.namespaced and not namespace:
            return True
        try:
            owner = await self._service.get(resource, ObjectKey(namespace, ref.get("name", "")))
        except NotFound:
            return False
        return bool(owner["metadata"]["uid"] == ref["uid"])

    async def _orphan(self, node: OwnerNode) -> None:
        gone = frozenset((node.uid,))
        for dependent in self.graph.dependents(node.uid):
            await self._patch(dependent, without_owners(dependent, gone))
        await self._patch(node, without_finalizer(node, ORPHAN))

    async def _delete_dependents(self, node: OwnerNode) -> None:
        """Deletes dependents that block the owner; all others follow once the owner is gone.

        One whose own dependent waits already may be in a cycle, so the owner stops waiting for it.
        """
        blocking = [each for each in self.graph.dependents(node.uid) if each.blocks(node.uid)]
        for dependent in blocking:
            if not dependent.deleted:
                deep = tuple(self.graph.dependents(dependent.uid))
                if any(each.waits for each in deep):
                    await self._patch(dependent, unblocked(dependent))
                how = Propagation.FOREGROUND if deep else Propagation.BACKGROUND
                await self.delete(dependent, how)
        if not blocking:
            await self._patch(node, without_finalizer(node, FOREGROUND))

    async def delete(self, node: OwnerNode, propagation: Propagation) -> None:
        """Deletes an object, unless it is gone or replaced: the watch reports that."""
        options = DeleteOptions(uid=node.uid, propagation=propagation)
        with contextlib.suppress(NotFound, Conflict):
            await self._service.delete(node.resource, node.key, options)

    async def _patch(self, node: OwnerNode, body: Obj) -> None:
        with contextlib.suppress(NotFound):
            options = WriteOptions(field_manager=CONTROLLERS)
            await self._service.patch(node.resource, node.key, body, options=options)
