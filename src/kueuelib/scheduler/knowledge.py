"""The readable knowledge of the engine: numbers for statuses, and the place of every workload."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kueuelib.api.kueue import (
    FlavorUsage,
    LocalFlavorUsage,
    LocalResourceUsage,
    ResourceUsage,
    Workload,
)
from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import Quantity, quantity_of
from kueuelib.api.struct import frozen
from kueuelib.scheduler.decide.cycle_values import NewPlaces
from kueuelib.scheduler.decide.preemption.guard import PreemptionHistory
from kueuelib.scheduler.facts.handlers import Facts
from kueuelib.scheduler.facts.workloads import QueuePosition, Where
from kueuelib.scheduler.object_reasons import BackingOff, ClusterQueueInactive
from kueuelib.scheduler.pending.queue import PendingPlace, PendingQueue, PendingWorkload
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource, total_of
from kueuelib.scheduler.quota.cache import QuotaCache, Tally, share_of_cohort, share_of_queue
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.past_usage import PastUsage
from kueuelib.scheduler.quota.queue_spec import UNKNOWN, Activity, QueueSpec
from kueuelib.scheduler.reasons import NotEvaluated
from kueuelib.scheduler.settings import NodeFailureRules, Settings

# ---- the numbers in the status of ClusterQueues and LocalQueues ----------------------------------

NOTHING = Tally()


@frozen
class QueueStatus:
    """The present numbers of a ClusterQueue.

    Attributes:
        pending: how many workloads wait.
        active: how many of them can be tried; 0 if the queue is not active.
        inadmissible: how many of them are parked.
        reserving: how many workloads hold quota.
        admitted: how many of them are admitted.
        reservation: the usage of those with quota; flavors in the order of the spec, resources
            sorted.
        usage: the usage of the admitted ones.
        share: its share of borrowed quota, infinite if it borrows with weight 0; None while fair
            sharing is off.
    """

    pending: int
    active: int
    inadmissible: int
    reserving: int
    admitted: int
    reservation: tuple[FlavorUsage, ...]
    usage: tuple[FlavorUsage, ...]
    share: float | None


@frozen
class PastUse:
    """The past usage of a LocalQueue (KEP-4136).

    Attributes:
        consumed: the decayed amounts at the last sample.
        sampled_at: when that was, in seconds since the epoch.
        next_sample: when to show them again; None if nothing is left or in use.
        usage: the number that orders LocalQueues; infinite for weight 0.
    """

    consumed: Mapping[str, Quantity]
    sampled_at: float
    next_sample: float | None
    usage: float


@frozen
class LocalQueueNumbers:
    """The present numbers of a LocalQueue, as in `QueueStatus`.

    `past` is None if past usage does not count.
    """

    pending: int
    reserving: int
    admitted: int
    reservation: tuple[LocalFlavorUsage, ...]
    usage: tuple[LocalFlavorUsage, ...]
    past: PastUse | None = None


def queue_status(
    spec: QueueSpec, tally: Tally, waiting: PendingQueue, share: float | None
) -> QueueStatus:
    """The status of a ClusterQueue.

    Args:
        spec: its quotas.
        tally: its totals.
        waiting: its waiting Workloads; one in flight counts as active.
        share: as in the status.
    """
    pending = inadmissible = len(waiting.items)
    if waiting.active:
        groups = waiting.groups.values()
        inadmissible = sum(len(group.members) for group in groups if group.verdict is not None)
    return QueueStatus(
        pending=pending,
        active=pending - inadmissible,
        inadmissible=inadmissible,
        reserving=tally.reserving,
        admitted=tally.admitted,
        reservation=_usage(spec, tally.reserved),
        usage=_usage(spec, tally.used),
        share=share,
    )


def pending_requests(waiting: PendingQueue) -> dict[str, int]:
    """The requests of all waiting Workloads by resource, including unrequested resources with
    quota.
    """
    requests = dict.fromkeys((pair.resource for pair in waiting.spec.limits), 0)
    for item in waiting.items.values():
        for pod_set in item.info.pod_sets:
            for resource, amount in pod_set.requests(pod_set.count, count_pods=False).items():
                requests[resource] = requests.get(resource, 0) + amount
    return requests


def parked(waiting: PendingQueue) -> Iterator[ObjectKey]:
    """The Workloads that cannot be tried; all of them if the queue is not active."""
    if not waiting.active:
        yield from waiting.items
        return
    for group in waiting.groups.values():
        if group.verdict is not None:
            yield from group.members


def pending_shapes(waiting: PendingQueue) -> tuple[int, int]:
    """How many different Workloads can be tried, and how many are parked, equal ones counted once.

    One in flight can be tried; in an inactive queue, all are parked.
    """
    tried = {shape for (shape, _, _), group in waiting.groups.items() if group.verdict is None}
    parked = {shape for (shape, _, _), group in waiting.groups.items() if group.verdict is not None}
    if waiting.in_flight is not None:
        tried.add(waiting.items[waiting.in_flight].info.shape)
    return (len(tried), len(parked)) if waiting.active else (0, len(tried | parked))


def past_of(usage: PastUsage | None, key: ObjectKey) -> PastUse | None:
    """The past usage of a LocalQueue; None if it does not count."""
    sample = None if usage is None else usage.sample(key)
    if usage is None or sample is None:
        return None
    consumed = {name: Quantity(nanos) for name, nanos in sorted(sample.consumed.items())}
    goes_on = usage.next_sample() if usage.is_counting(key) else None
    return PastUse(consumed, sample.at, goes_on, float(usage.value(key)))


def local_queue_status(
    spec: QueueSpec | None, tally: Tally, pending: int, past: PastUse | None = None
) -> LocalQueueNumbers:
    """The status of a LocalQueue; its flavors are those of its ClusterQueue, if that exists."""
    return LocalQueueNumbers(
        pending=pending,
        reserving=tally.reserving,
        admitted=tally.admitted,
        reservation=_local_usage(spec, tally.reserved),
        usage=_local_usage(spec, tally.used),
        past=past,
    )


def _resources(spec: QueueSpec) -> list[tuple[str, list[str]]]:
    """Flavors in the order of the spec, each with its resources sorted by name.

    The webhook refuses a flavor in two groups. If such a spec bypassed the webhook, the flavor
    still gets one row, because an API server refuses a status with two of one name.
    """
    by_flavor: dict[str, set[str]] = {}
    for group in spec.groups:
        for flavor in group.flavors:
            by_flavor.setdefault(flavor, set()).update(group.resources)
    return [(flavor, sorted(resources)) for flavor, resources in by_flavor.items()]


def _usage(spec: QueueSpec, used: Amounts) -> tuple[FlavorUsage, ...]:
    rows = []
    for flavor, resources in _resources(spec):
        cells = []
        for resource in resources:
            pair = FlavorResource(flavor, resource)
            total = used.get(pair, 0)
            limits = spec.limits.get(pair)
            borrowed = max(0, total - limits.nominal) if spec.cohort and limits else 0
            cells.append(
                ResourceUsage(
                    resource, quantity_of(resource, total), quantity_of(resource, borrowed)
                )
            )
        rows.append(FlavorUsage(flavor, tuple(cells)))
    return tuple(rows)


def _local_usage(spec: QueueSpec | None, used: Amounts) -> tuple[LocalFlavorUsage, ...]:
    if spec is None:
        return ()
    return tuple(
        LocalFlavorUsage(
            flavor,
            tuple(
                LocalResourceUsage(
                    resource,
                    quantity_of(resource, used.get(FlavorResource(flavor, resource), 0)),
                )
                for resource in resources
            ),
        )
        for flavor, resources in _resources(spec)
    )


# ---- the quota and usage of a cohort and everything below it, for its status and its gauges ------


@frozen
class CohortUsage:
    """The present numbers of a cohort, with or without an object.

    Attributes:
        parent: the cohort above, empty for a root.
        root: the top of its tree, empty when the parents form a cycle.
        cycle: the cohorts of that cycle, each before its parent.
        quota: the nominal quota of its subtree.
        reserved: the usage of all workloads with quota in the ClusterQueues below.
        admitted: how many workloads are admitted in the ClusterQueues below.
        share: its share of borrowed quota, infinite when it borrows with weight 0; None while fair
            sharing is off.
    """

    parent: str
    root: str
    cycle: tuple[str, ...]
    quota: Amounts
    reserved: Amounts
    admitted: int
    share: float | None


def cohort_status(cache: QuotaCache, name: str, *, shares: bool) -> CohortUsage | None:
    """The numbers of a cohort; the cost is proportional to the number of ClusterQueues below.

    Args:
        cache: knows the trees.
        name: the cohort.
        shares: whether fair sharing is on.

    Returns:
        None if no object has the name and nothing uses it.
    """
    forest = cache.forest
    quota = forest.subtree_quota(name)
    if quota is None:
        return None
    cycle = forest.cycle_above(name)
    _, *above = forest.path(name)
    states = [state for queue in forest.below(name) if (state := cache.state(queue)) is not None]
    return CohortUsage(
        parent=above[0] if above else "",
        root="" if cycle else forest.root_of(name),
        cycle=cycle,
        quota={pair: limits.nominal for pair, limits in quota.items()},
        reserved=total_of(state.tally.reserved for state in states),
        admitted=sum(state.tally.admitted for state in states),
        share=share_of_cohort(cache, name) if shares else None,
    )


# --------------------------------------------------------------------------------------------------


class Knowledge:
    """Cache and queues after the facts so far.

    Args:
        settings: the administrator's choices.
        history: past preemptions; by default those that it sees.

    Attributes:
        history: past preemptions that the preemption policy needs.
    """

    def __init__(self, settings: Settings, history: PreemptionHistory | None) -> None:
        self._settings = settings
        self.history = history or PreemptionHistory(settings.preemption.remembers)
        self._facts = Facts(settings, self.history)
        self._state = self._facts.state
        self._cache = self._state.cache
        self._queues = self._state.queues

    @property
    def places_pods(self) -> bool:
        """Whether requests for a topology are decided (KEP-2724)."""
        return self._settings.places_pods

    @property
    def node_failures(self) -> NodeFailureRules:
        """When a node has failed, and what that means."""
        return self._settings.node_failures

    @property
    def shares_fairly(self) -> bool:
        """Whether statuses have shares."""
        return self._settings.fair_sharing is not None

    @property
    def past_usage(self) -> PastUsage | None:
        """Past usage of LocalQueues; None if it does not count. Do not change it."""
        return self._state.past_usage

    @property
    def cache(self) -> QuotaCache:
        """The cache of charged workloads. Do not change it."""
        return self._cache

    def activity(self, name: str) -> Activity:
        """The Active condition of a ClusterQueue."""
        return self._cache.activity(name) or UNKNOWN

    def cluster_queue_status(self, name: str) -> QueueStatus | None:
        """The numbers of a ClusterQueue's status, None if it does not exist."""
        state, queue = self._cache.state(name), self._queues.cluster_queues.get(name)
        if state is None or queue is None:
            return None
        share = share_of_queue(self._cache, name) if self.shares_fairly else None
        return queue_status(state.spec, state.tally, queue, share)

    def pending_requests(self) -> dict[tuple[str, ...], float]:
        """The requests of waiting Workloads, by ClusterQueue and resource, in base units."""
        requests: dict[tuple[str, ...], float] = {}
        for name, queue in self._queues.cluster_queues.items():
            for resource, amount in pending_requests(queue).items():
                requests[name, resource] = float(quantity_of(resource, amount).fraction())
        return requests

    def pending_shapes(self) -> dict[tuple[str, ...], float]:
        """How many different Workloads wait in each ClusterQueue, by queue and status."""
        shapes: dict[tuple[str, ...], float] = {}
        for name, queue in self._queues.cluster_queues.items():
            tried, parked = pending_shapes(queue)
            shapes[name, "active"], shapes[name, "inadmissible"] = float(tried), float(parked)
        return shapes

    def waiting(self) -> Iterator[tuple[str, str, Collection[ObjectKey]]]:
        """The number of waiting Workloads by ClusterQueue and status; those in flight count as
        active.
        """
        for name, queue in self._queues.cluster_queues.items():
            resting = frozenset(parked(queue))
            yield name, "active", queue.items.keys() - resting
            yield name, "inadmissible", resting

    def admitted(self) -> Iterator[Holder]:
        """The workloads that are admitted in ClusterQueues that exist."""
        for name in self._cache.names:
            state = self._cache.state(name)
            holders = () if state is None else state.holders.values()
            yield from (holder for holder in holders if holder.admitted)

    def cohort_status(self, name: str) -> CohortUsage | None:
        """The numbers of a cohort; None if no object has the name and nothing uses it."""
        return cohort_status(self._cache, name, shares=self.shares_fairly)

    def cohorts(self, name: str) -> tuple[str, ...]:
        """The cohorts above a ClusterQueue, the root last; empty when it does not exist."""
        spec = self._cache.spec(name)
        return self._cache.forest.path(spec.cohort) if spec is not None and spec.cohort else ()

    def local_queue_status(self, key: ObjectKey) -> LocalQueueNumbers | None:
        """The numbers of a LocalQueue's status, None if it does not exist."""
        local_queue = self._state.local_queues.get(key)
        if local_queue is None:
            return None
        state = self._cache.state(local_queue.spec.cluster_queue)
        tally = state.local.get(key) if state is not None else None
        spec = state.spec if state is not None else None
        past, pending = past_of(self.past_usage, key), self._state.waiting.size(key)
        return local_queue_status(spec, tally or Tally(), pending, past)

    def inadmissible_in(self, key: ObjectKey) -> int:
        """How many workloads of a LocalQueue wait for a change, or are not in an active queue."""
        items = (self._queues.get(member) for member in self._state.waiting.members(key))
        return sum(
            item is None or not item.queue.active or item.place is PendingPlace.INADMISSIBLE
            for item in items
        )

    def leaving(self) -> tuple[Holder, ...]:
        """The workloads that count as leaving before their objects show it."""
        return self._facts.workloads.leaving()

    def placed(self) -> tuple[NewPlaces, ...]:
        """The new places of workloads with quota before their objects show them."""
        return self._facts.workloads.placed()

    def rests(self, key: ObjectKey) -> bool:
        """Whether a workload is parked, and further cycles alone would not try it again."""
        item = self._queues.get(key)
        return item is not None and item.rests

    def promised_near(self, key: ObjectKey) -> tuple[ObjectKey, ...]:
        """The other workloads in the tree of a waiting one that wait for their victims, sorted."""
        item, promised = self._queues.get(key), self._queues.promised
        if item is None:
            return ()
        scope = item.queue.scope
        return tuple(
            sorted(one for one in promised if one != key and promised[one].queue.scope is scope)
        )

    def is_promised(self, key: ObjectKey) -> bool:
        """Whether a waiting Workload gets room as soon as others have left."""
        return key in self._queues.promised

    def workload(self, key: ObjectKey) -> Workload | None:
        """The last known state of an unfinished Workload."""
        return self._facts.workloads.find(key)

    def info(self, key: ObjectKey) -> WorkloadInfo | None:
        """The computed form of a workload that waits in a ClusterQueue, or None."""
        item = self._queues.get(key)
        return None if item is None else item.info

    def pending(self, name: str) -> tuple[WorkloadInfo, ...]:
        """The workloads that wait in a ClusterQueue, in its order, including one in flight."""
        return tuple(item.info for item in self._in_order(name))

    def exists(self, name: str) -> bool:
        """Whether there is a ClusterQueue of that name."""
        return self._cache.spec(name) is not None

    def cluster_queue_of(self, key: ObjectKey) -> str | None:
        """The ClusterQueue that a LocalQueue names; None when there is no such LocalQueue."""
        local_queue = self._state.local_queues.get(key)
        return None if local_queue is None else local_queue.spec.cluster_queue

    def waits_in(self, name: str) -> int:
        """How many workloads wait in a ClusterQueue."""
        queue = self._queues.cluster_queues.get(name)
        return 0 if queue is None else len(queue.items)

    def places(self, name: str) -> dict[ObjectKey, PendingPlace]:
        """The place of every workload that waits in a ClusterQueue, in its order."""
        return {item.info.key: item.place for item in self._in_order(name)}

    def _in_order(self, name: str) -> tuple[PendingWorkload, ...]:
        queue = self._queues.cluster_queues.get(name)
        return () if queue is None else queue.in_order()

    def standing(self, key: ObjectKey) -> QueuePosition:
        """The standing of a workload."""
        holder = self._cache.holder(key)
        if holder is not None:
            where = Where.ASSUMED if holder.assumed else Where.HOLDS_QUOTA
            return QueuePosition(where, holder.cluster_queue)
        item = self._queues.get(key)
        if item is None:
            return self._facts.workloads.outside(key)
        home = item.queue.name
        activity = self.activity(home)
        if not activity.active:
            why = ClusterQueueInactive(home, activity.reason)
            return QueuePosition(Where.CLUSTER_QUEUE_INACTIVE, home, why)
        if item.back_off is not None:
            return QueuePosition(Where.BACKING_OFF, home, BackingOff(item.back_off))
        where = {
            PendingPlace.HEAP: Where.PENDING,
            PendingPlace.INADMISSIBLE: Where.INADMISSIBLE,
            PendingPlace.IN_FLIGHT: Where.IN_FLIGHT,
        }[item.place]
        return QueuePosition(where, home, item.reason or NotEvaluated())
