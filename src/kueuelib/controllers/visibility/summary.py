"""The answers of the visibility API, as raw objects; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.errors import BadRequest
from kueuelib.scheduler.pending.workload_info import WorkloadInfo

GROUP = "visibility.kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""The preferred one first; both have the same form."""
SUBRESOURCE = "pendingworkloads"
KINDS: Mapping[str, tuple[str, bool]] = {
    "clusterqueues": ("ClusterQueue", False),
    "localqueues": ("LocalQueue", True),
}
"""Kind, and whether it is namespaced, by plural."""
DEFAULT_LIMIT = 1000
MOST = 100_000
"""Workloads in one answer at most, as upstream."""


@attrs.frozen
class PendingPage:
    """The requested part of a queue.

    Attributes:
        offset: how many Workloads to skip from the front.
        limit: how many are listed at most.
    """

    offset: int = 0
    limit: int = DEFAULT_LIMIT


def page_of(query: Mapping[str, str]) -> PendingPage:
    """The page that the parameters of a request ask for.

    Args:
        query: `offset` and `limit`, others are ignored; a limit of 0 is the default.

    Raises:
        BadRequest: one of them is not a number, or below 0.
    """
    numbers = {name: _number(name, query.get(name, "")) for name in ("offset", "limit")}
    return PendingPage(numbers["offset"], min(numbers["limit"] or DEFAULT_LIMIT, MOST))


def _number(name: str, text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"{name}: {text!r} is not a number of Workloads: give 0 or more")
    return int(text)


def summary(
    version: str,
    waiting: Iterable[WorkloadInfo],
    page: PendingPage,
    local_queue: ObjectKey | None = None,
) -> Obj:
    """A `PendingWorkloadsSummary`.

    Args:
        version: of the answer.
        waiting: the Workloads that wait in a ClusterQueue, in its order.
        page: which part.
        local_queue: list only those of this LocalQueue; all when None.
    """
    items = _items(waiting, local_queue)
    listed = [one for number, one in enumerate(items) if page.offset <= number][: page.limit]
    return {
        "kind": "PendingWorkloadsSummary",
        "apiVersion": f"{GROUP}/{version}",
        "metadata": {},
        "items": listed,
    }


def _items(waiting: Iterable[WorkloadInfo], local_queue: ObjectKey | None) -> Iterator[Obj]:
    """The Workloads of the queue, with their positions from 0."""
    counts: dict[ObjectKey, int] = {}
    for place, info in enumerate(waiting):
        queue = ObjectKey(info.key.namespace, info.workload.spec.queue_name)
        local = counts.get(queue, 0)
        counts[queue] = local + 1
        if local_queue in (None, queue):
            yield _item(info, place, local)


def _item(info: WorkloadInfo, place: int, local: int) -> Obj:
    workload = info.workload
    meta = workload.metadata
    shown: Obj = {"name": meta.name, "namespace": meta.namespace}
    if meta.creation_timestamp is not None:
        shown["creationTimestamp"] = format_time(meta.creation_timestamp)
    owners = [
        {"apiVersion": one.api_version, "kind": one.kind, "name": one.name, "uid": one.uid}
        for one in meta.owner_references
    ]
    if owners:
        shown["ownerReferences"] = owners
    return {
        "metadata": shown,
        "priority": workload.spec.priority or 0,
        "localQueueName": workload.spec.queue_name,
        "positionInClusterQueue": place,
        "positionInLocalQueue": local,
    }


# --- discovery


def api_group() -> Obj:
    """`/apis/visibility.kueue.x-k8s.io`."""
    versions = [{"groupVersion": f"{GROUP}/{name}", "version": name} for name in VERSIONS]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def api_groups() -> Obj:
    """`/apis`."""
    group = {key: value for key, value in api_group().items() if key not in ("kind", "apiVersion")}
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}


def api_resources(version: str) -> Obj:
    """`/apis/visibility.kueue.x-k8s.io/VERSION`."""
    resources: list[Obj] = []
    for plural, (kind, namespaced) in KINDS.items():
        named = {"singularName": kind.lower(), "namespaced": namespaced}
        resources.append({"name": plural, **named, "kind": kind, "verbs": []})
        resources.append(
            {
                "name": f"{plural}/{SUBRESOURCE}",
                "singularName": "",
                "namespaced": namespaced,
                "kind": "PendingWorkloadsSummary",
                "verbs": ["get"],
            }
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{version}",
        "resources": resources,
    }
