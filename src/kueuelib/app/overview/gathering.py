"""From the listed objects of a cluster to the facts of one page."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.kueue import NEVER, Workload
from kueuelib.api.meta import ObjectKey, Resource, find
from kueuelib.api.names import EVICTED, JOB_UID_LABEL, REASON_DEACTIVATED, REASON_PREEMPTED
from kueuelib.api.phrases import PREEMPTED_FOR
from kueuelib.api.preemption_policies import GRANTS
from kueuelib.app.explaining.gather import ClusterData, Decode, Lists, facts_in
from kueuelib.app.explaining.waiting import Listing, Waiting, WorkloadSelection, decided, reported
from kueuelib.app.overview.cohort_trees import load_of, reported_load, trees_of
from kueuelib.app.overview.values import (
    LastEviction,
    NodesOfFlavor,
    Overview,
    RunningWorkload,
    Threat,
)
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.awaited import awaited_checks
from kueuelib.scheduler.explain.fork import fork
from kueuelib.scheduler.explain.leaving import engine_of
from kueuelib.scheduler.explain.trial import TrialResult
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.policy import KUEUE
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.holders import Holder, rank_of
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.topology.room import domain_uses, free_rooms

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.answer import Explanation


# The last evictions, from the conditions of the Workloads: when, for which object, and why.


def evictions_of(workloads: Iterable[Workload], most: int) -> tuple[LastEviction, ...]:
    """The last eviction of every Workload that was evicted, the latest first.

    Args:
        workloads: all known Workloads.
        most: the maximum number.
    """
    known = tuple(workloads)
    names = dict(_names(known))
    evictions = sorted(_all(known, names), key=lambda one: (-one.at, one.key))
    return tuple(evictions[:most])


def _names(workloads: Iterable[Workload]) -> Iterator[tuple[str, str]]:
    """The Workloads by their UIDs and by those of their jobs."""
    for workload in workloads:
        job = workload.metadata.labels.get(JOB_UID_LABEL)
        if job:
            yield job, str(workload.key)
        yield workload.metadata.uid, str(workload.key)


def _all(workloads: Iterable[Workload], names: Mapping[str, str]) -> Iterator[LastEviction]:
    for workload in workloads:
        said = find(workload.status.conditions, EVICTED)
        if said is None:
            continue
        preemptor, why = "", said.message
        message = PREEMPTED_FOR.match(said.message) if said.reason == REASON_PREEMPTED else None
        if message is not None:
            uid, job, why = message["uid"], message["job"], message["why"]
            preemptor = names.get(uid) or names.get(job) or f"a Workload that is gone (UID {uid})"
            if message["path"]:
                preemptor += f" in {message['path']}"
        yield LastEviction(
            workload.key,
            said.last_transition_time,
            over=said.status != "True",
            reason=said.reason,
            preemptor=preemptor,
            why=why,
            times=_times(workload, said.reason),
        )


def _times(workload: Workload, reason: str) -> int:
    """How often a Workload was evicted for a reason, whatever the underlying cause."""
    stats = workload.status.scheduling_stats
    rows = () if stats is None else stats.evictions
    whole = reason.partition(f"{REASON_DEACTIVATED}DueTo")
    named = (REASON_DEACTIVATED, whole[2]) if whole[1] else (reason, None)
    return sum(
        row.count
        for row in rows
        if row.reason == named[0] and named[1] in (None, row.underlying_cause)
    )


# Finds who could preempt a Workload with quota, according to the policies of the ClusterQueues.
# A policy that permits it does not mean that it happens: the search for victims takes the smallest
# set that suffices, fair sharing compares shares, and a preemption policy may protect some.

_Line = list[tuple[int, float]]
"""The queue of a ClusterQueue: negated priority and time of queueing, sorted."""


@attrs.frozen
class _Right:
    """The right of a ClusterQueue's Workloads to preempt those of another one.

    Attributes:
        spec: of the preempting ClusterQueue.
        policy: which Workloads it may preempt.
        line: the Workloads that wait in it.
        pairs: only those that use one of these; None for all.
    """

    spec: QueueSpec
    policy: str
    line: _Line
    pairs: set[FlavorResource] | None

    def against(self, holder: Holder) -> Threat | None:
        """The threat to a Workload; None if there is none."""
        if self.pairs is not None and not holder.uses(self.pairs):
            return None
        grant = GRANTS[self.policy]
        if grant.is_unlimited:
            return Threat(self.spec.name, None, or_older=False, waiting=len(self.line))
        older = grant.newer
        border = (-holder.priority, holder.order.queued_at if older else -math.inf)
        waiting = bisect_left(self.line, border)
        return Threat(self.spec.name, holder.priority, or_older=older, waiting=waiting)


class Threats:
    """The rights of all ClusterQueues in one world.

    Args:
        engine: has the facts, but has run no cycle.
    """

    def __init__(self, engine: Engine) -> None:
        self._rights: dict[str, list[_Right]] = {}
        names = engine.cache.names
        snapshot = Snapshot(engine.cache.freeze(names))
        for name in names:
            spec = engine.cache.spec(name)
            if spec is None or spec.preemption.never_preempts or not engine.activity(name).active:
                continue
            line = sorted((-one.priority, one.order.queued_at) for one in engine.pending(name))
            for victims, right in _rights(snapshot, spec, line).items():
                self._rights.setdefault(victims, []).append(right)

    def against(self, holder: Holder) -> tuple[Threat, ...]:
        """The threats to a Workload: its own ClusterQueue first, then those with the longest
        queues.
        """
        rights = self._rights.get(holder.cluster_queue, ())
        threats = [threat for one in rights if (threat := one.against(holder)) is not None]
        own = holder.cluster_queue
        threats.sort(key=lambda one: (one.cluster_queue != own, -one.waiting, one.cluster_queue))
        return tuple(threats)


def _rights(snapshot: Snapshot, spec: QueueSpec, line: _Line) -> Mapping[str, _Right]:
    """The rights of a ClusterQueue, by the name of the ClusterQueue that it may preempt in."""
    rights: dict[str, _Right] = {}
    policy = spec.preemption
    if policy.within_cluster_queue != NEVER:
        rights[spec.name] = _Right(spec, policy.within_cluster_queue, line, None)
    if policy.reclaim_within_cohort != NEVER:
        for victims, pair in _borrowers(snapshot, spec):
            right = _Right(spec, policy.reclaim_within_cohort, line, set())
            pairs = rights.setdefault(victims, right).pairs
            assert pairs is not None, "it is another ClusterQueue"
            pairs.add(pair)
    return rights


def _borrowers(snapshot: Snapshot, spec: QueueSpec) -> Iterator[tuple[str, FlavorResource]]:
    """The ClusterQueues from which one may reclaim, each with what it borrows."""
    queue = snapshot.queue(spec.name)
    assert queue is not None, "it was frozen"
    for pair in spec.limits:
        for above in snapshot.reclaimable(queue, (pair,)):
            for borrower in above.queues:
                yield borrower.spec.name, pair


# --------------------------------------------------------------------------------------------------

MOST_EVICTIONS = 50
MOST_DOMAINS_SHOWN = 500
"""The levels of a topology are shown down to the last one with which there are at most so many."""
_EVERYTHING = WorkloadSelection()


@attrs.frozen(eq=False, repr=False)  # asyncio writes the result of a program as text
class ListedFacts:
    """The listed objects in a form that answers questions.

    Attributes:
        cluster: the facts.
        undecided: why the engine cannot decide; empty when it can.
        settings: the manager's settings for decisions.
        now: when it was read, in seconds since the epoch.
        source: the name of the cluster, its address, and a namespace if only that was read.
    """

    cluster: ClusterData
    undecided: str
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
) -> ListedFacts:
    """The facts in the lists.

    Args:
        near: what was listed.
        unseen: the kinds that may not be listed in the whole cluster.
        settings: the manager's settings for decisions.
        now: when that was, in seconds since the epoch.
        decoder: makes values of raw objects.
    """
    cluster, why = facts_in(near, unseen, settings, decoder)
    return ListedFacts(cluster, why, settings, now)


def overview_of(facts: ListedFacts) -> Overview:
    """The content of a page, without changes.

    Args:
        facts: of the cluster.
    """
    world = facts.world.with_usage(facts.now)
    engine = engine_of(world, facts.now)
    listing = _listing(facts, engine)
    queues = world.cluster_queues
    if facts.undecided:
        loads = {name: reported_load(queues[name]) for name in engine.cache.names}
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
        nodes=() if facts.undecided else tuple(_nodes(world, engine)),
    )


def _nodes(world: World, engine: Engine) -> Iterator[NodesOfFlavor]:
    """The nodes of each flavor with a topology, with the resources that queues have quota for."""
    cache = engine.cache
    specs = [spec for name in cache.names if (spec := cache.spec(name)) is not None]
    covered = {(pair.flavor, pair.resource) for spec in specs for pair in spec.limits}
    for flavor, nodes in sorted(cache.nodes.freeze().items()):
        tree, rule = nodes.tree, cache.nodes.spec(flavor)
        assert rule is not None, "it has nodes"
        rooms = [one for one in free_rooms(nodes) if (flavor, one.resource) in covered]
        resources = tuple(dict.fromkeys(one.resource for one in rooms))
        yield NodesOfFlavor(
            tree.topology,
            flavor,
            tuple(zip(tree.levels, map(len, tree.paths), strict=True)),
            tuple(sorted(rooms, key=lambda one: tree.levels.index(one.level))),
            domain_uses(nodes, resources, MOST_DOMAINS_SHOWN),
            sum(rule.fits(node) and not node.usable for node in world.nodes.values()),
        )


def _listing(facts: ListedFacts, engine: Engine) -> Listing:
    if facts.undecided:
        return reported(facts.cluster, _EVERYTHING, facts.now, facts.undecided)
    return decided(facts.cluster, _EVERYTHING, facts.now, fork(engine))


def _policies(settings: Settings) -> Iterator[str]:
    if settings.fair_sharing is not None:
        yield "fair sharing is on: shares also decide which Workloads other ClusterQueues preempt"
    if settings.preemption is not KUEUE:
        yield "a preemption policy is configured, which may spare Workloads that could be preempted"


def _running(world: World, engine: Engine, listing: Listing) -> Iterator[RunningWorkload]:
    threats, wanted = Threats(engine), _wanted(listing.rows)
    holders = engine.cache.holders.values()
    for holder in sorted(holders, key=lambda one: (one.cluster_queue, rank_of(one))):
        yield RunningWorkload(
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


def explained(facts: ListedFacts, key: ObjectKey) -> Explanation | None:
    """The whole answer about one Workload, with the changes that would admit it.

    Args:
        facts: of the cluster.
        key: the Workload.

    Returns:
        None when there is no such Workload without quota, or the engine cannot decide.
    """
    world = facts.world
    if facts.undecided or key not in world.workloads:
        return None
    from kueuelib.scheduler.explain.answer import explain

    explanation = explain(world, key, facts.now)
    waits = (TrialResult.WAITS, TrialResult.PREEMPTS, TrialResult.ADMITTED)
    return explanation if explanation.verdict in waits else None
