"""The facts of one page."""

from __future__ import annotations

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.app.explaining.waiting import Waiting
from kueuelib.scheduler.explain.awaited import Awaited
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.topology.room import DomainUse, FreeRoom
from kueuelib.scheduler.topology.tree import noun_of


@attrs.frozen
class QuotaUse:
    """The use of the quota for one flavor and resource at one place of a tree.

    Amounts are in the unit of the scheduler: milli-cores for cpu, bytes or units for the rest.

    Attributes:
        pair: the flavor and the resource.
        nominal: its quota; for a cohort, with that of everything below.
        own: what is used of that quota at this place or below.
        borrowed: what is used here and belongs to others.
        lent: what others use of the quota here.
        waiting: the requests of Workloads without quota here or below, each at the first flavor of
            its ClusterQueue that its pods can use.
    """

    pair: FlavorResource
    nominal: int = 0
    own: int = 0
    borrowed: int = 0
    lent: int = 0
    waiting: int = 0

    @property
    def free(self) -> int:
        """The unused part of the quota."""
        return max(0, self.nominal - self.own - self.lent)


@attrs.frozen
class QueueOrCohort:
    """A ClusterQueue or a cohort.

    Attributes:
        kind: `ClusterQueue` or `Cohort`.
        name: its name.
        depth: how many cohorts are above it.
        uses: by flavor and resource, in the order of the spec; sorted for a cohort.
        waiting: how many Workloads wait here or below.
        running: how many hold quota here or below.
        problem: why it cannot admit anything; empty when it can.
    """

    kind: str
    name: str
    depth: int
    uses: tuple[QuotaUse, ...]
    waiting: int
    running: int
    problem: str = ""

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs here, and nothing is wrong; others may use its quota."""
        return not (
            self.waiting
            or self.running
            or self.problem
            or any(use.own or use.borrowed or use.waiting for use in self.uses)
        )


@attrs.frozen
class CohortTree:
    """A cohort with everything below it, or one ClusterQueue without a cohort.

    Attributes:
        name: of the place at the top.
        places: the top first, each followed by what is below it.
    """

    name: str
    places: tuple[QueueOrCohort, ...]


@attrs.frozen
class Threat:
    """A ClusterQueue whose Workloads could preempt one with quota, according to the policies.

    Attributes:
        cluster_queue: the Workloads of this ClusterQueue could.
        above: those of a higher priority than this; None for any priority.
        or_older: also those of the same priority that were queued earlier.
        waiting: how many of them wait now.
    """

    cluster_queue: str
    above: int | None
    or_older: bool
    waiting: int


@attrs.frozen
class RunningWorkload:
    """A Workload that holds quota.

    Attributes:
        workload: the object.
        cluster_queue: where it holds quota.
        uses: how much of which flavor and resource.
        since: when quota was reserved, in seconds since the epoch; None if that is not known.
        admitted: whether all admission checks passed.
        leaving: whether it is being evicted.
        threats: which ClusterQueues could preempt it.
        wanted_by: the Workloads that preempt it, or are about to.
        awaited: the checks for which it waits.
    """

    workload: Workload
    cluster_queue: str
    uses: tuple[tuple[FlavorResource, int], ...]
    since: float | None
    admitted: bool
    leaving: bool
    threats: tuple[Threat, ...] = ()
    wanted_by: tuple[ObjectKey, ...] = ()
    awaited: tuple[Awaited, ...] = ()

    @property
    def key(self) -> ObjectKey:
        """The Workload."""
        return self.workload.key


@attrs.frozen
class LastEviction:
    """The last eviction of a Workload.

    Attributes:
        key: the Workload.
        at: when, in seconds since the epoch.
        over: whether the Workload got quota again since; then `at` is the time of that.
        reason: the reason of the condition Evicted.
        preemptor: the object that it made room for; empty for other evictions, or if unknown.
        why: the rest of the message.
        times: how often the Workload was evicted for this reason; 0 where that was not counted.
    """

    key: ObjectKey
    at: float
    over: bool
    reason: str
    preemptor: str
    why: str
    times: int = 0


@attrs.frozen
class NodesOfFlavor:
    """The nodes of a flavor with a topology, and what is free on them.

    Attributes:
        topology: the Topology.
        flavor: the flavor.
        levels: the label keys of its levels, from coarse to fine, each with the number of domains.
        rooms: by level and resource.
        domains: those of the first level, with what is below.
        closed: how many more nodes take no pods now: they are cordoned or not ready.
    """

    topology: str
    flavor: str
    levels: tuple[tuple[str, int], ...]
    rooms: tuple[FreeRoom, ...]
    domains: tuple[DomainUse, ...]
    closed: int = 0

    @property
    def leaf(self) -> str:
        """What people call a domain of the last level."""
        return noun_of(self.levels[-1][0])


@attrs.frozen
class Overview:
    """A cluster at about one moment, as far as the caller may see it.

    Attributes:
        now: when that was, in seconds since the epoch.
        trees: the quota.
        nodes: those of each flavor that has a topology; none if they were not read.
        waiting: the Workloads without quota, by ClusterQueue, in queue order.
        running: those with quota, by ClusterQueue, in the order they would be preempted.
        evictions: the last ones, the latest first.
        decided: whether verdicts and amounts are the engine's; otherwise a manager wrote them.
        notes: what was not read, and what follows from that.
        source: the name of the cluster, its address, and a namespace if only that was read.
    """

    now: float
    trees: tuple[CohortTree, ...]
    waiting: tuple[Waiting, ...]
    running: tuple[RunningWorkload, ...]
    evictions: tuple[LastEviction, ...]
    decided: bool
    notes: tuple[str, ...]
    source: tuple[str, ...] = ()
    nodes: tuple[NodesOfFlavor, ...] = ()
