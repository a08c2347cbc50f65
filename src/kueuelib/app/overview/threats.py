"""Finds who could preempt a Workload with quota, according to the policies of the ClusterQueues.

A policy that permits it does not mean that it happens: the search for victims takes the smallest
set that suffices, fair sharing compares shares, and a preemption policy may protect some.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping

import attrs

from kueuelib.api.kueue import NEVER
from kueuelib.api.preemption_policies import GRANTS
from kueuelib.app.overview.values import Threat
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.quota.snapshot import Snapshot

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
