"""All sort orders of the scheduler, each one total (spec/scheduling 3.2 and 4.2).

Keys are computed once per workload or entry and compared as plain tuples: nothing can change while
it is sorted.
"""

from __future__ import annotations

from typing import NamedTuple

EVICTION = "Eviction"


class QueueOrder(NamedTuple):
    """The place of a workload within its ClusterQueue: highest priority, then oldest, then UID."""

    descending_priority: int
    queued_at: float
    uid: str


class EntryOrder(NamedTuple):
    """The place of a head within a cycle.

    Heads that stay within their own quota come before heads that borrow; then priority, age, the
    name of the ClusterQueue and the UID decide.

    Attributes:
        borrowing_level: how far up the tree it borrows, 0 within nominal quota, -1 to come first.
        descending_priority: that of `QueueOrder`, or 0 for all if priority does not count (gate
            PrioritySortingWithinCohort off).
        queued_at: the age of the workload.
        cluster_queue: the name of its ClusterQueue.
        uid: its UID.
    """

    borrowing_level: int
    descending_priority: int
    queued_at: float
    cluster_queue: str
    uid: str


def queue_order(priority: int, queued_at: float, uid: str) -> QueueOrder:
    """The key by which a ClusterQueue sorts its pending workloads."""
    return QueueOrder(-priority, queued_at, uid)
