"""Verifies a reservation once more, before the workload that holds it may start.

Until the last check has passed, the quota may change: it shrinks, a flavor leaves the ClusterQueue,
the queue leaves its cohort. So quota and flavors are verified again (KEP-993, "recheck that
Admission settings are still valid"). Among several reservations that no longer fit together, the
later ones lose: a reservation has to fit beside admitted workloads and earlier reservations. One
that does not fit may get room by preemption, and so do reservations that assumed preemptions
(`preemptionPolicy: AfterCheckPassedOrOnDemand`). The room that preemptors were promised is theirs,
unless there is no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kueuelib.scheduler.decide.cycle_values import Head
from kueuelib.scheduler.decide.kept_room import Promises
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.preemption.search import find_victims
from kueuelib.scheduler.decide.preemption.victims import Path, Preemptor, Victim
from kueuelib.scheduler.policy import Asking, again_after
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.snapshot import Frozen, FrozenQueue, Snapshot
from kueuelib.scheduler.reasons import FlavorWithdrawn, QuotaWithdrawn
from kueuelib.scheduler.settings import Settings


def withdrawn_flavor(queue: FrozenQueue, usage: Amounts) -> FlavorWithdrawn | None:
    """The first flavor of a reservation that its ClusterQueue no longer offers, or None.

    Only requests count: a pod set without a request for a resource needs no flavor for it.

    Args:
        queue: the ClusterQueue that the quota was reserved in.
        usage: the workload's charge.
    """
    for pair in sorted(usage):
        if usage[pair] > 0 and pair not in queue.spec.limits:
            return FlavorWithdrawn(queue.spec.name, pair.flavor, pair.resource)
    return None


def missing_quota(frozen: Frozen, holder: Holder) -> FlavorWithdrawn | QuotaWithdrawn | None:
    """Why a reservation may not become an admission; None if it still fits.

    Args:
        frozen: the ClusterQueue of the workload and its tree.
        holder: the workload.
    """
    snapshot = _before(frozen, holder)
    queue = snapshot.queue(holder.cluster_queue)
    if queue is None:
        return None
    gone = withdrawn_flavor(queue, holder.usage)
    if gone is not None:
        return gone
    short = _short(snapshot, queue, holder)
    if not short:
        return None
    pair = short[0]
    return QuotaWithdrawn(
        queue.spec.name,
        pair.flavor,
        pair.resource,
        holder.usage[pair],
        snapshot.available(queue, pair),
    )


def victims_for(
    frozen: Frozen,
    holder: Holder,
    settings: Settings,
    judge: Judge | None = None,
    promised: Collection[Head] = (),
    leaving: Iterable[Holder] = (),
) -> tuple[tuple[Victim, ...], float | None]:
    """The workloads that must leave so that a reservation fits; empty if it fits or none can help.

    With none comes the instant from which others may be chosen, if some are left out until then.
    Those that leave for others are among the victims only if it fits as soon as these have left.

    Args:
        frozen: the ClusterQueue of the workload and its tree.
        holder: the workload.
        settings: the administrator's choices.
        judge: asks the preemption policy; None for Kueue's own.
        promised: the preemptors of its tree that wait.
        leaving: those that leave there, if they count as gone.
    """
    snapshot = _before(frozen, holder)
    queue = snapshot.queue(holder.cluster_queue)
    short = [] if queue is None else _short(snapshot, queue, holder)
    if queue is None or not short:
        return (), None
    mark = snapshot.mark()
    promises = Promises(snapshot, frozen, promised, leaving, settings)
    still = _short(snapshot, queue, holder)
    if not still:  # nobody else has to leave, so the path does not matter
        return tuple(Victim(one, Path.IN_COHORT_RECLAMATION) for one in promises.leaving), None
    asking = Asking(holder.cluster_queue, holder.local_queue, holder.priority)
    guard = None if judge is None else judge.guard(asking)
    preemptor = Preemptor(
        queue, holder.priority, holder.order.queued_at, settings.fair_sharing, guard
    )
    victims = find_victims(snapshot, preemptor, frozenset(still), holder.usage).victims
    if not victims and promises.standing:
        snapshot.undo(mark)
        victims = find_victims(snapshot, preemptor, frozenset(short), holder.usage).victims
    if victims or guard is None:
        return victims, None
    return (), again_after(guard.protected, guard.unevictable)


def _before(frozen: Frozen, holder: Holder) -> Snapshot:
    """The state without a reservation, and without those that yield to it."""
    snapshot = Snapshot(frozen)
    queue = snapshot.queue(holder.cluster_queue)
    if queue is not None:
        for other in _of_the_same_tree(snapshot, queue):
            if other.key == holder.key or _is_later(other, holder):
                snapshot.take_out(other)
    return snapshot


def _short(snapshot: Snapshot, queue: FrozenQueue, holder: Holder) -> list[FlavorResource]:
    return [
        pair
        for pair, amount in sorted(holder.usage.items())
        if 0 < amount > snapshot.available(queue, pair)
    ]


def _of_the_same_tree(snapshot: Snapshot, queue: FrozenQueue) -> Iterator[Holder]:
    tree = snapshot.tree_of(queue)
    for member in (queue,) if tree is None else tuple(tree.members.values()):
        yield from (holder for _, holder in member.ranked)


def _is_later(other: Holder, holder: Holder) -> bool:
    """Whether another reservation has to yield, because it is later and not admitted."""
    return not other.admitted and other.turn > holder.turn
