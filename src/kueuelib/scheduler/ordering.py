"""All sort orders of the scheduler, each one total.

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


EntryOrder = tuple[int, int, float, str, str]
"""The place of a head within a cycle.

- How far up the tree it borrows: 0 within nominal quota, -1 to come first. So heads that stay
  within their own quota come before heads that borrow.
- The priority as in `QueueOrder`, or 0 for all if priority does not count (gate
  PrioritySortingWithinCohort off).
- The age of the workload.
- The name of its ClusterQueue, and its UID.
"""


def queue_order(priority: int, queued_at: float, uid: str) -> QueueOrder:
    """The key by which a ClusterQueue sorts its pending workloads."""
    return QueueOrder(-priority, queued_at, uid)
