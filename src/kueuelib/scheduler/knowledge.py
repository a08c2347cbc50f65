"""The readable knowledge of the engine: numbers for statuses, and the place of every workload."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import quantity_of
from kueuelib.scheduler.cohort_status import CohortUsage, cohort_status
from kueuelib.scheduler.decide.preemption.history import History
from kueuelib.scheduler.facts.handlers import Facts
from kueuelib.scheduler.facts.standing import Standing, Where
from kueuelib.scheduler.object_reasons import BackingOff, ClusterQueueInactive
from kueuelib.scheduler.pending.item import Pending, PendingPlace
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.activity import UNKNOWN, Activity
from kueuelib.scheduler.quota.cache import Cache
from kueuelib.scheduler.quota.cluster_queue import Tally
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.past_usage import PastUsage
from kueuelib.scheduler.quota.weighted_share import share_of_queue
from kueuelib.scheduler.reasons import NotEvaluated
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.status import (
    LocalQueueNumbers,
    QueueStatus,
    local_queue_status,
    parked,
    past_of,
    pending_requests,
    pending_shapes,
    queue_status,
)


class Knowledge:
    """Cache and queues after the facts so far.

    Args:
        settings: the administrator's choices.
        history: past preemptions; by default those that it sees.

    Attributes:
        history: past preemptions that the preemption policy needs.
    """

    def __init__(self, settings: Settings, history: History | None) -> None:
        self._settings = settings
        self.history = history or History(settings.preemption.remembers)
        self._facts = Facts(settings, self.history)
        self._state = self._facts.state
        self._cache = self._state.cache
        self._queues = self._state.queues

    @property
    def shares_fairly(self) -> bool:
        """Whether statuses have shares."""
        return self._settings.fair_sharing is not None

    @property
    def past_usage(self) -> PastUsage | None:
        """Past usage of LocalQueues; None if it does not count. Do not change it."""
        return self._state.past_usage

    @property
    def cache(self) -> Cache:
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

    def places(self, name: str) -> dict[ObjectKey, PendingPlace]:
        """The place of every workload that waits in a ClusterQueue, in its order."""
        return {item.info.key: item.place for item in self._in_order(name)}

    def _in_order(self, name: str) -> list[Pending]:
        queue = self._queues.cluster_queues.get(name)
        return [] if queue is None else sorted(queue.items.values(), key=queue.heap.place)

    def standing(self, key: ObjectKey) -> Standing:
        """The standing of a workload."""
        holder = self._cache.holder(key)
        if holder is not None:
            where = Where.ASSUMED if holder.assumed else Where.HOLDS_QUOTA
            return Standing(where, holder.cluster_queue)
        item = self._queues.get(key)
        if item is None:
            return self._facts.workloads.outside(key)
        home = item.queue.name
        activity = self.activity(home)
        if not activity.active:
            why = ClusterQueueInactive(home, activity.reason)
            return Standing(Where.CLUSTER_QUEUE_INACTIVE, home, why)
        if item.back_off is not None:
            return Standing(Where.BACKING_OFF, home, BackingOff(item.back_off))
        where = {
            PendingPlace.HEAP: Where.PENDING,
            PendingPlace.INADMISSIBLE: Where.INADMISSIBLE,
            PendingPlace.IN_FLIGHT: Where.IN_FLIGHT,
        }[item.place]
        return Standing(where, home, item.reason or NotEvaluated())
