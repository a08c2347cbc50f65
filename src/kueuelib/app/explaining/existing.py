"""Refuses names that do not exist, as far as that can be seen."""

from __future__ import annotations

from kueuelib.api import kinds
from kueuelib.api.meta import ObjectKey
from kueuelib.app.explaining.gather import Lists
from kueuelib.app.explaining.subject import ObjectNotFound, missing


def insist_on_namespace(name: str, lists: Lists) -> None:
    """Refuses a namespace that does not exist.

    Args:
        name: empty for none.
        lists: the objects that were listed.

    Raises:
        ObjectNotFound: the name does not exist.
    """
    _insist(kinds.NAMESPACES.kind, ObjectKey("", name), lists)


def insist_on_queues(namespace: str, local_queue: str, cluster_queue: str, lists: Lists) -> None:
    """Refuses queues that do not exist.

    Args:
        namespace: of the LocalQueue.
        local_queue: empty for none.
        cluster_queue: the same.
        lists: the objects that were listed.

    Raises:
        ObjectNotFound: the name does not exist.
    """
    _insist("LocalQueue", ObjectKey(namespace, local_queue), lists)
    _insist("ClusterQueue", ObjectKey("", cluster_queue), lists)


def _insist(kind: str, key: ObjectKey, lists: Lists) -> None:
    known = sorted(
        obj["metadata"]["name"]
        for obj in lists.of(kind)
        if not key.namespace or obj["metadata"].get("namespace") == key.namespace
    )
    if key.name and kind in lists.objects and key.name not in known:
        raise ObjectNotFound(missing(kind, key, known))
