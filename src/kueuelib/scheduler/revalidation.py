"""Whether a reservation is still worth anything, before the workload that holds it may start.

Between the reservation and the last passed check anything may happen to the quota: it shrinks, a
flavor leaves the ClusterQueue, the queue leaves its cohort. So quota and flavors are verified once
more (KEP-993, "recheck that Admission settings are still valid"). Of several reservations that do
not fit together any more the later ones lose: a reservation is measured beside what is admitted
and what was reserved before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.scheduler.amounts import Amounts, FlavorResource
from kueuelib.scheduler.holders import Holder
from kueuelib.scheduler.reasons import FlavorWithdrawn, QuotaWithdrawn
from kueuelib.scheduler.snapshot import Frozen, FrozenQueue, Snapshot


def withdrawn_flavor(queue: FrozenQueue, usage: Amounts) -> FlavorWithdrawn | None:
    """The first flavor of a reservation that its ClusterQueue does not offer any more, or None.

    Only what is asked for counts; whoever asks for nothing of a resource needs no flavor for it.

    Args:
        queue: the ClusterQueue that the quota was reserved in.
        usage: what the workload is charged for.
    """
    for pair in sorted(usage):
        if usage[pair] > 0 and pair not in queue.spec.limits:
            return FlavorWithdrawn(queue.spec.name, pair.flavor, pair.resource)
    return None


def missing_quota(frozen: Frozen, holder: Holder) -> FlavorWithdrawn | QuotaWithdrawn | None:
    """Why a reservation may not become an admission, or None when it still fits.

    Args:
        frozen: the ClusterQueue of the workload and its cohort.
        holder: the workload.
    """
    snapshot = Snapshot(frozen)
    queue = snapshot.queue(holder.cluster_queue)
    if queue is None:
        return None
    gone = withdrawn_flavor(queue, holder.usage)
    if gone is not None:
        return gone
    for member, other in _of_the_same_cohort(snapshot, queue):
        if other.key == holder.key or _is_later(other, holder):
            snapshot.remove(member, other.usage)
    short: list[FlavorResource] = [
        pair
        for pair, amount in sorted(holder.usage.items())
        if 0 < amount > snapshot.available(queue, pair)
    ]
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


def _of_the_same_cohort(
    snapshot: Snapshot, queue: FrozenQueue
) -> Iterator[tuple[FrozenQueue, Holder]]:
    cohort = snapshot.cohort_of(queue)
    members = (queue,) if cohort is None else tuple(cohort.members.values())
    for member in members:
        for holder in member.holders.values():
            yield member, holder


def _is_later(other: Holder, holder: Holder) -> bool:
    """Whether another reservation has to stand back: it is not admitted and came afterwards."""
    if other.admitted:
        return False
    if other.reserved_at is None or holder.reserved_at is None:
        return other.reserved_at is None
    return (other.reserved_at, other.key) > (holder.reserved_at, holder.key)
