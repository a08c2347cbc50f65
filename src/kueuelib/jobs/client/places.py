"""Places in queues and expected starts, as the visibility APIs serve them to a user.

Ours serves both, for one Workload. Kueue's serves places, for a whole LocalQueue in pages; what was
read is shared by all callers of a client for a few seconds. While there is no Workload, an Event
may say why.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import anyio
import attrs

from kueuelib.api.kinds import EVENTS, KUEUE_VISIBILITY, LOCAL_QUEUES, OWN_VISIBILITY, VERSIONS
from kueuelib.api.meta import Obj, ObjectKey, Resource, parse_time
from kueuelib.errors import ApiError, NotFound, TransportError
from kueuelib.jobs.client.progress import NO_WORKLOAD, Progress, State, Why
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.queries import object_path, params_of

PATIENCE = 3.0
"""Seconds after which a place is unknown, so that nothing else waits for it."""
MAKING = 2.0
"""Seconds that a manager may need to make a Workload, before Events are asked about it."""
FRESH = 5.0
"""Seconds for which the places of a LocalQueue are used again."""
AWAY = 30.0
"""Seconds for which an API that did not answer, or refused, is not asked again."""
PAGE = 1000
_WAITING = "pendingworkloads"
_OURS = attrs.evolve(LOCAL_QUEUES, group=OWN_VISIBILITY, version="v1alpha1")
_SOURCES = (
    _OURS,
    *(attrs.evolve(LOCAL_QUEUES, group=KUEUE_VISIBILITY, version=one) for one in VERSIONS[::-1]),
)
_Queue = tuple[Resource, ObjectKey]
T = TypeVar("T")


@attrs.define
class _PlaceCache:
    """What a client knows of the queues of its namespaces; times are those of the monotonic clock.

    Attributes:
        places: the Workloads of a LocalQueue, and until when they are used.
        away: until when an API is not asked, and why.
        reads: one read at a time.
    """

    places: dict[_Queue, tuple[float, dict[str, Obj]]] = attrs.field(factory=dict)
    away: dict[_Queue, tuple[float, str]] = attrs.field(factory=dict)
    reads: defaultdict[_Queue, asyncio.Lock] = attrs.field(
        factory=lambda: defaultdict(asyncio.Lock)
    )


_KNOWN: WeakKeyDictionary[Client, _PlaceCache] = WeakKeyDictionary()


@attrs.frozen
class ServedPlace:
    """The place of a Workload that waits, as an API serves it.

    Attributes:
        in_cluster_queue: among those of its ClusterQueue, from 1.
        in_local_queue: among those of its LocalQueue, from 1.
        p50: by when it starts with a probability of 50 %, in seconds since the epoch, if known.
        p90: the same with 90 %.
        unknown: why one of them is not known.
    """

    in_cluster_queue: int
    in_local_queue: int
    p50: float | None
    p90: float | None
    unknown: str


async def served_places(
    client: Client, queue: ObjectKey
) -> tuple[Mapping[str, ServedPlace] | None, str]:
    """The places in a LocalQueue, by the names of Workloads.

    Args:
        client: of the user; needs the right to `get` `localqueues/pendingworkloads`.
        queue: the LocalQueue.

    Returns:
        None if they are not known, with the reason.
    """
    items, source, why = await _served(client, queue, partial(_listed, client))
    if items is None or source is None:
        return None, why
    return {name: _place(item, source) for name, item in items.items()}, ""


async def with_place(client: Client, progress: Progress, namespace: str) -> Progress:
    """A progress with its place and its expected start, as far as they are known.

    Args:
        client: of the user; needs the right to `get` `localqueues/pendingworkloads`.
        progress: of any job.
        namespace: where it is.
    """
    if progress.state is not State.QUEUED or progress.cluster_queue or not progress.workload:
        return progress
    key = ObjectKey(namespace, progress.queue)
    known = _KNOWN.setdefault(client, _PlaceCache())
    item, source, refused = await _served(
        client, key, lambda queue: _item(client, known, queue, progress.workload)
    )
    if source is not None:
        return _with_item(progress, item, source)
    return attrs.evolve(progress, unknown={**progress.unknown, "place": refused, "start": refused})


async def with_refusal(client: Client, progress: Progress, namespace: str, uid: str) -> Progress:
    """A progress whose reason is the Event that says why there is no Workload, if there is one.

    Args:
        client: of the user; needs the right to `list` Events.
        progress: of any job.
        namespace: where it is.
        uid: of the job.
    """
    is_late = progress.state is State.QUEUED and progress.waited >= MAKING
    if progress.reason != NO_WORKLOAD or not is_late or progress.unknown:
        return progress
    about = f"involvedObject.uid={uid},reason={COMPOSE_ERROR}"
    try:
        with anyio.fail_after(PATIENCE):
            events = (await client.list(EVENTS, namespace, field_selector=about)).items
    except (ApiError, TransportError, TimeoutError):
        return progress
    if not events:
        return progress
    latest = max(events, key=lambda event: event.get("lastTimestamp") or "")
    return attrs.evolve(progress, why=Why(NO_WORKLOAD, f"No Workload yet: {latest['message']}"))


async def _served(
    client: Client, key: ObjectKey, ask: Callable[[_Queue], Awaitable[T]]
) -> tuple[T | None, Resource | None, str]:
    """The answer of the first API that has one, and which that is; or why there is none."""
    known = _KNOWN.setdefault(client, _PlaceCache())
    refused = ""
    for source in _SOURCES:
        queue = source, key
        until, why = known.away.get(queue, (0.0, ""))
        if SYSTEM_CLOCK.monotonic() >= until:
            try:
                with anyio.fail_after(PATIENCE):
                    return await ask(queue), source, ""
            except NotFound:
                why = ""
                known.away[queue] = SYSTEM_CLOCK.monotonic() + AWAY, why
            except (ApiError, TransportError, TimeoutError) as error:
                why = f"{source.group}/{source.version}: {str(error) or 'no answer'}"
                known.away[queue] = SYSTEM_CLOCK.monotonic() + AWAY, why
        refused = refused or why
    none = f"the cluster serves no visibility API for LocalQueue {key.name}"
    return None, None, refused or none


async def _item(client: Client, known: _PlaceCache, queue: _Queue, workload: str) -> Obj | None:
    """The entry of a Workload; None if it is not listed."""
    source, _ = queue
    if source is _OURS:
        page = await _page(client, queue, workload=workload)
        return next(iter(page), None)
    async with known.reads[queue]:
        until, places = known.places.get(queue, (0.0, {}))
        if SYSTEM_CLOCK.monotonic() >= until:
            places = await _listed(client, queue)
            known.places[queue] = SYSTEM_CLOCK.monotonic() + FRESH, places
    return places.get(workload)


async def _listed(client: Client, queue: _Queue) -> dict[str, Obj]:
    """The entries of a LocalQueue by the names of Workloads."""
    items: dict[str, Obj] = {}
    offset = 0
    while page := await _page(client, queue, offset=str(offset), limit=str(PAGE)):
        items |= {item["metadata"]["name"]: item for item in page}
        offset += len(page)
        if len(page) < PAGE:
            break
    return items


async def _page(client: Client, queue: _Queue, **query: str) -> list[Obj]:
    path = object_path(*queue, _WAITING)
    answer = await client.request("GET", path, params=params_of(**query), verb="get")
    return list((answer or {}).get("items") or ())


def _with_item(progress: Progress, item: Obj | None, source: Resource) -> Progress:
    if item is None:
        why = "it is not waiting in its ClusterQueue now"
        return attrs.evolve(progress, unknown={**progress.unknown, "place": why, "start": why})
    place = _place(item, source)
    unknown = {**progress.unknown, "start": place.unknown} if place.unknown else progress.unknown
    return attrs.evolve(
        progress,
        place=place.in_cluster_queue,
        start_p50=place.p50,
        start_p90=place.p90,
        unknown=unknown,
    )


def _place(item: Obj, source: Resource) -> ServedPlace:
    start = item.get("expectedStart") or {}
    p50, p90 = (parse_time(start[name]) if start.get(name) else None for name in ("p50", "p90"))
    why = start.get("unknown") or f"{source.group} does not predict starts"
    return ServedPlace(
        item["positionInClusterQueue"] + 1,
        item["positionInLocalQueue"] + 1,
        p50,
        p90,
        why if p50 is None else "",
    )
