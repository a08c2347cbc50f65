"""Refuses names that do not exist, as far as that can be seen."""

from __future__ import annotations

from kueuelib.api import kinds
from kueuelib.api.meta import ObjectKey
from kueuelib.app.explaining.gather import Lists
from kueuelib.errors import KueuelibError


class ObjectNotFound(KueuelibError):
    """The object that was asked about does not exist."""


def missing(kind: str, key: ObjectKey, known: list[str]) -> str:
    """The error for an object that does not exist; it names those that do.

    Args:
        kind: its kind.
        key: the object.
        known: the names of those in its namespace, or in the cluster.
    """
    where = f" in namespace {key.namespace}" if key.namespace else ""
    text = f"{kind} {key.name} does not exist{where}"
    if not known and key.namespace:
        return f"{text}, which has no {kind}s; choose another namespace with -n"
    if not known:
        return f"{text}; the cluster has no {kind}s"
    more = ", ..." if len(known) > 5 else ""
    return f"{text}; there are {', '.join(known[:5])}{more}"


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
