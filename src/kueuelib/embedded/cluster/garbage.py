"""Owners, and the effects of their deletion: the pure half of garbage collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey, Resource

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
