"""The victims of a plan, their preemptors, and the grounds for preemption (KEP-83)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kueuelib.api import names
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.values import value


class Path(Enum):
    """The ground for a preemption; the value is the reason of `Preempted`."""

    IN_CLUSTER_QUEUE = names.REASON_IN_CLUSTER_QUEUE
    """It ranks lower in the same ClusterQueue."""
    IN_COHORT_RECLAMATION = names.REASON_IN_COHORT_RECLAMATION
    """Its ClusterQueue borrows what the preemptor's ClusterQueue owns."""
    IN_COHORT_RECLAIM_WHILE_BORROWING = names.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING
    """Its ClusterQueue borrows, and so will the preemptor, which ranks higher."""
    IN_COHORT_FAIR_SHARING = names.REASON_IN_COHORT_FAIR_SHARING
    """Its side of the tree has a larger share of what is borrowed than the preemptor's."""

    @property
    def words(self) -> str:
        """Its name in the condition message."""
        return _WORDS[self]


_WORDS = {
    Path.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    Path.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    Path.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
    Path.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
}


@value
class Victim:
    """A workload that has to release its quota.

    Attributes:
        holder: its charge.
        path: the ground for its preemption.
    """

    holder: Holder
    path: Path

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return self.holder.key

    @property
    def is_leaving(self) -> bool:
        """Whether it is leaving already and needs no eviction."""
        return self.holder.evicted


def home_of(victim: Victim) -> str:
    """The ClusterQueue in which a victim holds quota."""
    return victim.holder.cluster_queue


MOST_NAMED = 5
"""The maximum number of insufficient candidates that a reason names; all are counted."""


@value
class SearchResult:
    """The result of a search.

    Attributes:
        victims: which workloads must leave; empty if no victims suffice.
        candidates: how many candidates were considered, in the widest round.
        lacks: what is still missing without any of them; empty if there are victims.
        named: the first `MOST_NAMED` of them, if they do not suffice.
        borrowing: whether that round would have let the preemptor borrow in the end.
        spared: how many more the policies allow but the shares do not.
    """

    victims: tuple[Victim, ...]
    candidates: int
    lacks: Mapping[FlavorResource, int]
    named: tuple[ObjectKey, ...] = ()
    borrowing: bool = True
    spared: int = 0


@value
class Preemption:
    """A workload that waits for others to leave.

    Attributes:
        key: the preemptor.
        uid: its UID.
        workload: the object that was evaluated.
        cluster_queue: the queue in which it waits.
        places: the path of that queue and of each victim's: `/root/cohort/queue`.
        victims: which workloads must leave, including those that are leaving already.
    """

    key: ObjectKey
    uid: str
    workload: Workload
    cluster_queue: str
    places: Mapping[str, str]
    victims: tuple[Victim, ...]

    def message(self, victim: Victim) -> str:
        """The message of the conditions `Evicted` and `Preempted`, and of the events."""
        job_uid = self.workload.metadata.labels.get(names.JOB_UID_LABEL) or "UNKNOWN"
        return (
            f"Preempted to accommodate a workload (UID: {self.uid or 'UNKNOWN'}, "
            f"JobUID: {job_uid}) due to {victim.path.words}; "
            f"preemptor path: {self.places[self.cluster_queue]}; "
            f"preemptee path: {self.places[victim.holder.cluster_queue]}"
        )

    def ranks(self, victim: Victim) -> str:
        """The priorities of both, as events name them."""
        mine, other = self.workload.spec.priority or 0, victim.holder.priority
        return (
            f"preemptor effective priority: {mine} (base: {mine}, boost: 0); "
            f"preemptee effective priority: {other} (base: {other}, boost: 0)"
        )
