"""The law of waking: every try of a parked workload has a cause, and the cause is true."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_worlds import QUEUES, Replay, wild_world

from kueuelib.api.kueue import ANY, NEVER
from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import Workload
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Head, Plan, decide
from kueuelib.scheduler.decide.preemption.victims import Victim
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.pending.queue import PendingPlace, PendingWorkload, Scope
from kueuelib.scheduler.pending.waking import ScopeChanges, ShapeVerdict
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.reasons import NoFlavors, Reason
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)

Usage = Counter[tuple[str, FlavorResource]]


class Ledger(Engine):
    """An engine whose usage is written down after everything that happens to it.

    Attributes:
        freed: what became free, one entry for every moment.
        charged: whether anything was charged, one entry for every moment.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.freed: list[frozenset[FlavorResource]] = []
        self.charged: list[bool] = []
        self._usage: Usage = Counter()

    @property
    def moment(self) -> int:
        return len(self.freed)

    def observe(self, event: events.Event, now: float) -> Any:
        effects = super().observe(event, now)
        self._write_down()
        return effects

    def settle(self, plan: Plan, now: float) -> Settled:
        settled = super().settle(plan, now)
        self._write_down()
        return settled

    def _write_down(self) -> None:
        usage: Usage = Counter()
        for holder in self.cache.holders.values():
            for pair, amount in holder.usage.items():
                usage[holder.cluster_queue, pair] += amount
        self.freed.append(frozenset(pair for _, pair in self._usage - usage))
        self.charged.append(bool(usage - self._usage))
        self._usage = usage

    def frees(self, since: int) -> set[FlavorResource]:
        return set().union(*self.freed[since:])

    def changes(self, since: int) -> bool:
        return any(self.freed[since:]) or any(self.charged[since:])


Kind = tuple[str, str]
"""A ClusterQueue and a shape."""


def kind_of(head: Head) -> Kind:
    return head.cluster_queue, head.info.shape


@attrs.define
class Pass:
    """A pass over the flavors: the moments of its first and last try, whether it lost a flavor, and
    what the last try came to.
    """

    began: int
    tried: int = 0
    lost: bool = False
    reason: Reason | None = None


class Watched(Replay):
    """A replay that asks for the cause of every try of a workload that was parked.

    Attributes:
        causes: how many tries were caused by what.
    """

    def __init__(self, facts: list[events.Event], policy: Settings) -> None:
        super().__init__(facts, policy)
        self.engine: Ledger = Ledger(policy)
        self.engine.observe_all(facts, 0)
        self.passes: dict[Kind, Pass] = {}
        self.refused: dict[Kind, Pass] = {}
        self.rounds: list[int] = []
        self.woken: dict[Kind, str] = {}
        self.causes: Counter[str] = Counter()

    def cycle(self) -> bool:
        self.now += 1
        parked = {key for key, place in self.places().items() if place is PendingPlace.INADMISSIBLE}
        before = self.scope.rounds
        found = self.engine.next_cycle(self.now)
        if found is None:
            return False
        if self.scope.rounds != before:
            self.rounds.append(self.engine.moment)
            assert not self.rounds[:-3] or self.engine.changes(self.rounds[-4])
            self.wake_at_rest(parked)
        for head in found.heads:
            if kind_of(head) in self.woken:
                self.causes[self.woken.pop(kind_of(head))] += 1
            elif head.info.key in parked:
                freed = self.engine.frees(self.last(kind_of(head)).tried)
                enough = self.is_enough(found, head, freed)
                assert enough or self.keeps_quota(found, head), f"{head.info.key}: {freed}"
                self.causes["free" if enough else "keeps"] += 1
            one = self.passes.setdefault(kind_of(head), Pass(self.engine.moment))
            one.tried = self.engine.moment
        plan = decide(found, self.now)
        self.plans.append(plan)
        settled = self.engine.settle(plan, self.now)
        self.engine.freed[-1] |= {
            pair
            for head in found.promised
            if head.promise is not None and head.info.key in plan.broken
            for pair in head.promise.usage
        }
        self.note(found, plan)
        self.carry_out(settled)
        for preemption in plan.preemptions:
            for victim in preemption.victims:
                self.leave(victim)
        return True

    def places(self) -> dict[ObjectKey, PendingPlace]:
        return {key: place for name in QUEUES for key, place in self.engine.places(name).items()}

    @property
    def scope(self) -> Scope:
        queue = self.engine._queues.cluster_queues.get(QUEUES[0])
        assert queue is not None
        return queue.scope

    def note(self, found: CycleInput, plan: Plan) -> None:
        """Remembers which passes over the flavors go on, and which of them refused a shape."""
        skipped = {wait.key for wait in plan.waits if wait.skipped}
        reasons = {wait.key: wait.reason for wait in plan.waits}
        for head in found.heads:
            kind, item = kind_of(head), self.engine._queues.get(head.info.key)
            self.passes[kind].lost |= head.info.key in skipped
            self.passes[kind].reason = reasons.get(head.info.key)
            if item is None or item.place is PendingPlace.INADMISSIBLE:
                ended = self.passes.pop(kind)
                if item is not None and item.group is not None:
                    self.refused[kind] = ended

    def last(self, kind: Kind) -> Pass:
        """The pass that refused a shape last."""
        return self.refused.get(kind, Pass(0))

    def wake_at_rest(self, parked: set[ObjectKey]) -> None:
        """Remembers which shapes the engine just requeued, and checks that it had to."""
        self.woken.clear()
        for key in sorted(parked):
            item = self.engine._queues.get(key)
            assert item is not None
            if item.place is PendingPlace.INADMISSIBLE:
                continue
            everybody = self.scope.rounds == 2
            self.woken[item.queue.name, item.info.shape] = "everybody" if everybody else "doubtful"
            assert everybody or self.is_doubtful(item), f"{key}: nothing was taken that matters"

    def is_doubtful(self, item: PendingWorkload) -> bool:
        """Whether a verdict may not hold, although nothing became free since."""
        last, queue = self.last((item.queue.name, item.info.shape)), item.queue.spec
        if last.lost or any(self.engine.freed[last.began : last.tried]):
            return True
        several = len(queue.flavors) > 1 and len(item.info.pod_sets) > 1
        reclaims = queue.preemption.reclaim_within_cohort != NEVER
        return (several or reclaims) and any(self.engine.charged[last.began :])

    def is_enough(self, found: CycleInput, head: Head, freed: set[FlavorResource]) -> bool:
        """Whether any of what became free may be enough for the smallest pod set."""
        queue, snapshot = found.frozen.queues[head.cluster_queue], Snapshot(found.frozen)
        for pair in freed & queue.spec.limits.keys():
            asked = [
                each.per_pod[pair.resource] * min(each.count, each.min_count or each.count)
                for each in head.info.pod_sets
                if pair.resource in each.per_pod
            ]
            if asked and not queue.spec.preemption.never_preempts:
                return True
            if asked and min(asked) <= snapshot.available(queue, pair):
                return True
        return False

    def keeps_quota(self, found: CycleInput, head: Head) -> bool:
        """Whether a head that cannot be admitted keeps from others what is free of its quota."""
        queue, reason = found.frozen.queues[head.cluster_queue], self.last(kind_of(head)).reason
        return (
            isinstance(reason, NoFlavors)
            and reason.needs_preemption
            and queue.spec.preemption.reclaim_within_cohort != ANY
            and any(
                Snapshot(found.frozen).available(queue, pair)
                for pair in queue.spec.limits
                if any(pair.resource in each.per_pod for each in head.info.pod_sets)
            )
        )


