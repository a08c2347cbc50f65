"""Applies facts about workloads, and about what their requests depend on, to cache and queues.

A fact is applied as a whole: released quota, the workloads that it may help, and the workload that
released it are all in place before the next cycle can begin.
"""

from __future__ import annotations

from enum import Enum

from kueuelib.api.core import LimitRange, RuntimeClass
from kueuelib.api.kueue import Admission, LocalQueue, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.api.workload import TopologyAssignment
from kueuelib.api.workload_state import has_quota, is_finished
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle_values import NewPlaces
from kueuelib.scheduler.decide.second_pass import needs_second_pass
from kueuelib.scheduler.facts.state import EngineState
from kueuelib.scheduler.object_reasons import (
    AdmissionGated,
    Inactive,
    LocalQueueFacts,
    PodsMissing,
    local_queue_reason,
)
from kueuelib.scheduler.pending.requests import NO_LIMIT_RANGES, LimitSummary, summarize
from kueuelib.scheduler.pending.workload_info import (
    Needs,
    WorkloadInfo,
    gates_of,
    holder_of,
    missing_pods,
    needs_of,
    workload_info,
)
from kueuelib.scheduler.policy import KUEUE
from kueuelib.scheduler.quota.amounts import Amounts, Charge, FlavorResource, leaves_of
from kueuelib.scheduler.quota.holders import LOWEST_PRIORITY, Holder
from kueuelib.scheduler.quota.resource_rules import ResourceRules
from kueuelib.scheduler.reasons import Reason
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.topology.pod_sets import is_placed, places_of
from kueuelib.scheduler.topology.tree import charges_beyond, total_charges
from kueuelib.scheduler.values import changed

# What Workloads ask for, and the objects that this depends on: LimitRanges and RuntimeClasses.

RECENT = 256
"""The number of different needs that are kept for other Workloads."""


class Requirements:
    """Computes what Workloads ask for, once for all that share their pod sets.

    Args:
        rules: for counting resources.
        places_pods: whether requests for a topology are served.
    """

    def __init__(self, rules: ResourceRules, *, places_pods: bool = True) -> None:
        self._rules = rules
        self._places_pods = places_pods
        self._limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self._limits: dict[str, LimitSummary] = {}
        self._runtime_classes: dict[str, RuntimeClass] = {}
        self._known: dict[tuple[int, int, int | None], tuple[object, object, Needs]] = {}

    def put_limit_range(self, limit_range: LimitRange) -> None:
        """A LimitRange was created or changed."""
        self._limit_ranges.setdefault(limit_range.namespace, {})[limit_range.name] = limit_range
        self._summarize(limit_range.namespace)

    def drop_limit_range(self, key: ObjectKey) -> None:
        """A LimitRange was deleted."""
        self._limit_ranges.get(key.namespace, {}).pop(key.name, None)
        self._summarize(key.namespace)

    def _summarize(self, namespace: str) -> None:
        self._limits[namespace] = summarize(self._limit_ranges.get(namespace, {}).values())

    def put_runtime_class(self, runtime_class: RuntimeClass) -> None:
        """A RuntimeClass was created or changed."""
        self._runtime_classes[runtime_class.name] = runtime_class
        self._known.clear()

    def drop_runtime_class(self, name: str) -> None:
        """A RuntimeClass was deleted."""
        self._runtime_classes.pop(name, None)
        self._known.clear()

    def of(self, workload: Workload) -> Needs:
        """What a Workload asks for."""
        limits = self._limits.get(workload.namespace, NO_LIMIT_RANGES)
        if workload.status.reclaimable_pods:
            return self._needs(workload, limits)
        pod_sets = workload.spec.pod_sets
        key = (id(pod_sets), id(limits), workload.spec.priority)
        known = self._known.get(key)
        if known is None:
            needs = self._needs(workload, limits)
            known = self._known[key] = (pod_sets, limits, needs)  # so no others have these ids
            if len(self._known) > RECENT:
                del self._known[next(iter(self._known))]
        return known[-1]

    def _needs(self, workload: Workload, limits: LimitSummary) -> Needs:
        classes, rules, places = self._runtime_classes, self._rules, self._places_pods
        return needs_of(workload, limits, classes, rules, places_pods=places)


# ---- the standing of a Workload in the decision engine -------------------------------------------


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
class QueuePosition:
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


# --------------------------------------------------------------------------------------------------


