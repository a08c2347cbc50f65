"""Laws of preemptors that do not wait for each other's victims, while these take their time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_worlds import PAIRS, QUEUES, Replay, policies, worlds

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Plan, decide
from kueuelib.scheduler.decide.nomination import insists
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)


class Slow(Replay):
    """A world in which victims leave when the test says so.

    Attributes:
        leaving: the victims that still hold quota.
        evicted: all victims so far, in order.
        waiting: those that waited in each ClusterQueue before the last cycle.
    """

    def __init__(self, facts: list[events.Event], policy: Settings) -> None:
        super().__init__(facts, policy)
        self.leaving: dict[ObjectKey, None] = {
            holder.key: None for holder in self.engine.cache.holders.values() if holder.evicted
        }
        self.evicted: list[ObjectKey] = []
        self.waiting: dict[str, Collection[WorkloadInfo]] = {}

    def judge(self, cycle: CycleInput, plan: Plan) -> None:
        """Checks a plan before it is carried out."""
        check_admissions(cycle, plan)
        check_owners(cycle, plan)

    def cycle(self) -> bool:
        self.now += 1
        self.waiting = {name: tuple(self.engine.pending(name)) for name in QUEUES}
        cycle = self.engine.next_cycle(self.now)
        if cycle is None:
            return False
        plan = decide(cycle, self.now)
        self.judge(cycle, plan)
        self.plans.append(plan)
        settled = self.engine.settle(plan, self.now)
        self.carry_out(settled)
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                assert victim.key not in self.leaving, "it leaves for somebody else already"
                self.leaving[victim.key] = None
                self.evicted.append(victim.key)
                evicted = make_condition("Evicted", reason="Preempted", at=self.now)
                self.set(self.workloads[victim.key], evicted)
        return True

    def rest(self) -> None:
        super().rest()
        assert self.leaving or not self.promised(), "somebody waits for nobody"

    def end(self, key: ObjectKey) -> None:
        """A Workload that holds quota ends."""
        self.leaving.pop(key, None)
        self.engine.observe(events.WorkloadGone(key), self.now)
        del self.workloads[key]

    def live(self, draw: Any) -> None:
        """Victims leave one by one, in any order, while others come and end."""
        for number in range(draw(st.integers(0, 12))):
            self.rest()
            step = draw(st.sampled_from(["leave", "leave", "come", "end"]))
            if step == "leave" and self.leaving:
                self.go(draw(st.sampled_from(sorted(self.leaving))))
            elif step == "come":
                self.come(_newcomer(draw, f"n{number}"))
            elif step == "end" and self.engine.cache.holders:
                self.end(draw(st.sampled_from(sorted(self.engine.cache.holders))))
        for _ in range(50):
            self.rest()
            for key in list(self.leaving):
                self.go(key)
            if not self.engine.has_work(self.now):
                break
        self.rest()
        assert not self.leaving

    def promised(self) -> set[ObjectKey]:
        """Those that have room as soon as others have left."""
        return {*self.engine._queues.promised}

    def go(self, key: ObjectKey) -> None:
        """A victim leaves."""
        del self.leaving[key]
        quota = make_condition("QuotaReserved", False)
        self.set(self.workloads[key], quota, admission=None)


def check_admissions(cycle: CycleInput, plan: Plan) -> None:
    """Whoever is admitted fits beside all that hold quota, those that leave as well."""
    snapshot = Snapshot(cycle.frozen)
    for admit in plan.admissions:
        queue = snapshot.queue(admit.cluster_queue)
        assert queue is not None
        assert snapshot.fits(queue, admit.usage), f"{admit.key} exceeds the quota"
        snapshot.add(queue, admit.usage)


def check_owners(cycle: CycleInput, plan: Plan) -> None:
    """No preemptor that borrows is admitted instead of a head that owns the quota.

    A head that fits beside it was decided before the victims of others had left.
    """
    snapshot, promised = Snapshot(cycle.frozen), {head.info.key: head for head in cycle.promised}
    for holder in (
        *cycle.leaving,
        *(one.holder for each in plan.preemptions for one in each.victims),
    ):
        if holder.key not in snapshot.gone:
            snapshot.take_out(holder)
    kept = [
        (head.cluster_queue, head.promise.usage)
        for key, head in promised.items()
        if head.promise and key not in {*plan.broken, *(admit.key for admit in plan.admissions)}
    ]
    kept += [(wait.cluster_queue, wait.promise.usage) for wait in plan.waits if wait.promise]
    kept += [(admit.cluster_queue, admit.usage) for admit in plan.admissions]
    for name, usage in kept:
        snapshot.add(cycle.frozen.queues[name], usage)
    for admit in plan.admissions:
        borrower = promised.get(admit.key) if admit.borrowing else None
        if borrower is None or insists(borrower):
            continue
        for wait in plan.waits:
            queue = cycle.frozen.queues[wait.cluster_queue]
            if not isinstance(wait.reason, NoFlavors) or wait.cluster_queue == admit.cluster_queue:
                continue
            needs = sum(each.count * each.per_pod.get("gpu", 0) for each in wait.pod_sets)
            for pair in queue.spec.limits:
                beside = snapshot.fits(queue, {pair: needs})
                mark = snapshot.mark()
                snapshot.remove(cycle.frozen.queues[admit.cluster_queue], admit.usage)
                owned = snapshot.usage(queue, pair) + needs <= snapshot.limits(queue, pair).nominal
                assert beside or not owned or not snapshot.fits(queue, {pair: needs}), (
                    f"{admit.key} borrows what {wait.key} owns"
                )
                snapshot.undo(mark)


def choices(fair: bool, by_priority: bool) -> Settings:
    sharing = FairSharingRules() if fair else None
    return Settings(parallel_preemptors=True, fair_sharing=sharing, priority_sorting=by_priority)


@given(
    facts=worlds(waiting=8, loners=True) | worlds(waiting=8, shrinking=True),
    fair=st.booleans(),
    by_priority=st.booleans(),
    data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_preemptors_in_parallel_come_to_rest_and_share_no_victim(
    facts: list[events.Event], fair: bool, by_priority: bool, data: st.DataObject
) -> None:
    replay = Slow(facts, choices(fair, by_priority))
    replay.live(data.draw)
    assert replay.sleeper() is None


def _newcomer(draw: Any, name: str) -> Workload:
    return make_workload(
        name,
        draw(st.sampled_from(QUEUES)),
        {"gpu": draw(st.integers(0, 5))},
        priority=draw(st.integers(-2, 3)),
        created=draw(st.integers(0, 9)),
    )


@st.composite
def single(draw: st.DrawFn, pairs: Sequence[FlavorResource] = PAIRS) -> list[events.Event]:
    """One ClusterQueue, in which everything that runs comes after all that waits."""
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in pairs]
    running = [
        (draw(st.sampled_from(pairs)).flavor, draw(st.integers(1, 4)))
        for _ in range(draw(st.integers(1, 8)))
    ]
    quota = {
        pair.flavor: {
            "gpu": sum(gpu for flavor, gpu in running if flavor == pair.flavor)
            + draw(st.integers(0, 3))
        }
        for pair in pairs
    }
    facts += [
        events.ClusterQueueSet(
            make_cluster_queue(
                "a",
                quota,
                preemption={"withinClusterQueue": draw(policies())["withinClusterQueue"]},
                queueingStrategy=draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
            )
        ),
        events.LocalQueueSet(make_local_queue("a", "a")),
    ]
    for number, (flavor, gpu) in enumerate(running):
        assignment = make_assignment({"gpu": gpu}, flavor)
        facts.append(
            events.WorkloadSet(
                make_workload(
                    f"r{number}",
                    "a",
                    {"gpu": gpu},
                    priority=-2,
                    conditions=[make_condition("QuotaReserved", at=draw(st.integers(0, 4)))],
                    status={"admission": {"clusterQueue": "a", "podSetAssignments": [assignment]}},
                )
            )
        )
    for number in range(draw(st.integers(0, 6))):
        facts.append(
            events.WorkloadSet(
                make_workload(
                    f"p{number}",
                    "a",
                    {"gpu": draw(st.integers(1, 5))},
                    priority=draw(st.integers(-1, 3)),
                    created=draw(st.integers(0, 9)),
                )
            )
        )
    return facts


@given(facts=single(PAIRS[:1]))
@settings(max_examples=120, deadline=None)
def test_in_parallel_the_same_leave_as_one_after_the_other(facts: list[events.Event]) -> None:
    """Those who leave are the ones that would leave if each preemptor waited for the one before.

    With several flavors, one of them may choose what is free while others are leaving.
    """
    oracle = Replay(facts, Settings(parallel_preemptors=False))
    oracle.rest()
    slow = Slow(facts, Settings(parallel_preemptors=True))
    slow.rest()
    preemptions = [one for plan in oracle.plans for one in plan.preemptions]
    told = {victim.key for one in preemptions for victim in one.victims}
    while slow.leaving:
        for key in list(slow.leaving):
            slow.go(key)
        slow.rest()
    assert set(slow.evicted) == told
    ran = [
        {key for key in one.engine.cache.holders if key.name[0] == "p"} for one in (slow, oracle)
    ]
    assert ran[0] == ran[1]


@given(facts=worlds(waiting=8, loners=True) | worlds(waiting=8, shrinking=True), fair=st.booleans())
@settings(max_examples=100, deadline=None)
def test_all_that_wait_start_when_the_victims_are_gone(
    facts: list[events.Event], fair: bool
) -> None:
    """However many preemptors there are, their victims leave within one grace period."""
    slow = Slow(facts, choices(fair, by_priority=True))
    slow.rest()
    waiting = slow.promised()
    for key in slow.leaving:
        slow.engine.observe(events.WorkloadGone(key), slow.now)
        del slow.workloads[key]
    slow.leaving.clear()
    slow.rest()
    assert slow.engine.cache.holders.keys() >= waiting


@given(facts=single(PAIRS[:1]), data=st.data())
@settings(max_examples=100, deadline=None)
def test_after_a_restart_nobody_else_leaves(facts: list[events.Event], data: st.DataObject) -> None:
    """Those that leave count as gone at once, and the same Workloads get their room.

    With several flavors, who is decided first may choose another one. A StrictFIFO queue starts
    again with its head, which may be too large for the room.
    """
    slow = Slow(facts, choices(fair=False, by_priority=True))
    slow.rest()
    for number in range(data.draw(st.integers(0, 3))):
        slow.come(_newcomer(data.draw, f"n{number}"))
        slow.rest()
        for key in (
            data.draw(st.sets(st.sampled_from(sorted(slow.leaving)))) if slow.leaving else ()
        ):
            slow.go(key)
            slow.rest()
    stored = map(events.WorkloadSet, slow.workloads.values())
    kept = [fact for fact in facts if not isinstance(fact, events.WorkloadSet)]
    fresh = Slow([*kept, *stored], choices(fair=False, by_priority=True))
    fresh.rest()
    assert fresh.evicted == []
    for one in (slow, fresh):
        for key in list(one.leaving):
            one.go(key)
        one.rest()
    queues = [fact.cluster_queue for fact in facts if isinstance(fact, events.ClusterQueueSet)]
    strict = any(queue.spec.queueing_strategy == "StrictFIFO" for queue in queues)
    assert strict or fresh.engine.cache.holders.keys() == slow.engine.cache.holders.keys()