class Told(Replay):
    """A replay that remembers who was admitted and who had to leave, in which order."""

    def __init__(self, facts: list[events.Event], policy: Settings) -> None:
        super().__init__(facts, policy)
        self.story: list[tuple[str, ...]] = []

    def carry_out(self, settled: Settled) -> None:
        self.story.append(tuple(sorted(admit.key.name for admit in settled.admissions)))
        super().carry_out(settled)

    def leave(self, victim: Victim) -> None:
        self.story.append(("out", victim.key.name))
        super().leave(victim)


def story_of(seed: int, *, all_at_once: bool) -> list[tuple[str, ...]]:
    """What happens in a small cohort while Workloads come and end.

    Args:
        seed: of the world.
        all_at_once: whether all that is parked for quota is tried again after any release, as in
            today's Kueue.
    """
    rng = random.Random(seed)
    facts, coming = small_cohort(rng)
    replay = Told(facts, Settings())
    with pytest.MonkeyPatch.context() as patch:
        if all_at_once:
            patch.setattr(ShapeVerdict, "is_due_in_turn", is_due_after_any_release)
        replay.rest()
        while True:
            if coming and rng.random() < 0.5:
                replay.come(coming.pop(0))
            elif not replay.finish_one() and not coming:
                return [step for step in replay.story if step]
            replay.rest()


def is_due_after_any_release(verdict: ShapeVerdict, news: ScopeChanges, *_: object) -> bool:
    return verdict.is_about_quota and news.changed_or_freed_since(verdict.tried)


def small_cohort(rng: random.Random) -> tuple[list[events.Event], list[Workload]]:
    """Two or three ClusterQueues of one cohort with one or two flavors, and what comes there."""
    flavors = ["one", "two"][: rng.choice([1, 1, 2])]
    names = QUEUES[: rng.choice([2, 2, 3])]
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(flavor)) for flavor in flavors]
    for name in names:
        quotas = {flavor: {"gpu": rng.randint(0, 6)} for flavor in flavors}
        facts.append(events.ClusterQueueSet(make_cluster_queue(name, quotas, cohort="x")))
        facts.append(events.LocalQueueSet(make_local_queue(name, name)))
    coming = [
        make_workload(f"w{number}", rng.choice(names), {"gpu": rng.randint(1, 5)}, created=number)
        for number in range(rng.randint(5, 9))
    ]
    first = rng.randint(2, 4)
    facts += [events.WorkloadSet(workload) for workload in coming[:first]]
    return facts, coming[first:]


def causes_of(seed: int) -> Counter[str]:
    """What caused the tries in one world, while its workloads end one after the other."""
    rng = random.Random(seed)
    replay = Watched(wild_world(rng), Settings(priority_sorting=rng.random() < 0.8))
    replay.rest()
    while replay.finish_one():
        replay.rest()
    return replay.causes


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_every_try_of_a_parked_workload_has_a_true_cause(seed: int) -> None:
    causes_of(seed)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_turns_that_pass_change_no_decision(seed: int) -> None:
    """Where nobody preempts, the same Workloads get quota as if all parked ones were tried."""
    assert story_of(seed, all_at_once=False) == story_of(seed, all_at_once=True)


def test_tries_whose_cause_cannot_be_expressed_are_few() -> None:
    """Of the tries of parked workloads at most one in fifty is made because all begin anew."""
    causes = sum((causes_of(seed) for seed in range(200)), Counter())
    assert causes["free"] > 1000
    assert causes["doubtful"] > 100
    assert 0 < 50 * causes["everybody"] < causes.total()
