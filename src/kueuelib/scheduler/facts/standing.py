"""The standing of a Workload in the decision engine."""

from __future__ import annotations

from enum import Enum

from kueuelib.api.struct import frozen
from kueuelib.scheduler.reasons import Reason


class Where(Enum):
    """The possible places of a Workload; it is in exactly one of them."""

    UNKNOWN = "unknown"
    """The engine does not know it, or it was deleted."""
    FINISHED = "finished"
    LEAVING = "leaving"
    """It is being deleted and holds no quota."""
    DEACTIVATED = "deactivated"
    GATED = "gated"
    """It waits outside its queue until others have removed its gates."""
    PODS_MISSING = "pods missing"
    """It waits outside its queue for pods of its job."""
    NO_QUEUE = "no queue"
    """Its LocalQueue or ClusterQueue is missing or stopped; the reason says which."""
    CLUSTER_QUEUE_INACTIVE = "cluster queue inactive"
    BACKING_OFF = "backing off"
    PENDING = "pending"
    """It will be tried once it is first in its ClusterQueue."""
    INADMISSIBLE = "inadmissible"
    """It was refused and waits for a change."""
    IN_FLIGHT = "in flight"
    """It is being tried."""
    ASSUMED = "assumed"
    """It has quota that the API server has not confirmed yet."""
    HOLDS_QUOTA = "holds quota"


@frozen
class Standing:
    """The place of a Workload, and why it has no quota, if that is known without a try.

    Attributes:
        where: the place.
        cluster_queue: the ClusterQueue in which it waits or holds quota, empty if there is none.
        reason: why it cannot be tried, or the result of the last try; None if it holds quota, is
            finished, or is unknown.
    """

    where: Where
    cluster_queue: str = ""
    reason: Reason | None = None