class WorkloadFacts:
    """The unfinished workloads and their places.

    Args:
        state: the other knowledge of the engine.
        settings: the administrator's choices.
    """

    def __init__(self, state: EngineState, settings: Settings) -> None:
        self._state = state
        self._settings = settings
        self._workloads: dict[ObjectKey, Workload] = {}
        self._outside: dict[ObjectKey, QueuePosition] = {}
        self._requirements = Requirements(settings.resources, places_pods=settings.places_pods)
        self._leaving: dict[ObjectKey, ObjectKey] = {}  # for which preemptor
        self._placing: dict[ObjectKey, NewPlaces] = {}  # not confirmed yet

    def info_of(self, key: ObjectKey) -> WorkloadInfo | None:
        """The computed form of an unfinished workload."""
        workload = self._workloads.get(key)
        return None if workload is None else self._info(workload)

    def outside(self, key: ObjectKey) -> QueuePosition:
        """The place of a workload that neither holds quota nor waits in a ClusterQueue."""
        return self._outside.get(key, QueuePosition(Where.UNKNOWN))

    def find(self, key: ObjectKey) -> Workload | None:
        """The last known state of an unfinished workload."""
        return self._workloads.get(key)

    def leaving(self) -> tuple[Holder, ...]:
        """The workloads that count as leaving before their objects show it."""
        holders = (self._state.cache.holder(key) for key in self._leaving)
        return tuple(holder for holder in holders if holder is not None)

    def placed(self) -> tuple[NewPlaces, ...]:
        """The new places that count before their objects show them."""
        return tuple(self._placing.values())

    # --- what the requests of a workload depend on

    def limit_range_set(self, event: events.LimitRangeSet, now: float) -> None:
        """A LimitRange was created or changed."""
        self._requirements.put_limit_range(event.limit_range)
        self._renew(self._state.in_namespace.members(event.limit_range.namespace), now)

    def limit_range_gone(self, event: events.LimitRangeGone, now: float) -> None:
        """A LimitRange was deleted."""
        self._requirements.drop_limit_range(event.key)
        self._renew(self._state.in_namespace.members(event.key.namespace), now)

    def runtime_class_set(self, event: events.RuntimeClassSet, now: float) -> None:
        """A RuntimeClass was created or changed."""
        self._requirements.put_runtime_class(event.runtime_class)
        self._renew(self._users_of_runtime_class(event.runtime_class.name), now)

    def runtime_class_gone(self, event: events.RuntimeClassGone, now: float) -> None:
        """A RuntimeClass was deleted."""
        self._requirements.drop_runtime_class(event.name)
        self._renew(self._users_of_runtime_class(event.name), now)

    def _users_of_runtime_class(self, name: str) -> tuple[ObjectKey, ...]:
        return tuple(
            key
            for key, workload in self._workloads.items()
            if any(one.template.spec.runtime_class_name == name for one in workload.spec.pod_sets)
        )

    def _renew(self, keys: tuple[ObjectKey, ...], now: float) -> None:
        for key in keys:
            item = self._state.queues.get(key)
            if item is not None:
                self._state.queues.push(item.queue.name, self._info(self._workloads[key]), now=now)

    def _info(self, workload: Workload) -> WorkloadInfo:
        info = workload_info(
            workload,
            self._requirements.of(workload),
            timestamp=self._settings.queue_timestamp,
            by_age=not self._settings.priority_sorting,
        )
        if self._settings.preemption is KUEUE:
            return info
        return changed(info, shape=f"{info.shape} {info.local_queue}")

    def _holder(self, workload: Workload, admission: Admission, *, assumed: bool) -> Holder:
        holder = holder_of(
            workload,
            admission,
            assumed=assumed,
            timestamp=self._settings.queue_timestamp,
            by_age=not self._settings.priority_sorting,
        )
        if not self._settings.places_pods or not is_placed(admission):
            return holder
        needs = {one.name: one.on_node for one in self._requirements.of(workload).pod_sets}
        levels = {flavor.name: flavor.levels for flavor in self._state.cache.flavors.values()}
        placed = places_of(admission, needs, levels).values()
        leaves = total_charges(one.charges for one in placed)
        return changed(holder, usage=Charge(holder.usage, leaves))

    # --- workloads

    def workload_set(self, event: events.WorkloadSet, now: float) -> None:
        """A Workload was created or changed."""
        workload = event.workload
        key = workload.key
        known = self._workloads.get(key)
        if known is not None and known.metadata.uid != workload.metadata.uid:
            self._forget_workload(key)
        self._state.history.seen(workload, now)
        if is_finished(workload):
            self._forget_workload(key)
            self._outside[key] = QueuePosition(Where.FINISHED)
            return
        self._note(key)  # the LocalQueue that it leaves, if it does
        self._workloads[key] = workload
        local_queue = ObjectKey(key.namespace, workload.spec.queue_name)
        self._state.local_queue_of.put(key, local_queue)
        self._state.in_namespace.put(key, key.namespace)
        self._state.effects.local_queues.add(local_queue)
        admission = workload.status.admission
        if admission is not None and has_quota(workload):
            self._leave_queues(key)
            self._hold_as_written(workload, admission, now)
            return
        holder = self._state.cache.holder(key)
        if holder is not None:
            if holder.assumed:
                return  # a state from before the reservation, which its order is about to write
            self._release(key)
        self.place(key, now)

    def _hold_as_written(self, workload: Workload, admission: Admission, now: float) -> None:
        """Charges a Workload as its object says, and for new places that it does not say yet."""
        holder = self._as_written(self._holder(workload, admission, assumed=False))
        place = self._placing.get(holder.key)
        if (
            place is not None
            and not holder.evicted
            and _places(admission) != _places(place.admission)
        ):
            self._hold(changed(holder, usage=place.usage))
            return
        self._placing.pop(holder.key, None)
        self._hold(holder)
        if self._settings.places_pods:
            needs = not holder.evicted and needs_second_pass(workload)
            self._state.need_second_pass(holder.key, now, needs=needs)

    def charge_again(self, now: float) -> None:
        """The topologies of flavors have changed, and so what Workloads take of nodes."""
        for key, holder in tuple(self._state.cache.holders.items()):
            workload = self._workloads.get(key)
            admission = None if workload is None else workload.status.admission
            if workload is None or admission is None or holder.assumed:
                continue  # what is assumed was charged when it was decided
            if is_placed(admission):
                self._hold_as_written(workload, admission, now)

    def _note(self, key: ObjectKey) -> None:
        local_queue = self._state.local_queue_of.group(key)
        if local_queue is not None:
            self._state.effects.local_queues.add(local_queue)
        item = self._state.queues.get(key)
        if item is not None:
            self._state.effects.cluster_queues.add(item.queue.name)
        holder = self._state.cache.holder(key)
        if holder is not None:
            self._state.effects.cluster_queues.add(holder.cluster_queue)

    def place_all(self, local_queue: ObjectKey, now: float) -> None:
        """Moves the workloads of a changed LocalQueue or ClusterQueue to their new places."""
        for key in self._state.local_queue_of.members(local_queue):
            self._state.effects.workloads.add(key)
            if self._state.cache.holder(key) is None:
                self.place(key, now)

    def place(self, key: ObjectKey, now: float) -> None:
        """Moves a workload without quota to its place."""
        workload = self._workloads[key]
        local_queue = self._state.local_queues.get(self._state.named_local_queue(key))
        standing = self._position_outside(workload, local_queue)
        if standing is not None or local_queue is None:
            self._leave_queues(key)
            if standing is not None:
                self._outside[key] = standing
                if standing.where is Where.NO_QUEUE:
                    self._state.waiting.put(key, self._state.named_local_queue(key))
            return
        self._outside.pop(key, None)
        self._state.waiting.put(key, local_queue.key)
        self._state.queues.push(local_queue.spec.cluster_queue, self._info(workload), now=now)
        self._state.effects.cluster_queues.add(local_queue.spec.cluster_queue)

    def _position_outside(
        self, workload: Workload, local_queue: LocalQueue | None
    ) -> QueuePosition | None:
        if workload.metadata.deletion_timestamp is not None:
            return QueuePosition(Where.LEAVING)
        if not workload.spec.active:
            return QueuePosition(Where.DEACTIVATED, reason=Inactive())
        if gates := gates_of(workload):
            return QueuePosition(Where.GATED, reason=AdmissionGated(gates))
        if missing := missing_pods(workload):
            return QueuePosition(Where.PODS_MISSING, reason=PodsMissing(missing))
        facts = None if local_queue is None else LocalQueueFacts.of(local_queue)
        known = facts is not None and self._state.cache.spec(facts.cluster_queue) is not None
        reason = local_queue_reason(workload.spec.queue_name, facts, known=known)
        return None if reason is None else QueuePosition(Where.NO_QUEUE, reason=reason)

    def _leave_queues(self, key: ObjectKey) -> None:
        item = self._state.queues.take_out(key)
        if item is not None:
            self._state.effects.cluster_queues.add(item.queue.name)
        self._state.waiting.drop(key)
        self._outside.pop(key, None)

    def workload_gone(self, event: events.WorkloadGone, _: float) -> None:
        """A Workload was deleted."""
        self._forget_workload(event.key)

    def _forget_workload(self, key: ObjectKey) -> None:
        self._note(key)
        item = self._state.queues.get(key)
        if item is not None:
            item.begin_anew()
        self._leave_queues(key)
        if self._state.cache.holder(key) is not None:
            self._release(key, ended=True)
        self._state.local_queue_of.drop(key)
        self._state.in_namespace.drop(key)
        self._workloads.pop(key, None)

    # --- quota

    def assume(self, holder: Holder, now: float) -> None:
        """Charges a workload before the API server confirms its reservation."""
        self._leave_queues(holder.key)
        self._hold(holder if holder.admitted else self._state.cache.dated(holder, now))

    def _hold(self, holder: Holder) -> None:
        cache, past = self._state.cache, self._state.past_usage
        ready = cache.all_ready
        self._count_until_now(holder.key, holder.local_queue)
        before = cache.hold(holder)
        if holder.evicted or (before is not None and before.evicted):
            self._note_leaving(holder, before)
        if past is not None and not (before is not None and before.admitted):
            past.entered(holder)
        self._state.effects.cluster_queues.add(holder.cluster_queue)
        same = before is not None and before.cluster_queue == holder.cluster_queue
        known = before.usage if before is not None and same else {}
        self._note_charge(holder, _more(holder.usage, known))
        if before is not None:
            freed = _more(before.usage, holder.usage if same else {})
            if freed:
                self._state.effects.cluster_queues.add(before.cluster_queue)
                self._note_freed(before.cluster_queue, freed)
            leaves = charges_beyond(leaves_of(before.usage), leaves_of(holder.usage))
            if leaves:
                self._state.note_room(leaves)
            self._state.note_change(before, holder, self._settings.preemption)
        self._when_all_ready(ready)

    def _count_until_now(self, key: ObjectKey, *local_queues: ObjectKey) -> None:
        """Counts past usage up to now, before the quota of a workload changes."""
        past = self._state.past_usage
        if past is None:
            return
        holder = self._state.cache.holder(key)
        for local_queue in (*local_queues, *(() if holder is None else (holder.local_queue,))):
            past.before_change(local_queue)

    def _note_charge(self, holder: Holder, charged: list[FlavorResource]) -> None:
        """Notes a charge: workloads that may reclaim may now preempt a borrower."""
        if not charged:
            return
        name = holder.cluster_queue
        scope, state = self._state.scope(name), self._state.cache.state(name)
        if scope is None or state is None:
            return
        borrowed: list[FlavorResource | None] = []
        lowest = 0
        if state.spec.cohort:
            forest = self._state.cache.forest
            borrowed += [pair for pair in charged if forest.borrows(name, pair)]
        if borrowed:
            lowest = state.priorities.lowest or 0
            if (state.spec.cohort, "") != scope.root:
                # Its cohort borrows, so its siblings that borrow from it may be preempted as well.
                lowest = LOWEST_PRIORITY
        if borrowed and self._settings.fair_sharing:
            borrowed, lowest = [None], LOWEST_PRIORITY
        scope.note_charged(name, borrowed, lowest)

    def _release(self, key: ObjectKey, *, ended: bool = False) -> None:
        ready = self._state.cache.all_ready
        self._count_until_now(key)
        holder = self._state.cache.release(key)
        self._state.need_second_pass(key, 0.0, needs=False)
        self._placing.pop(key, None)
        self._leaving.pop(key, None)
        if holder is not None:
            self._state.history.released(holder.uid)
            self._state.leaving.pop(key, None)
            self._state.effects.cluster_queues.add(holder.cluster_queue)
            self._state.effects.local_queues.add(holder.local_queue)
            from_outside = ended or not holder.evicted
            # What leaves counts as gone already, except for those that were promised its room.
            counted = holder.evicted and self._settings.parallel_preemptors and not ended
            freed = [] if counted else _more(holder.usage, {})
            self._note_freed(holder.cluster_queue, freed, from_outside=from_outside)
            if leaves := leaves_of(holder.usage):
                self._state.note_room(leaves, from_outside=from_outside)
        self._when_all_ready(ready)

    def _note_freed(
        self, cluster_queue: str, freed: list[FlavorResource], *, from_outside: bool = True
    ) -> None:
        """Notes that a workload holds less than before.

        Shares count all flavors of all resources, so with fair sharing every release may change who
        can be preempted.
        """
        scope = self._state.scope(cluster_queue)
        if scope is None:
            return
        if self._settings.fair_sharing:
            scope.note_changed(from_outside=from_outside)
        else:
            scope.note_freed(freed, from_outside=from_outside)

    def _when_all_ready(self, before: bool) -> None:
        if self._settings.block_admission and self._state.cache.all_ready and not before:
            for scope in self._state.queues.scopes.values():
                scope.touch()

    def assumed(self, event: events.Assumed, now: float) -> None:
        """Quota is being reserved for a Workload."""
        workload = self._workloads.get(event.key)
        if workload is None or self._state.cache.holder(event.key) is not None:
            return
        self.assume(self._holder(workload, event.admission, assumed=True), now)
        self._note(event.key)

    def forgotten(self, event: events.Forgotten, now: float) -> None:
        """Release quota whose reservation could not be written, and queue the workload again."""
        holder = self._state.cache.holder(event.key)
        if holder is None or not holder.assumed or event.uid not in ("", holder.uid):
            return
        self._release(event.key)
        self.place(event.key, now)
        self._note(event.key)

    # --- new places of workloads with quota

    def assume_places(self, place: NewPlaces) -> bool:
        """Charges new places before the API server confirms them; False if the quota is gone."""
        holder = self._state.cache.holder(place.key)
        if holder is None or holder.uid != place.uid or holder.evicted:
            return False
        self._placing[place.key] = place
        self._state.need_second_pass(place.key, 0.0, needs=False)
        self._hold(changed(holder, usage=place.usage))
        return True

    def not_placed(self, event: events.NotPlaced, now: float) -> None:
        """New places could not be written: those of the object count again."""
        place, workload = self._placing.get(event.key), self._workloads.get(event.key)
        if place is None or workload is None or event.uid not in ("", place.uid):
            return
        del self._placing[event.key]
        admission = workload.status.admission
        assert admission is not None, "otherwise its quota was released"
        self._hold_as_written(workload, admission, now)
        self._note(event.key)

    # --- preemption

    def _as_written(self, holder: Holder) -> Holder:
        """The charge, which counts as leaving if its eviction was decided but not observed yet."""
        before = self._state.cache.holder(holder.key)
        holder = holder if before is None else holder.after(before)
        if holder.evicted:
            self._leaving.pop(holder.key, None)
        elif holder.key in self._leaving:
            return changed(holder, evicted=True)
        return holder

    def let_go(self, key: ObjectKey, uid: str, preemptor: ObjectKey) -> bool:
        """Counts a victim as leaving before its object shows it; False if it leaves already."""
        holder = self._state.cache.holder(key)
        if holder is None or holder.uid != uid or holder.evicted:
            return False
        self._leaving[key] = preemptor
        self._state.need_second_pass(key, 0.0, needs=False)
        self._mark(holder, evicted=True)
        return True

    def eviction_failed(self, event: events.EvictionFailed, now: float) -> None:
        """A victim could not be evicted."""
        holder = self._state.cache.holder(event.key)
        if event.key in self._leaving and holder is not None and event.uid in ("", holder.uid):
            preemptor = self._state.queues.get(self._leaving.pop(event.key))
            self._state.history.failed(holder.uid)
            if event.why:
                self._state.history.refused(holder.uid, event.why, now)
            if event.why and preemptor is not None:
                preemptor.keeps(holder.uid)
            self._mark(holder, evicted=False)
            if self._settings.places_pods:
                needs = needs_second_pass(self._workloads[event.key])
                self._state.need_second_pass(event.key, now, needs=needs)
            self._state.note_reservations(self._state.scope(holder.cluster_queue))

    def _mark(self, holder: Holder, *, evicted: bool) -> None:
        marked = changed(holder, evicted=evicted)
        self._state.cache.hold(marked)
        self._note_leaving(marked, holder)
        scope = self._state.scope(holder.cluster_queue)
        if scope is not None:
            scope.touch()
        self._state.note_change(holder, marked, self._settings.preemption)

    def _note_leaving(self, holder: Holder, before: Holder | None) -> None:
        """Notes who leaves; the next heads may count that room as free."""
        if not holder.evicted:
            self._state.leaving.pop(holder.key, None)
            return
        self._state.leaving[holder.key] = holder
        if self._settings.parallel_preemptors and not (before and before.evicted):
            self._note_freed(holder.cluster_queue, [*holder.usage], from_outside=False)


def _places(admission: Admission) -> list[TopologyAssignment | None]:
    return [one.topology_assignment for one in admission.pod_set_assignments]


def _more(one: Amounts, other: Amounts) -> list[FlavorResource]:
    """The amounts by which one charge exceeds another."""
    return [pair for pair, amount in one.items() if amount > other.get(pair, 0)]
