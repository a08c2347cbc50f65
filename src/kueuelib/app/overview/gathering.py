"""From the listed objects of a cluster to the facts of one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.app.explaining.decoder import Decode
from kueuelib.app.explaining.gather import Cluster, Lists, facts_in
from kueuelib.app.explaining.selection import Selection
from kueuelib.app.explaining.waiting import (
    Listing,
    Waiting,
    decided,
    told,
)
from kueuelib.app.overview.evictions import evictions_of
from kueuelib.app.overview.threats import Threats
from kueuelib.app.overview.trees import load_of, load_told, trees_of
from kueuelib.app.overview.values import Overview, Running
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.awaited import awaited_checks
from kueuelib.scheduler.explain.fork import fork
from kueuelib.scheduler.explain.leaving import engine_of
from kueuelib.scheduler.explain.trial import Verdict
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.policy import KUEUE
from kueuelib.scheduler.quota.holders import rank_of
from kueuelib.scheduler.settings import Settings

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.answer import Explanation

MOST_EVICTIONS = 50
_EVERYTHING = Selection()


@attrs.frozen(eq=False, repr=False)  # asyncio writes the result of a program as text
class Facts:
    """The listed objects in a form that answers questions.

    Attributes:
        cluster: the facts.
        why_told: why the engine cannot decide; empty when it can.
        settings: the manager's settings for decisions.
        now: when it was read, in seconds since the epoch.
        source: the name of the cluster, its address, and a namespace if only that was read.
    """

    cluster: Cluster
    why_told: str
    settings: Settings
    now: float
    source: tuple[str, ...] = ()

    @property
    def world(self) -> World:
        """The world in which the Workloads of the page wait."""
        return self.cluster.world


def facts_of(
    near: Lists,
    unseen: Sequence[Resource],
    settings: Settings,
    now: float,
    decoder: Decode = decode,
) -> Facts:
    """The facts in the lists.

    Args:
        near: what was listed.
        unseen: the kinds that may not be listed in the whole cluster.
        settings: the manager's settings for decisions.
        now: when that was, in seconds since the epoch.
        decoder: makes values of raw objects.
    """
    cluster, why = facts_in(near, unseen, settings, decoder)
    return Facts(cluster, why, settings, now)


def overview_of(facts: Facts) -> Overview:
    """The content of a page, without changes.

    Args:
        facts: of the cluster.
    """
    world = facts.world.with_usage(facts.now)
    engine = engine_of(world, facts.now)
    listing = _listing(facts, engine)
    queues = world.cluster_queues
    if facts.why_told:
        loads = {name: load_told(queues[name]) for name in engine.cache.names}
    else:
        loads = {name: load_of(engine, name) for name in engine.cache.names}
    return Overview(
        now=facts.now,
        trees=trees_of(engine, loads),
        waiting=listing.rows,
        running=tuple(_running(world, engine, listing)),
        evictions=evictions_of(facts.cluster.world.workloads.values(), MOST_EVICTIONS),
        decided=listing.decided,
        notes=(*listing.notes, *_policies(facts.settings)),
        source=facts.source,
    )


def _listing(facts: Facts, engine: Engine) -> Listing:
    if facts.why_told:
        return told(facts.cluster, _EVERYTHING, facts.now, facts.why_told)
    return decided(facts.cluster, _EVERYTHING, facts.now, fork(engine))


def _policies(settings: Settings) -> Iterator[str]:
    if settings.fair_sharing is not None:
        yield "fair sharing is on: shares also decide which Workloads other ClusterQueues preempt"
    if settings.preemption is not KUEUE:
        yield "a preemption policy is configured, which may spare Workloads that could be preempted"


def _running(world: World, engine: Engine, listing: Listing) -> Iterator[Running]:
    threats, wanted = Threats(engine), _wanted(listing.rows)
    holders = engine.cache.holders.values()
    for holder in sorted(holders, key=lambda one: (one.cluster_queue, rank_of(one))):
        yield Running(
            workload=world.workloads[holder.key],
            cluster_queue=holder.cluster_queue,
            uses=tuple(sorted(holder.usage.items())),
            since=holder.reserved_at,
            admitted=holder.admitted,
            leaving=holder.evicted,
            threats=threats.against(holder),
            wanted_by=tuple(wanted.get(holder.key, ())),
            awaited=awaited_checks(world, world.workloads[holder.key]),
        )


def _wanted(rows: Iterable[Waiting]) -> Mapping[ObjectKey, Sequence[ObjectKey]]:
    by_victim: dict[ObjectKey, list[ObjectKey]] = {}
    for row in rows:
        for victim in row.victims:
            by_victim.setdefault(victim, []).append(row.key)
    return by_victim


def explained(facts: Facts, key: ObjectKey) -> Explanation | None:
    """The whole answer about one Workload, with the changes that would admit it.

    Args:
        facts: of the cluster.
        key: the Workload.

    Returns:
        None when there is no such Workload without quota, or the engine cannot decide.
    """
    world = facts.world
    if facts.why_told or key not in world.workloads:
        return None
    from kueuelib.scheduler.explain.answer import explain

    explanation = explain(world, key, facts.now)
    waits = (Verdict.WAITS, Verdict.PREEMPTS, Verdict.ADMITTED)
    return explanation if explanation.verdict in waits else None
