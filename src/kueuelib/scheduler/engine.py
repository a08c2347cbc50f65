"""The decision engine: takes facts, returns plans, and has numbers for statuses.

    engine.observe(event, now)            for every change that a watch delivers
    cycle = engine.next_cycle(now)        None if nothing can have changed since the last cycle
    plan = decide(cycle, now)             pure, in `kueuelib.scheduler.decide.cycle`
    settled = engine.settle(plan, now)    charges the admissions, queues the rest again

Everything is synchronous and belongs to one writer. Between `next_cycle` and `settle` events may be
observed: a workload that changed meanwhile is neither admitted nor parked on the old verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.scheduler.decide.cycle import Admit, CycleInput, Head, Plan, Wait
from kueuelib.scheduler.decide.cycle_values import NewPlaces, NodeEviction, SecondPass
from kueuelib.scheduler.decide.kept_room import Promises, wanted_by_owners
from kueuelib.scheduler.decide.preemption.guard import Judge, PolicyFault, PreemptionHistory
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption, Victim, home_of
from kueuelib.scheduler.decide.revalidation import missing_quota, victims_for, withdrawn_flavor
from kueuelib.scheduler.events import Effects, Event
from kueuelib.scheduler.knowledge import Knowledge
from kueuelib.scheduler.pending.queue import PendingWorkload
from kueuelib.scheduler.pending.tries import Requeue
from kueuelib.scheduler.pending.workload_info import assumed_holder
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.decay import Value
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.snapshot import Frozen, Snapshot
from kueuelib.scheduler.reasons import (
    MakingRoom,
    NotEvaluated,
    QuotaWithdrawn,
    Reason,
)
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.scheduler.values import changed

SOONEST = 1.0
"""The shortest time, in seconds, until a preemption policy is asked again, so that an impatient
policy does not keep a processor busy.
"""


@frozen
class Settled:
    """The result of settling a plan.

    Attributes:
        admissions: the admissions that are charged and have to be written. The others were void,
            because their workload or ClusterQueue changed while the cycle ran.
        waits: the verdicts that still hold and must be reported.
        effects: the objects whose status may have changed.
        preemptions: the workloads to evict, without those that are leaving already and those of
            preemptors that changed while the cycle ran.
        faults: failures of the preemption policy, after which Kueue's own decided.
        placed: the Workloads that hold quota, and get new places.
        evictions: those that found no places for the pods of a failed node.
        unplaced: those that hold quota, and found no places now.
    """

    admissions: tuple[Admit, ...]
    waits: tuple[Wait, ...]
    effects: Effects
    preemptions: tuple[PendingPreemption, ...] = ()
    faults: tuple[PolicyFault, ...] = ()
    placed: tuple[NewPlaces, ...] = ()
    evictions: tuple[NodeEviction, ...] = ()
    unplaced: tuple[Wait, ...] = ()


class Engine(Knowledge):
    """Cache and queues behind one interface. Arguments and attributes are those of `Knowledge`."""

    def __init__(
        self, settings: Settings = DEFAULTS, history: PreemptionHistory | None = None
    ) -> None:
        super().__init__(settings, history)
        self._making_room: dict[ObjectKey, None] = {}
        self._again: dict[str, float] = {}
        self._usage: Mapping[ObjectKey, Value] = {}
        self._now = 0.0

    def observe(self, event: Event, now: float) -> Effects:
        """Takes over one fact.

        Args:
            event: what changed.
            now: seconds since the epoch.
        """
        self.advance(now)
        effects = self._facts.observe(event, now)
        if not effects.cluster_queues or not self._making_room:
            return effects
        # Victims may have left for them. A head that still lacks room asks for it again.
        waiting = {key for key in self._making_room if self._cache.holder(key) is not None}
        self._making_room.clear()
        return changed(effects, workloads=tuple(sorted({*effects.workloads, *waiting})))

    def observe_all(self, events: Iterable[Event], now: float) -> Effects:
        """Takes over several facts."""
        effects = [self.observe(event, now) for event in events]
        return Effects(
            tuple(sorted({name for one in effects for name in one.cluster_queues})),
            tuple(sorted({key for one in effects for key in one.local_queues})),
            tuple(sorted({key for one in effects for key in one.workloads})),
        )

    def advance(self, now: float) -> None:
        """Advances the time, and samples past usage of LocalQueues if that is due.

        Args:
            now: seconds since the epoch; a time earlier than the last one counts as the last one.
        """
        self._now = max(self._now, now)
        past = self._state.past_usage
        if past is not None:
            past.advance(self._now)

    # --- cycles

    def has_work(self, now: float) -> bool:
        """Whether `next_cycle` may find a head. A cycle that finds none costs little."""
        self.advance(now)
        self._look_again(now)
        self._look_at_order()
        return self._queues.has_work(now) or self._state.has_second_pass(now)

    def next_deadline(self) -> float | None:
        """When time alone makes work, in seconds since the epoch, or None."""
        deadlines = [self._queues.next_deadline(), *self._again.values()]
        deadlines += self._state.second_pass_times()
        past = self._state.past_usage
        if past is not None and self._queues.blocked_by_usage():
            deadlines.append(past.next_sample())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _look_again(self, now: float) -> None:
        """Wakes the trees for which the preemption policy may now answer differently."""
        for name in [name for name, at in self._again.items() if at <= now]:
            del self._again[name]
            self._state.note_preemption(name)

    def _look_at_order(self) -> None:
        """Gives a turn to LocalQueues that now come first."""
        past = self._state.past_usage
        if past is not None and self._usage is not past.values():
            self._usage = past.values()
            for queue in self._queues.blocked_by_usage():
                if queue.heap.has_new_head:
                    queue.scope.touch()

    def reconsider(self) -> None:
        """Tries the heads of each ClusterQueue again, although nothing changed.

        What is parked stays parked. Not needed for progress: every change that can affect a verdict
        causes a new try by itself.
        """
        for scope in self._queues.scopes.values():
            scope.touch()

    def next_cycle(self, now: float) -> CycleInput | None:
        """The heads that are worth a try, and the state to try them on; None if there are none.

        The list of heads may be empty if there are only verdicts to report, or if the turns of
        hopeless workloads are skipped. The heads are in flight until `settle` is called with their
        plan.
        """
        while self.has_work(now):
            self._queues.begin_cycle()
            promised = self._promised() if self._queues.promised else ()
            popped = self._queues.pop_heads()
            if popped is None and not promised and not self._state.has_second_pass(now):
                continue
            heads = tuple(map(self._head, popped or ()))
            both = (*heads, *promised)
            homes = _homes(both)
            leaving = self._leaving_near(homes)
            second = self._second_passes(now)
            homes += [one.holder.cluster_queue for one in second]
            frozen = self._freeze(homes)
            past = self.history.past()
            ready = self._cache.all_ready
            wanted = self._wanted(both) if self._settings.protects_nominal else {}
            return CycleInput(
                heads, frozen, ready, self._settings, past, promised, leaving, wanted, second
            )
        return None

    def _second_passes(self, now: float) -> tuple[SecondPass, ...]:
        """The Workloads that hold quota, and try to get places again now."""
        passes = []
        for key in self._state.take_second_passes(now):
            holder, info = self._cache.holder(key), self._facts.workloads.info_of(key)
            if holder is not None and info is not None:
                passes.append(SecondPass(info, holder))
        return tuple(passes)

    def _wanted(self, heads: Iterable[Head]) -> dict[str, dict[FlavorResource, int]]:
        """What waiting workloads near the heads want of the nominal quota of their queues."""
        scopes = {
            scope.root: scope
            for scope in (self._state.scope(head.cluster_queue) for head in heads)
            if scope is not None
        }
        flavors = self._cache.flavors
        return {
            queue.name: wanted_by_owners(queue.spec, flavors, queue.owners())
            for scope in scopes.values()
            for queue in scope.waiting.values()
        }

    def _head(self, item: PendingWorkload) -> Head:
        return Head(
            item.info,
            item.queue.name,
            self._state.namespaces.get(item.info.key.namespace),
            item.progress,
            item.promise,
            item.preemptions,
        )

    def _promised(self) -> tuple[Head, ...]:
        """The preemptors that wait in the scopes of the next cycle.

        One that would not fit even if all that leaves were gone is a head again.
        """
        items = self._queues.due_promises()
        heads = [
            changed(self._head(item), helped=item.queue.scope.helped > item.looked)
            for item in items
        ]
        frozen = self._freeze(homes := _homes(heads))
        leaving = self._leaving_near(homes)
        promises = Promises(Snapshot(frozen), frozen, heads, leaving, self._settings)
        for head in promises.broken:
            self._queues.break_promise(head.info.key)
        for item in items:
            item.looked = self._queues.instant
        return tuple(kept.head for kept in promises.standing)

    def _leaving_near(self, cluster_queues: Iterable[str]) -> tuple[Holder, ...]:
        """Those that count as gone in the trees of ClusterQueues."""
        parallel = self._settings.parallel_preemptors
        return self._state.leaving_near(cluster_queues) if parallel else ()

    def _freeze(self, cluster_queues: Iterable[str]) -> Frozen:
        past = self._state.past_usage
        return self._cache.freeze(cluster_queues, None if past is None else past.values())

    def settle(self, plan: Plan, now: float) -> Settled:
        """Charges the admissions of a plan, marks its victims as leaving, and requeues its other
        heads.
        """
        self.advance(now)
        admissions, waits, unplaced = [], [], []
        preemptions = tuple(filter(None, map(self._issue, plan.preemptions)))
        touched: dict[ObjectKey, str] = {}
        for admit in plan.admissions:
            item = self._still_stands(admit.key, admit.uid, admit.cluster_queue)
            if item is not None:
                self._queues.redeem(admit.key, admit.usage)
                self._facts.workloads.assume(
                    assumed_holder(
                        item.info, admit.cluster_queue, admit.usage, admitted=admit.admitted
                    ),
                    self._now,
                )
                admissions.append(admit)
            else:
                self._queues.retry(admit.key, now=now)
            touched[admit.key] = admit.cluster_queue
        workloads = self._facts.workloads
        placed = tuple(filter(workloads.assume_places, plan.placed))
        evictions = tuple(
            one for one in plan.evictions if workloads.let_go(one.key, one.uid, one.key)
        )
        for wait in plan.waits:
            if wait.again is not None:
                at = max(wait.again, now + SOONEST)
                self._again[wait.cluster_queue] = min(at, self._again.get(wait.cluster_queue, at))
            if self._still_stands(wait.key, wait.uid, wait.cluster_queue) is not None:
                waits.append(wait)
            else:
                holder = self._cache.holder(wait.key)
                if holder is not None and holder.uid == wait.uid:
                    unplaced.append(wait)
            self._queues.requeue(
                wait.key,
                wait.requeue,
                wait.reason,
                wait.progress,
                now=now,
                promise=wait.promise,
            )
            touched[wait.key] = wait.cluster_queue
        for key in plan.broken:
            self._queues.break_promise(key)
        waits += (self._wait(item, reason) for item, reason in self._queues.silence.take())
        effects = Effects(
            tuple(sorted(set(touched.values()))),
            tuple(sorted(set(map(self._state.named_local_queue, touched)))),
        )
        return Settled(
            tuple(admissions),
            tuple(waits),
            effects,
            preemptions,
            plan.faults,
            placed,
            evictions,
            tuple(unplaced),
        )

    def _issue(self, preemption: PendingPreemption) -> PendingPreemption | None:
        """The part of a preemption that must still be written; None if nothing is left."""
        key, name = preemption.key, preemption.cluster_queue
        item = self._still_stands(key, preemption.uid, name)
        holder = self._cache.holder(key)
        if item is None and (holder is None or holder.uid != preemption.uid):
            return None
        victims = self._let_go(preemption.victims, key)
        if not victims:
            return None
        if item is not None:
            item.preempts(frozenset(victim.holder.uid for victim in victims))
        return changed(preemption, victims=victims, reserved=item is None)

    def _let_go(self, victims: Iterable[Victim], preemptor: ObjectKey) -> tuple[Victim, ...]:
        """Marks workloads as leaving; returns those that were not before."""
        leaving = tuple(
            victim
            for victim in victims
            if self._facts.workloads.let_go(victim.key, victim.holder.uid, preemptor)
        )
        for victim in leaving:
            holder = victim.holder
            self.history.issued(holder.uid, holder.local_queue, self._now)
        return leaving

    def _still_stands(self, key: ObjectKey, uid: str, cluster_queue: str) -> PendingWorkload | None:
        """The workload of a decision; None if the decision is void by now."""
        item = self._queues.get(key)
        if (
            item is not None
            and (item.in_flight or item.is_promised)
            and item.info.uid == uid
            and item.queue.name == cluster_queue
        ):
            activity = self._cache.activity(cluster_queue)
            if activity is not None and activity.active:
                return item
        return None

    def _wait(self, item: PendingWorkload, reason: Reason) -> Wait:
        info, home = item.info, item.queue.name
        return Wait(
            info.key,
            info.uid,
            info.workload,
            home,
            reason,
            Requeue.GENERIC,
            pod_sets=info.pod_sets,
        )

    # --- reservations

    def void_reservation(self, key: ObjectKey, *, flavors_only: bool = False) -> Reason | None:
        """Why a reservation may not become an admission; None if it still may (KEP-993).

        Args:
            key: a workload that holds quota; for one that is not known to hold any, the answer is
                None.
            flavors_only: verify only that its flavors still exist in its ClusterQueue.
        """
        holder = self._cache.holder(key)
        if holder is None:
            return NotEvaluated()
        frozen = self._freeze([holder.cluster_queue])
        if flavors_only:
            queue = frozen.queues.get(holder.cluster_queue)
            return None if queue is None else withdrawn_flavor(queue, holder.usage)
        missing = missing_quota(frozen, holder)
        if not isinstance(missing, QuotaWithdrawn):
            return missing
        victims, again, _ = self._victims_for(frozen, holder)  # make_room reports the faults
        if victims:
            return MakingRoom(tuple(sorted(victim.key for victim in victims)))
        if again is None:
            return missing
        return changed(missing, again=max(again, self._now + SOONEST))

    def _victims_for(
        self, frozen: Frozen, holder: Holder
    ) -> tuple[tuple[Victim, ...], float | None, tuple[PolicyFault, ...]]:
        """The workloads that must leave for a reservation, when others may be found, and the
        failures of the preemption policy.
        """
        judge = Judge(self._settings.preemption, self.history.past(), self._now)
        near = [
            self._head(item)
            for item in self._queues.promised.values()
            if item.queue.scope is self._state.scope(holder.cluster_queue)
        ]
        leaving = self._leaving_near([holder.cluster_queue])
        victims, again = victims_for(frozen, holder, self._settings, judge, near, leaving)
        return victims, again, judge.reported

    def make_room(self, key: ObjectKey) -> Settled:
        """Marks the victims of a reservation as leaving; returns those without an earlier eviction.

        The next change that may help names the workload in its effects.
        """
        nothing = Settled((), (), Effects())
        holder, workload = self._cache.holder(key), self._facts.workloads.find(key)
        if holder is None or workload is None:
            return nothing
        frozen = self._freeze([holder.cluster_queue])
        chosen, _, faults = self._victims_for(frozen, holder)
        if chosen:
            self._making_room[key] = None
        victims = self._let_go(chosen, key)
        if not victims:
            return attrs.evolve(nothing, faults=faults)
        name = holder.cluster_queue
        places = Snapshot(frozen).places({name, *map(home_of, victims)})
        preemption = PendingPreemption(
            key, holder.uid, workload, name, places, victims, reserved=True
        )
        return attrs.evolve(nothing, preemptions=(preemption,), faults=faults)


def _homes(heads: Iterable[Head]) -> list[str]:
    return [head.cluster_queue for head in heads]
