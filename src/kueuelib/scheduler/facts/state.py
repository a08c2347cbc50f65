"""What the engine knows besides single workloads, shared by all that take over facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kueuelib.api.kueue import LocalQueue
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.preemption.history import History
from kueuelib.scheduler.events import Effects
from kueuelib.scheduler.facts.grouping import Grouping
from kueuelib.scheduler.pending.queues import Queues
from kueuelib.scheduler.pending.scopes import Scope
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.cache import Cache


@attrs.define
class EffectsBuilder:
    """Collects what one fact touches."""

    cluster_queues: set[str] = attrs.field(factory=set)
    local_queues: set[ObjectKey] = attrs.field(factory=set)
    workloads: set[ObjectKey] = attrs.field(factory=set)

    def take(self) -> Effects:
        """What was collected, and an empty collection for the next fact."""
        found = Effects(
            tuple(sorted(self.cluster_queues)),
            tuple(sorted(self.local_queues)),
            tuple(sorted(self.workloads)),
        )
        self.cluster_queues, self.local_queues, self.workloads = set(), set(), set()
        return found


class State:
    """Cache, queues, and who belongs to whom.

    Attributes:
        cache: who holds quota.
        history: past preemptions, as far as the preemption policy needs them.
        queues: who waits in a ClusterQueue.
        namespaces: the labels of the namespaces.
        local_queues: the LocalQueues.
        local_queue_of: the LocalQueue that each unfinished workload names.
        cluster_queue_of: the ClusterQueue to which each LocalQueue leads.
        waiting: the LocalQueue of each workload that waits for quota.
        in_namespace: the namespace of each unfinished workload.
        effects: what the present fact touches.
    """

    def __init__(self, history: History) -> None:
        self.cache = Cache()
        self.history = history
        self.queues = Queues(self._admits, self.cache.available)
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.local_queues: dict[ObjectKey, LocalQueue] = {}
        self.local_queue_of: Grouping[ObjectKey, ObjectKey] = Grouping()
        self.cluster_queue_of: Grouping[ObjectKey, str] = Grouping()
        self.waiting: Grouping[ObjectKey, ObjectKey] = Grouping()
        self.in_namespace: Grouping[ObjectKey, str] = Grouping()
        self.effects = EffectsBuilder()

    def _admits(self, cluster_queue: str, namespace: str) -> bool:
        spec, labels = self.cache.spec(cluster_queue), self.namespaces.get(namespace)
        return spec is not None and labels is not None and spec.selector.matches(labels)

    def named_local_queue(self, key: ObjectKey) -> ObjectKey:
        """The LocalQueue that a workload names, whether it exists or not."""
        return self.local_queue_of.group(key) or ObjectKey(key.namespace, "")

    def scope(self, cluster_queue: str) -> Scope | None:
        """Those that a ClusterQueue and its tree influence; None when it does not exist."""
        queue = self.queues.queue(cluster_queue)
        return None if queue is None else queue.scope

    def wake(
        self,
        cluster_queue: str,
        freed: Iterable[FlavorResource] | None = None,
        *,
        from_outside: bool = True,
    ) -> None:
        """Something may help parked workloads of a ClusterQueue and its tree.

        Args:
            cluster_queue: where it happened.
            freed: what became free; None when something else happened.
            from_outside: whether it happened for another cause than a preemption.
        """
        scope = self.scope(cluster_queue)
        if scope is not None:
            scope.wake(freed, from_outside=from_outside)

    def note_all_in(self, cluster_queue: str) -> None:
        """Everybody of a ClusterQueue is to be looked at, as its activity may have changed."""
        self.effects.local_queues.update(self.cluster_queue_of.members(cluster_queue))
        queue = self.queues.queue(cluster_queue)
        if queue is not None:
            self.effects.workloads.update(queue.items)
        state = self.cache.state(cluster_queue)
        if state is not None:
            self.effects.workloads.update(state.holders)
