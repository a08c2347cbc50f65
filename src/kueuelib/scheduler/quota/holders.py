"""Workloads that hold quota, in the order of preemption, and the lowest priority among them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.values import changed, record

LOWEST_PRIORITY = -(2**31)
"""No workload has a lower one: the API stores priorities in 32 bits."""


@record
class Holder:
    """A workload that holds quota in a ClusterQueue.

    Attributes:
        key: the workload.
        uid: its UID.
        cluster_queue: where it holds quota.
        local_queue: the LocalQueue that it was submitted to.
        priority: its priority.
        order: its place among pending workloads if it were pending.
        usage: its charge.
        reserved_at: when quota was reserved, seconds since the epoch; None while only assumed.
        admitted: whether all admission checks have passed as well.
        assumed: whether the API server has not confirmed the reservation yet.
        evicted: whether it is being evicted; it keeps its quota until its pods are gone.
        pods_ready: whether all its pods were ready.
        admitted_at: when it was admitted, seconds since the epoch; None until that is confirmed.
        labels: the labels of the object.
        decided_at: when the engine decided about the reservation, seconds since the epoch, another
            time for each; None if it did not, or if the workload is admitted.
    """

    key: ObjectKey
    uid: str
    cluster_queue: str
    local_queue: ObjectKey
    priority: int
    order: QueueOrder
    usage: Mapping[FlavorResource, int]
    reserved_at: float | None
    admitted: bool
    assumed: bool
    evicted: bool
    pods_ready: bool
    admitted_at: float | None = None
    labels: Mapping[str, str] = attrs.field(factory=dict)
    decided_at: float | None = None

    @property
    def turn(self) -> tuple[float, QueueOrder]:
        """The place among reservations, the earliest one first.

        Stored times have whole seconds. So the time of the decision counts if it is known, and the
        order of pending workloads decides between others of one second.
        """
        at = self.reserved_at if self.decided_at is None else self.decided_at
        return inf if at is None else at, self.order

    def after(self, before: Holder) -> Holder:
        """This state of the workload, with the time of the decision if that is known from another
        state with the same reservation.
        """
        same = before.assumed or before.reserved_at == self.reserved_at
        if self.admitted or before.decided_at is None or not same:
            return self
        return changed(self, decided_at=before.decided_at)

    def uses(self, pairs: Iterable[FlavorResource]) -> bool:
        """Whether it holds quota of any of the pairs; a request for zero holds none."""
        return any(map(self.usage.get, pairs))

    def is_charged_like(self, other: Holder) -> bool:
        """Whether another state of the workload has the same charge in all sums."""
        return (
            self.usage == other.usage
            and self.cluster_queue == other.cluster_queue
            and self.local_queue == other.local_queue
            and self.admitted is other.admitted
            and self.priority == other.priority
        )


Rank = tuple[bool, int, float, str, ObjectKey]
"""The place of a workload among those that could be preempted.

Whether it stays, its priority, the negated time of its reservation, its UID and its name. Leaving
ones come first, then the lowest priority, then the newest reservation; the UID decides between
equals. An assumed one has the newest reservation of all.
"""

Ranked = tuple[Any, Holder]
"""A workload with its rank, or with an order that a preemption policy puts before it."""


def rank_of(holder: Holder) -> Rank:
    """The rank of a workload; it changes only with the Holder."""
    ago = -inf if holder.reserved_at is None else -holder.reserved_at
    return not holder.evicted, holder.priority, ago, holder.uid, holder.key


class Priorities:
    """A multiset of priorities that knows its lowest member (KEP-83)."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._sorted: list[int] = []

    def add(self, priority: int) -> None:
        """Counts one more."""
        count = self._counts.get(priority, 0)
        if not count:
            insort(self._sorted, priority)
        self._counts[priority] = count + 1

    def remove(self, priority: int) -> None:
        """Counts one less."""
        count = self._counts[priority] - 1
        if count:
            self._counts[priority] = count
            return
        del self._counts[priority]
        del self._sorted[bisect_left(self._sorted, priority)]

    @property
    def lowest(self) -> int | None:
        """The lowest priority, or None."""
        return self._sorted[0] if self._sorted else None
