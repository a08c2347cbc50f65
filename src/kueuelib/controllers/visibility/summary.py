"""The answers of the visibility API, as raw objects; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, starmap

import attrs

from kueuelib.api.kinds import KUEUE_VISIBILITY, OWN_VISIBILITY
from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.errors import BadRequest
from kueuelib.scheduler.pending.workload_info import WorkloadInfo

GROUP = KUEUE_VISIBILITY
VERSIONS: Mapping[str, tuple[str, ...]] = {
    GROUP: ("v1beta2", "v1beta1"),
    OWN_VISIBILITY: ("v1alpha1",),
}
"""By group, the preferred one first; all have the same form, and ours has one more field."""
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
class PredictedStart:
    """By when a Workload starts, in seconds since the epoch.

    Attributes:
        p50: with a probability of 50 %; None if that is not known.
        p90: the same with 90 %.
        unknown: why one of them is not known; else empty.
    """

    p50: float | None = None
    p90: float | None = None
    unknown: str = ""


@attrs.frozen
class PredictedStarts:
    """The starts of the first Workloads of a ClusterQueue.

    Attributes:
        at: when they were predicted, in seconds since the epoch.
        starts: by Workload.
        rest: why those of others are not known.
    """

    at: float
    starts: Mapping[ObjectKey, PredictedStart]
    rest: str

    def row(self, key: ObjectKey) -> Obj:
        """The field `expectedStart` of a Workload."""
        start = self.starts.get(key) or PredictedStart(unknown=self.rest or _NEW)
        times = {"p50": start.p50, "p90": start.p90}
        row: Obj = {name: format_time(at) for name, at in times.items() if at is not None}
        return row | ({"unknown": start.unknown} if start.unknown else {})


_NEW = "it is not part of the last prediction; ask again in a few seconds"


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
    places = islice(_places(waiting, local_queue), page.offset, page.offset + page.limit)
    return _summary(GROUP, version, starmap(_item, places))


def listed(group: str, version: str, page: PendingPage, rows: Iterable[Obj]) -> Obj:
    """A `PendingWorkloadsSummary` with a page of rows."""
    return _summary(group, version, islice(rows, page.offset, page.offset + page.limit))


def _summary(group: str, version: str, rows: Iterable[Obj]) -> Obj:
    return {
        "kind": "PendingWorkloadsSummary",
        "apiVersion": f"{group}/{version}",
        "metadata": {},
        "items": list(rows),
    }


def items(waiting: Iterable[WorkloadInfo], local_queue: ObjectKey | None) -> Iterator[Obj]:
    """The Workloads of the queue, with their positions from 0."""
    yield from starmap(_item, _places(waiting, local_queue))


def _places(
    waiting: Iterable[WorkloadInfo], local_queue: ObjectKey | None
) -> Iterator[tuple[WorkloadInfo, int, int]]:
    counts: dict[ObjectKey, int] = {}
    for place, info in enumerate(waiting):
        queue = info.local_queue
        local = counts.get(queue, 0)
        counts[queue] = local + 1
        if local_queue in (None, queue):
            yield info, place, local


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


def api_group(group: str) -> Obj:
    """`/apis/GROUP`."""
    versions = [{"groupVersion": f"{group}/{name}", "version": name} for name in VERSIONS[group]]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def api_groups() -> Obj:
    """`/apis`."""
    groups = [
        {key: value for key, value in api_group(one).items() if key not in ("kind", "apiVersion")}
        for one in VERSIONS
    ]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_resources(group: str, version: str) -> Obj:
    """`/apis/GROUP/VERSION`."""
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
        "groupVersion": f"{group}/{version}",
        "resources": resources,
    }
