"""Where a Workload stands, seen from the decision engine."""

from __future__ import annotations

from enum import Enum

import attrs

from kueuelib.scheduler.reasons import Reason


class Where(Enum):
    """The places in which a Workload can be; it is in exactly one of them."""

    UNKNOWN = "unknown"
    """The engine does not know it, or knows that it was deleted."""
    FINISHED = "finished"
    LEAVING = "leaving"
    """It is being deleted and holds no quota."""
    DEACTIVATED = "deactivated"
    NO_QUEUE = "no queue"
    """Its LocalQueue or ClusterQueue is missing or stopped; the reason says which."""
    CLUSTER_QUEUE_INACTIVE = "cluster queue inactive"
    BACKING_OFF = "backing off"
    PENDING = "pending"
    """It will be tried when it is first in its ClusterQueue."""
    INADMISSIBLE = "inadmissible"
    """It was refused and waits for a change."""
    IN_FLIGHT = "in flight"
    """It is being tried."""
    ASSUMED = "assumed"
    """It got quota, which the API server has not confirmed yet."""
    HOLDS_QUOTA = "holds quota"


@attrs.frozen
class Standing:
    """Where a Workload is, and why it has no quota if that is known without a try.

    Attributes:
        where: the place.
        cluster_queue: the ClusterQueue in which it waits or holds quota, empty when there is none.
        reason: why it can't be tried or what the last attempt came to; None when it holds quota, is
            finished, or is unknown.
    """

    where: Where
    cluster_queue: str = ""
    reason: Reason | None = None
