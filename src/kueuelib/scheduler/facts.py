"""How each fact changes cache and queues (spec/scheduling 2.6, 3.4, 3.6).

A fact is taken over as a whole: quota that is released, the workloads that this may help, and the
workload that released it are all in place before the next cycle can begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kueuelib.api import conditions, names
from kueuelib.api.core import LimitRange, RuntimeClass
from kueuelib.api.kueue import NONE, LocalQueue, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.cache import Cache
from kueuelib.scheduler.events import Effects, Event
from kueuelib.scheduler.grouping import Grouping
from kueuelib.scheduler.holders import Holder
from kueuelib.scheduler.limit_ranges import NO_LIMIT_RANGES, LimitSummary, summarize
from kueuelib.scheduler.queue_spec import QueueSpec, flavor_of, queue_spec
from kueuelib.scheduler.queues import Queues, Scope, scope_of
from kueuelib.scheduler.reasons import (
    ClusterQueueMissing,
    Inactive,
    LocalQueueMissing,
    LocalQueueStopped,
)
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.standing import Standing, Where
from kueuelib.scheduler.workload_info import (
    WorkloadInfo,
    holder_of,
    holds_quota,
    is_finished,
    workload_info,
)


def stop_policy(found: LocalQueue) -> str:
    """The stopPolicy of a LocalQueue, which the typed object knows or only carries."""
    policy = getattr(found.spec, "stop_policy", None) or found.spec.extra.get("stopPolicy")
    return policy or NONE


class Facts:
    """All that the engine was told, and what follows from it.

    Attributes:
        cache: who holds quota.
        queues: who waits in a ClusterQueue.
        namespaces: the labels of the namespaces.
        local_queues: the LocalQueues.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.cache = Cache()
        self.queues = Queues(self._admits)
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.local_queues: dict[ObjectKey, LocalQueue] = {}
        self._local_queue_of: Grouping[ObjectKey, ObjectKey] = Grouping()
        self._cluster_queue_of: Grouping[ObjectKey, str] = Grouping()
        self._waiting: Grouping[ObjectKey, ObjectKey] = Grouping()
        self._in_namespace: Grouping[ObjectKey, str] = Grouping()
        self._workloads: dict[ObjectKey, Workload] = {}
        self._outside: dict[ObjectKey, Standing] = {}
        self._limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self._limits: dict[str, LimitSummary] = {}
        self._runtime_classes: dict[str, RuntimeClass] = {}
        self._confirmed: dict[ObjectKey, str] = {}
        self._effects = _EffectsBuilder()
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.ClusterQueueSet: self._cluster_queue_set,
            events.ClusterQueueGone: self._cluster_queue_gone,
            events.LocalQueueSet: self._local_queue_set,
            events.LocalQueueGone: self._local_queue_gone,
            events.FlavorSet: self._flavor_set,
            events.FlavorGone: self._flavor_gone,
            events.CheckSet: self._check_set,
            events.CheckGone: self._check_gone,
            events.NamespaceSet: self._namespace_set,
            events.NamespaceGone: self._namespace_gone,
            events.LimitRangeSet: self._limit_range_set,
            events.LimitRangeGone: self._limit_range_gone,
            events.RuntimeClassSet: self._runtime_class_set,
            events.RuntimeClassGone: self._runtime_class_gone,
            events.WorkloadSet: self._workload_set,
            events.WorkloadGone: self._workload_gone,
            events.Assumed: self._assumed,
            events.Forgotten: self._forgotten,
            events.Confirmed: self._confirm,
        }

    def observe(self, event: Event, now: float) -> Effects:
        """Takes over one fact; what must be looked at again."""
        self._handlers[type(event)](event, now)
        return self._effects.take()

    # --- reads

    def outside(self, key: ObjectKey) -> Standing:
        """Where a workload is that neither holds quota nor waits in a ClusterQueue."""
        return self._outside.get(key, Standing(Where.UNKNOWN))

    def local_queue_of(self, key: ObjectKey) -> ObjectKey:
        """The LocalQueue that a workload names, whether it exists or not."""
        return self._local_queue_of.group(key) or ObjectKey(key.namespace, "")

    def waiting_in(self, local_queue: ObjectKey) -> int:
        """How many workloads of a LocalQueue wait for quota."""
        return self._waiting.size(local_queue)

    def _admits(self, cluster_queue: str, namespace: str) -> bool:
        spec, labels = self.cache.spec(cluster_queue), self.namespaces.get(namespace)
        return spec is not None and labels is not None and spec.selector.matches(labels)

    def _scope(self, cluster_queue: str) -> Scope | None:
        spec = self.cache.spec(cluster_queue)
        return scope_of(spec.cohort, cluster_queue) if spec is not None else None

    def _wake(self, cluster_queue: str) -> None:
        scope = self._scope(cluster_queue)
        if scope is not None:
            self.queues.wake(scope)

    # --- ClusterQueues

    def _cluster_queue_set(self, event: events.ClusterQueueSet, now: float) -> None:
        spec = queue_spec(event.cluster_queue)
        before = self.cache.spec(spec.name)
        if not self.cache.set_queue(spec):
            return
        self._effects.cluster_queues.add(spec.name)
        self._sync_queue(spec)
        if before is None:
            for local_queue in self._cluster_queue_of.members(spec.name):
                self._place_all(local_queue, now)
        elif before.cohort != spec.cohort:
            self.queues.wake(scope_of(before.cohort, spec.name))
        if before is not None:
            self._note_all_in(spec.name)
        self._wake(spec.name)

    def _sync_queue(self, spec: QueueSpec) -> None:
        activity = self.cache.activity(spec.name)
        self.queues.set_queue(
            spec.name,
            cohort=spec.cohort,
            strict=spec.strict,
            active=activity is not None and activity.active,
        )

    def _cluster_queue_gone(self, event: events.ClusterQueueGone, now: float) -> None:
        before = self.cache.spec(event.name)
        if before is None:
            return
        self.cache.remove_queue(event.name)
        for key in self.queues.remove_queue(event.name):
            self._place(key, now)
            self._effects.workloads.add(key)
        self._effects.cluster_queues.add(event.name)
        self._effects.local_queues.update(self._cluster_queue_of.members(event.name))
        self.queues.wake(scope_of(before.cohort, event.name))

    def _note_all_in(self, cluster_queue: str) -> None:
        """Everybody of a ClusterQueue is to be looked at, as its activity may have changed."""
        self._effects.local_queues.update(self._cluster_queue_of.members(cluster_queue))
        queue = self.queues.queue(cluster_queue)
        if queue is not None:
            self._effects.workloads.update(queue.items)
        state = self.cache.state(cluster_queue)
        if state is not None:
            self._effects.workloads.update(state.holders)

    def _review(self, users: tuple[str, ...]) -> None:
        """Flavors or checks changed: activity may have, and what they allow."""
        for name in users:
            spec = self.cache.spec(name)
            if spec is not None:
                self._sync_queue(spec)
                self._effects.cluster_queues.add(name)
                self._note_all_in(name)
                self._wake(name)

    def _flavor_set(self, event: events.FlavorSet, _: float) -> None:
        self._review(self.cache.set_flavor(flavor_of(event.flavor)))

    def _flavor_gone(self, event: events.FlavorGone, _: float) -> None:
        self._review(self.cache.remove_flavor(event.name))

    def _check_set(self, event: events.CheckSet, _: float) -> None:
        active = conditions.is_true(event.check.status.conditions, names.ACTIVE)
        self._review(self.cache.set_check(event.check.name, active=active))

    def _check_gone(self, event: events.CheckGone, _: float) -> None:
        self._review(self.cache.remove_check(event.name))

    # --- LocalQueues

    def _local_queue_set(self, event: events.LocalQueueSet, now: float) -> None:
        new = event.local_queue
        old = self.local_queues.get(new.key)
        self.local_queues[new.key] = new
        self._cluster_queue_of.put(new.key, new.spec.cluster_queue)
        if old is not None and old.spec == new.spec:
            return
        self._effects.local_queues.add(new.key)
        self._place_all(new.key, now)

    def _local_queue_gone(self, event: events.LocalQueueGone, now: float) -> None:
        if self.local_queues.pop(event.key, None) is None:
            return
        self._cluster_queue_of.drop(event.key)
        self._effects.local_queues.add(event.key)
        self._place_all(event.key, now)

    def _place_all(self, local_queue: ObjectKey, now: float) -> None:
        for key in self._local_queue_of.members(local_queue):
            self._effects.workloads.add(key)
            if self.cache.holder(key) is None:
                self._place(key, now)

    # --- what the requests of a workload depend on

    def _namespace_set(self, event: events.NamespaceSet, _: float) -> None:
        if self.namespaces.get(event.name) == event.labels:
            return
        self.namespaces[event.name] = event.labels
        homes = {self.queues.home(key) for key in self._in_namespace.members(event.name)}
        for home in sorted(home for home in homes if home is not None):
            self.queues.let_in(home, event.name)

    def _namespace_gone(self, event: events.NamespaceGone, _: float) -> None:
        self.namespaces.pop(event.name, None)

    def _limit_range_set(self, event: events.LimitRangeSet, now: float) -> None:
        found = event.limit_range
        self._limit_ranges.setdefault(found.namespace, {})[found.name] = found
        self._new_limits(found.namespace, now)

    def _limit_range_gone(self, event: events.LimitRangeGone, now: float) -> None:
        self._limit_ranges.get(event.key.namespace, {}).pop(event.key.name, None)
        self._new_limits(event.key.namespace, now)

    def _new_limits(self, namespace: str, now: float) -> None:
        self._limits[namespace] = summarize(self._limit_ranges.get(namespace, {}).values())
        self._renew(self._in_namespace.members(namespace), now)

    def _runtime_class_set(self, event: events.RuntimeClassSet, now: float) -> None:
        self._runtime_classes[event.runtime_class.name] = event.runtime_class
        self._renew(self._users_of_runtime_class(event.runtime_class.name), now)

    def _runtime_class_gone(self, event: events.RuntimeClassGone, now: float) -> None:
        self._runtime_classes.pop(event.name, None)
        self._renew(self._users_of_runtime_class(event.name), now)

    def _users_of_runtime_class(self, name: str) -> tuple[ObjectKey, ...]:
        return tuple(
            key
            for key, workload in self._workloads.items()
            if any(
                pod_set.template.spec.runtime_class_name == name
                for pod_set in workload.spec.pod_sets
            )
        )

    def _renew(self, keys: tuple[ObjectKey, ...], now: float) -> None:
        for key in keys:
            home = self.queues.home(key)
            if home is not None:
                self.queues.push(home, self._info(self._workloads[key]), now=now)

    def _info(self, workload: Workload) -> WorkloadInfo:
        return workload_info(
            workload,
            self._limits.get(workload.namespace, NO_LIMIT_RANGES),
            self._runtime_classes,
            timestamp=self._settings.queue_timestamp,
        )

    # --- workloads

    def _workload_set(self, event: events.WorkloadSet, now: float) -> None:
        workload = event.workload
        key = workload.key
        known = self._workloads.get(key)
        if known is not None and known.metadata.uid != workload.metadata.uid:
            self._forget_workload(key)
        if is_finished(workload):
            self._forget_workload(key)
            self._outside[key] = Standing(Where.FINISHED)
            return
        self._workloads[key] = workload
        self._local_queue_of.put(key, ObjectKey(key.namespace, workload.spec.queue_name))
        self._in_namespace.put(key, key.namespace)
        self._note(key)
        admission = workload.status.admission
        if admission is not None and holds_quota(workload):
            self._leave_queues(key)
            self._confirmed.pop(key, None)
            timestamp = self._settings.queue_timestamp
            self._hold(holder_of(workload, admission, assumed=False, timestamp=timestamp))
            return
        holder = self.cache.holder(key)
        if holder is not None:
            if holder.assumed and not self._is_behind(workload):
                return
            self._release(key)
        self._place(key, now)

    def _is_behind(self, workload: Workload) -> bool:
        """Whether an object without reservation is newer than its confirmed reservation."""
        confirmed, seen = self._confirmed.get(workload.key, ""), workload.metadata.resource_version
        return confirmed.isdecimal() and seen.isdecimal() and int(seen) > int(confirmed)

    def _note(self, key: ObjectKey) -> None:
        local_queue = self._local_queue_of.group(key)
        if local_queue is not None:
            self._effects.local_queues.add(local_queue)
        home = self.queues.home(key)
        if home is not None:
            self._effects.cluster_queues.add(home)
        holder = self.cache.holder(key)
        if holder is not None:
            self._effects.cluster_queues.add(holder.cluster_queue)

    def _place(self, key: ObjectKey, now: float) -> None:
        """Puts a workload without quota where it belongs."""
        workload = self._workloads[key]
        local_queue = self.local_queues.get(self.local_queue_of(key))
        standing = self._obstacle(workload, local_queue)
        if standing is not None or local_queue is None:
            self._leave_queues(key)
            if standing is not None:
                self._outside[key] = standing
                if standing.where not in (Where.LEAVING, Where.DEACTIVATED):
                    self._waiting.put(key, self.local_queue_of(key))
            return
        self._outside.pop(key, None)
        self._waiting.put(key, local_queue.key)
        self.queues.push(local_queue.spec.cluster_queue, self._info(workload), now=now)
        self._effects.cluster_queues.add(local_queue.spec.cluster_queue)

    def _obstacle(self, workload: Workload, local_queue: LocalQueue | None) -> Standing | None:
        if workload.metadata.deletion_timestamp is not None:
            return Standing(Where.LEAVING)
        if not workload.spec.active:
            return Standing(Where.DEACTIVATED, reason=Inactive())
        if local_queue is None:
            missing = LocalQueueMissing(workload.spec.queue_name)
            return Standing(Where.NO_LOCAL_QUEUE, reason=missing)
        if stop_policy(local_queue) != NONE:
            stopped = LocalQueueStopped(local_queue.name)
            return Standing(Where.LOCAL_QUEUE_STOPPED, reason=stopped)
        if self.cache.spec(local_queue.spec.cluster_queue) is None:
            gone = ClusterQueueMissing(local_queue.spec.cluster_queue)
            return Standing(Where.NO_CLUSTER_QUEUE, reason=gone)
        return None

    def _leave_queues(self, key: ObjectKey) -> None:
        home = self.queues.home(key)
        if home is not None:
            self._effects.cluster_queues.add(home)
        self.queues.take_out(key)
        self._waiting.drop(key)
        self._outside.pop(key, None)

    def _workload_gone(self, event: events.WorkloadGone, _: float) -> None:
        self._forget_workload(event.key)

    def _forget_workload(self, key: ObjectKey) -> None:
        self._note(key)
        self._leave_queues(key)
        if self.cache.holder(key) is not None:
            self._release(key)
        self._confirmed.pop(key, None)
        self._local_queue_of.drop(key)
        self._in_namespace.drop(key)
        self._workloads.pop(key, None)

    # --- quota

    def assume(self, holder: Holder) -> None:
        """Charges a workload before the API server confirms its reservation."""
        self._leave_queues(holder.key)
        self._hold(holder)

    def _hold(self, holder: Holder) -> None:
        ready = self.cache.all_ready
        before = self.cache.hold(holder)
        self._effects.cluster_queues.add(holder.cluster_queue)
        scope = self._scope(holder.cluster_queue)
        if scope is not None and (before is None or before.usage != holder.usage):
            self.queues.touch(scope)
        if before is not None and _gives_back(before, holder):
            self._effects.cluster_queues.add(before.cluster_queue)
            self._wake(before.cluster_queue)
        self._when_all_ready(ready)

    def _release(self, key: ObjectKey) -> None:
        ready = self.cache.all_ready
        holder = self.cache.release(key)
        self._confirmed.pop(key, None)
        if holder is not None:
            self._effects.cluster_queues.add(holder.cluster_queue)
            self._effects.local_queues.add(holder.local_queue)
            self._wake(holder.cluster_queue)
        self._when_all_ready(ready)

    def _when_all_ready(self, before: bool) -> None:
        if self._settings.block_admission and self.cache.all_ready and not before:
            self.queues.touch_all()

    def _assumed(self, event: events.Assumed, _: float) -> None:
        workload = self._workloads.get(event.key)
        if workload is None or self.cache.holder(event.key) is not None:
            return
        timestamp = self._settings.queue_timestamp
        self.assume(holder_of(workload, event.admission, assumed=True, timestamp=timestamp))
        self._note(event.key)

    def _forgotten(self, event: events.Forgotten, now: float) -> None:
        holder = self.cache.holder(event.key)
        if holder is None or not holder.assumed:
            return
        self._release(event.key)
        self._place(event.key, now)
        self._note(event.key)

    def _confirm(self, event: events.Confirmed, _: float) -> None:
        holder = self.cache.holder(event.key)
        if holder is not None and holder.assumed:
            self._confirmed[event.key] = event.resource_version


def _gives_back(before: Holder, after: Holder) -> bool:
    """Whether a new charge leaves anything of the old one to others."""
    if before.cluster_queue != after.cluster_queue:
        return True
    return any(amount > after.usage.get(pair, 0) for pair, amount in before.usage.items())


@attrs.define
class _EffectsBuilder:
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
