"""Laws of preemption: who may be a victim, that no victim is too many, and that all of it ends."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.amounts import Amounts, FlavorResource
from kueuelib.scheduler.cycle import Plan, decide
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.holders import Holder
from kueuelib.scheduler.preemption.candidates import Borrowing, Candidates, Preemptor
from kueuelib.scheduler.preemption.search import Search, find_victims
from kueuelib.scheduler.preemption.victims import Path, Victim
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.snapshot import FrozenQueue, Snapshot
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

QUEUES = ("a", "b", "c")
PAIRS = tuple(FlavorResource(flavor, "gpu") for flavor in ("one", "two"))


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    within = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
    found: dict[str, Any] = {
        "withinClusterQueue": draw(st.sampled_from(within)),
        "reclaimWithinCohort": draw(st.sampled_from(["Never", "LowerPriority", "Any"])),
    }
    if found["reclaimWithinCohort"] != "Never" and draw(st.booleans()):
        found["borrowWithinCohort"] = {"policy": "LowerPriority"}
        threshold = draw(st.none() | st.integers(-2, 2))
        if threshold is not None:
            found["borrowWithinCohort"]["maxPriorityThreshold"] = threshold
    return found


@st.composite
def quotas(draw: st.DrawFn) -> dict[str, int]:
    found = {"nominal": draw(st.integers(0, 8))}
    if draw(st.integers(0, 2)) == 0:
        found["borrowing"] = draw(st.integers(0, 6))
    if draw(st.integers(0, 2)) == 0:
        found["lending"] = draw(st.integers(0, found["nominal"]))
    return found


@st.composite
def worlds(
    draw: st.DrawFn, *, waiting: int = 0, loners: bool = False, shrinking: bool = False
) -> list[events.Event]:
    """ClusterQueues with two flavors, workloads that run there, and such that wait."""
    found: list[events.Event] = [events.NamespaceSet("ns", {})]
    found += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name in QUEUES:
        cohort = draw(st.sampled_from(["x", "x", ""])) if loners else "x"
        quota = {pair.flavor: {"gpu": draw(quotas())} for pair in PAIRS}
        if not cohort:
            quota = {pair.flavor: {"gpu": draw(st.integers(0, 8))} for pair in PAIRS}  # type: ignore[misc]
        next_flavor = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
        queue = make_cluster_queue(
            name,
            quota,
            cohort=cohort,
            preemption=draw(policies()),
            queueingStrategy=draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
            flavorFungibility={
                "whenCanBorrow": draw(next_flavor),
                "whenCanPreempt": draw(next_flavor),
                "preference": draw(st.sampled_from(["", "PreemptionOverBorrowing"])),
            },
        )
        found.append(events.ClusterQueueSet(queue))
        found.append(events.LocalQueueSet(make_local_queue(name, name)))
    for number in range(draw(st.integers(0, 9))):
        found.append(events.WorkloadSet(_running(draw, f"r{number}")))
    for number in range(draw(st.integers(0, waiting))):
        wants = make_workload(
            f"p{number}",
            draw(st.sampled_from(QUEUES)),
            {"gpu": draw(st.integers(0, 5))},
            priority=draw(st.integers(-2, 3)),
            created=draw(st.integers(0, 9)),
            pod_sets=draw(several_pods()) if shrinking else None,
        )
        found.append(events.WorkloadSet(wants))
    return found


@st.composite
def several_pods(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One or two pod sets of several pods, which may do with fewer."""
    found = []
    for name in draw(st.sampled_from([("main",), ("main",), ("driver", "workers")])):
        count = draw(st.integers(1, 4))
        fewest = draw(st.none() | st.integers(1, count))
        found.append(make_pod_set({"gpu": draw(st.integers(0, 3))}, name, count, fewest))
    return found


def _running(draw: st.DrawFn, name: str) -> Workload:
    queue = draw(st.sampled_from(QUEUES))
    conditions = [make_condition("QuotaReserved", at=draw(st.integers(0, 4)))]
    if draw(st.integers(0, 4)) == 0:
        conditions.append(make_condition("Evicted", reason="Preempted"))
    gpu = {"gpu": draw(st.integers(0, 5))}
    assignment = make_assignment(gpu, draw(st.sampled_from(PAIRS)).flavor)
    return make_workload(
        name,
        queue,
        gpu,
        priority=draw(st.integers(-2, 3)),
        created=draw(st.integers(0, 9)),
        conditions=conditions,
        status={"admission": {"clusterQueue": queue, "podSetAssignments": [assignment]}},
    )


# --- one search, against the formulas of the specification


@attrs.frozen
class Question:
    """One search, and everything that it depends on."""

    snapshot: Snapshot
    preemptor: Preemptor
    contested: frozenset[FlavorResource]
    needed: Amounts

    @property
    def queue(self) -> FrozenQueue:
        return self.preemptor.queue

    def members(self) -> list[FrozenQueue]:
        found = [self.snapshot.queue(name) for name in QUEUES]
        return [queue for queue in found if queue is not None]

    def everybody(self) -> list[Holder]:
        return [holder for queue in self.members() for holder in queue.holders.values()]

    def usage(self, name: str, pair: FlavorResource, gone: set[ObjectKey]) -> int:
        return sum(
            holder.usage.get(pair, 0)
            for holder in self.everybody()
            if holder.cluster_queue == name and holder.key not in gone
        )

    def fits(self, gone: set[ObjectKey], *, borrow: bool) -> bool:
        """Spec/scheduling 2.4 and 6.4, read aloud."""
        name = self.queue.spec.name
        for pair, amount in self.needed.items():
            limits = self.queue.spec.limits[pair]
            after = self.usage(name, pair, gone) + amount
            if not borrow and after > limits.nominal:
                return False
            if limits.borrowing is not None and after > limits.nominal + limits.borrowing:
                return False
            pool = beyond = 0
            for member in self.members():
                theirs = member.spec.limits[pair]
                used = self.usage(member.spec.name, pair, gone)
                pool += theirs.nominal - theirs.guaranteed
                beyond += max(0, used - theirs.guaranteed)
            mine = min(after - amount, limits.guaranteed)
            if amount > pool + limits.guaranteed - beyond - mine:
                return False
        return True

    def within_nominal(self) -> bool:
        return all(
            self.usage(self.queue.spec.name, pair, set()) + amount
            <= self.queue.spec.limits[pair].nominal
            for pair, amount in self.needed.items()
        )

    def may_take(self, holder: Holder) -> bool:
        policy, me = self.queue.spec.preemption, self.preemptor
        own = holder.cluster_queue == self.queue.spec.name
        rule = policy.within_cluster_queue if own else policy.reclaim_within_cohort
        if self.contested.isdisjoint(holder.usage):
            return False
        if rule == "LowerPriority":
            return holder.priority < me.priority
        if rule == "LowerOrNewerEqualPriority":
            newer = me.queued_at < holder.order.queued_at
            return holder.priority < me.priority or (holder.priority == me.priority and newer)
        return rule == "Any"

    def borrows(self, name: str) -> bool:
        queue = self.snapshot.queue(name)
        assert queue is not None
        return any(
            self.usage(name, pair, set()) > queue.spec.limits[pair].nominal
            for pair in self.contested
        )

    def search(self) -> Search:
        return find_victims(self.snapshot, self.preemptor, self.contested, self.needed)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    engine = Engine()
    engine.observe_all(draw(worlds()), 0)
    snapshot = Snapshot(engine.cache.freeze(QUEUES))
    queue = snapshot.queue(draw(st.sampled_from(QUEUES)))
    assert queue is not None
    preemptor = Preemptor(queue, draw(st.integers(-2, 4)), float(draw(st.integers(0, 9))))
    needed = {pair: draw(st.integers(1, 8)) for pair in PAIRS[: draw(st.integers(1, 2))]}
    short = {pair for pair, amount in needed.items() if amount > snapshot.available(queue, pair)}
    assume(short)
    return Question(snapshot, preemptor, frozenset(short), needed)


@given(question=questions())
@settings(max_examples=300, deadline=None)
def test_without_any_one_of_the_victims_the_preemptor_does_not_fit(question: Question) -> None:
    victims = question.search().victims
    keys = {victim.key for victim in victims}
    assert len(keys) == len(victims)
    if not victims:
        return
    reclaims = any(victim.path is Path.IN_COHORT_RECLAMATION for victim in victims)
    borrow = question.within_nominal() or not reclaims
    assert question.fits(keys, borrow=borrow)
    for key in keys:
        fits = question.fits(keys - {key}, borrow=True)
        assert not fits or not question.fits(keys - {key}, borrow=False)
        if borrow:
            assert not fits


@given(question=questions())
@settings(max_examples=200, deadline=None)
def test_victims_are_taken_only_by_the_policies_of_the_preemptor(question: Question) -> None:
    policy = question.queue.spec.preemption
    for victim in question.search().victims:
        assert question.may_take(victim.holder)
        own = victim.holder.cluster_queue == question.queue.spec.name
        assert own == (victim.path is Path.IN_CLUSTER_QUEUE)
        if own:
            continue
        assert question.borrows(victim.holder.cluster_queue)
        if victim.path is Path.IN_COHORT_RECLAIM_WHILE_BORROWING:
            assert policy.borrow_within_cohort
            assert victim.holder.priority < question.preemptor.priority
            limit = policy.borrow_threshold
            assert limit is None or victim.holder.priority <= limit


@given(question=questions())
@settings(max_examples=200, deadline=None)
def test_a_preemptor_that_gets_no_victims_has_too_few(question: Question) -> None:
    found = question.search()
    if found.victims:
        assert not found.lacks
        return
    assert found.lacks
    own = {
        holder.key
        for holder in question.everybody()
        if holder.cluster_queue == question.queue.spec.name and question.may_take(holder)
    }
    assert not question.fits(own, borrow=True)


@given(question=questions())
@settings(max_examples=200, deadline=None)
def test_candidates_come_in_the_order_of_the_specification(question: Question) -> None:
    candidates = Candidates(
        question.snapshot, question.preemptor, question.contested, question.needed
    )
    mine = question.queue.spec.name
    want = sorted(
        (
            holder
            for holder in question.everybody()
            if question.may_take(holder)
            and (holder.cluster_queue == mine or question.borrows(holder.cluster_queue))
        ),
        key=lambda holder: (
            not holder.evicted,
            holder.cluster_queue == mine,
            holder.priority,
            -(holder.reserved_at or 0.0),
            holder.uid,
        ),
    )
    found = [one.holder for one in candidates.in_order(Borrowing.FORBIDDEN)]
    assert [holder.key for holder in found] == [holder.key for holder in want]
    assert candidates.any_elsewhere == any(one.cluster_queue != mine for one in want)


@given(question=questions())
@settings(max_examples=100, deadline=None)
def test_a_search_leaves_the_snapshot_alone(question: Question) -> None:
    before = [
        (question.snapshot.usage(queue, pair), question.snapshot.available(queue, pair))
        for queue in question.members()
        for pair in PAIRS
    ]
    first, second = question.search(), question.search()
    assert [one.key for one in first.victims] == [one.key for one in second.victims]
    assert before == [
        (question.snapshot.usage(queue, pair), question.snapshot.available(queue, pair))
        for queue in question.members()
        for pair in PAIRS
    ]


# --- whole histories


class Replay:
    """A world in which victims leave at once and workloads end only when nothing else happens."""

    def __init__(self, facts: list[events.Event], policy: Settings) -> None:
        self.engine = Engine(policy)
        self.engine.observe_all(facts, 0)
        self.workloads = {
            fact.workload.key: fact.workload
            for fact in facts
            if isinstance(fact, events.WorkloadSet)
        }
        self.now = 10.0
        self.ran: set[ObjectKey] = set()
        self.plans: list[Plan] = []

    def set(self, workload: Workload, *conditions: Any, **status: Any) -> None:
        raw = encode(workload)
        types = {condition["type"] for condition in conditions}
        old = raw.get("status", {})
        kept = [one for one in old.get("conditions", ()) if one["type"] not in types]
        merged = {**old, **status, "conditions": [*kept, *conditions]}
        merged = {key: value for key, value in merged.items() if value is not None}
        changed = decode(Workload, {**raw, "status": merged})
        self.workloads[changed.key] = changed
        self.engine.observe(events.WorkloadSet(changed), self.now)

    def leave(self, victim: Victim) -> None:
        evicted = make_condition("Evicted", reason="Preempted", at=self.now)
        preempted = make_condition("Preempted", reason=victim.path.value, at=self.now)
        quota = make_condition("QuotaReserved", False)
        self.set(self.workloads[victim.key], evicted, preempted, quota, admission=None)

    def carry_out(self, settled: Settled) -> None:
        for admit in settled.admissions:
            self.ran.add(admit.key)
            quota = make_condition("QuotaReserved", at=self.now)
            workload = self.workloads[admit.key]
            past = [
                make_condition(found.type, False, at=self.now)
                for found in workload.status.conditions
                if found.type in ("Evicted", "Preempted")
            ]
            self.set(workload, quota, *past, admission=encode(admit.admission))

    def cycle(self) -> bool:
        """One cycle, and everything that it causes; False when there is nothing to decide."""
        self.now += 1
        found = self.engine.next_cycle(self.now)
        if found is None:
            return False
        plan = decide(found, self.now)
        self.plans.append(plan)
        self.carry_out(self.engine.settle(plan, self.now))
        for preemption in plan.preemptions:
            for victim in preemption.victims:
                self.leave(victim)
        return True

    def rest(self) -> None:
        """Cycles until nothing is left to decide."""
        for _ in range(200):
            if not self.cycle():
                return
        raise AssertionError("preemptions go on for ever")

    def finish_one(self) -> bool:
        """Ends the workload that has run longest; False when none runs."""
        holders = self.engine.cache.holders.values()
        running = sorted(holders, key=lambda one: (one.reserved_at or 0.0, one.uid))
        if not running:
            return False
        key = running[0].key
        self.engine.observe(events.WorkloadGone(key), self.now)
        del self.workloads[key]
        return True


@given(facts=worlds(waiting=8, loners=True) | worlds(waiting=8, shrinking=True))
@settings(max_examples=300, deadline=None)
def test_preemptions_come_to_an_end(facts: list[events.Event]) -> None:
    replay = Replay(facts, Settings())
    replay.rest()
    for plan in replay.plans:
        for preemption in plan.preemptions:
            assert preemption.victims
            assert preemption.key not in {victim.key for victim in preemption.victims}


def test_three_with_rights_against_each_other_come_to_an_end() -> None:
    """Each of them is preempted by another one; the flavors that were promised end it."""

    def pods(name: str, gpu: int, count: int, fewest: int | None = None) -> dict[str, Any]:
        return make_pod_set({"gpu": gpu}, name, count, fewest)

    borrow = {"policy": "LowerPriority"}
    low = {**borrow, "maxPriorityThreshold": 1}
    rights = {
        "a": {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": borrow},
        "b": {},
        "c": {"borrowWithinCohort": low},
    }
    nominal = {"a": (6, 7), "b": (1, 1), "c": (0, 0)}
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name, policy in rights.items():
        one, two = nominal[name]
        reclaim = {} if name == "b" else {"reclaimWithinCohort": "Any"}
        queue = make_cluster_queue(
            name,
            {"one": {"gpu": one}, "two": {"gpu": two}},
            cohort="x",
            preemption={**policy, **reclaim},
            queueingStrategy="StrictFIFO",
            flavorFungibility={
                "whenCanBorrow": "MayStopSearch" if name == "a" else "TryNextFlavor",
                "whenCanPreempt": "MayStopSearch" if name == "a" else "TryNextFlavor",
            },
        )
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    runs = make_workload(
        "runs",
        "a",
        {"gpu": 5},
        priority=-1,
        created=8,
        conditions=[make_condition("QuotaReserved", at=1)],
        status={
            "admission": {
                "clusterQueue": "a",
                "podSetAssignments": [make_assignment({"gpu": 5}, "two")],
            }
        },
    )
    borrows = make_workload("borrows", "c", priority=3, created=4, pod_sets=[pods("main", 2, 4, 3)])
    owns = make_workload(
        "owns", "a", priority=1, created=3, pod_sets=[pods("driver", 1, 3), pods("workers", 1, 4)]
    )
    facts += [events.WorkloadSet(found) for found in (runs, borrows, owns)]
    Replay(facts, Settings()).rest()


def test_search_that_came_round_starts_over_with_the_first_flavor_after_a_loss() -> None:
    """Several pod sets are never through at the same time; the victim is found from the start."""
    quota: dict[str, Any] = {
        "a": {"one": {"gpu": 6}, "two": {"gpu": 3}},
        "b": {
            "one": {"gpu": {"nominal": 3, "borrowing": 2}},
            "two": {"gpu": {"nominal": 4, "lending": 1}},
        },
        "c": {"one": {"gpu": 5}, "two": {"gpu": 2}},
    }
    rights: dict[str, Any] = {"a": {}, "b": {}, "c": {"withinClusterQueue": "LowerPriority"}}
    strict = {
        "queueingStrategy": "StrictFIFO",
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "MayStopSearch",
            "preference": "PreemptionOverBorrowing",
        },
    }
    facts: list[events.Event] = [events.NamespaceSet("ns", {})]
    facts += [events.FlavorSet(make_flavor(pair.flavor)) for pair in PAIRS]
    for name in QUEUES:
        more: dict[str, Any] = strict if name == "c" else {}
        queue = make_cluster_queue(name, quota[name], cohort="x", preemption=rights[name], **more)
        facts += [events.ClusterQueueSet(queue), events.LocalQueueSet(make_local_queue(name, name))]
    for name, home, gpu, priority in (("r1", "c", 1, -1), ("r4", "b", 3, 0)):
        admission = {
            "clusterQueue": home,
            "podSetAssignments": [make_assignment({"gpu": gpu}, "one")],
        }
        runs = make_workload(
            name,
            home,
            {"gpu": gpu},
            priority=priority,
            created=8,
            conditions=[make_condition("QuotaReserved", at=1)],
            status={"admission": admission},
        )
        facts.append(events.WorkloadSet(runs))
    first = [make_pod_set({"gpu": 3}, "driver", 3, 1), make_pod_set({"gpu": 3}, "workers", 3, 1)]
    second = [make_pod_set({"gpu": 1}, "driver", 1), make_pod_set({"gpu": 2}, "workers", 2, 1)]
    waits = make_workload("p1", "a", priority=3, created=1, pod_sets=first)
    facts.append(events.WorkloadSet(waits))
    facts.append(events.WorkloadSet(make_workload("p2", "c", created=6, pod_sets=second)))
    replay = Replay(facts, Settings())
    replay.rest()
    preempting = [found.key.name for plan in replay.plans for found in plan.preemptions]
    assert preempting == ["p2"]


@given(facts=worlds(waiting=8))
@settings(max_examples=200, deadline=None)
def test_cycles_come_to_an_end_while_victims_take_their_time(facts: list[events.Event]) -> None:
    """Nobody is tried again and again because the room that it loses is not given away either."""
    engine = Engine()
    engine.observe_all(facts, 0)
    for _ in range(200):
        found = engine.next_cycle(10.0)
        if found is None:
            return
        engine.settle(decide(found, 10.0), 10.0)
    raise AssertionError("the engine does not come to rest")


@pytest.mark.parametrize("by_priority", [True, False], ids=["by priority", "by age"])
@given(facts=worlds(waiting=8, loners=True))
@settings(max_examples=100, deadline=None)
def test_nobody_who_could_run_alone_starves(facts: list[events.Event], by_priority: bool) -> None:
    """Behind one that can never run a StrictFIFO queue stands still; everybody else runs."""
    replay = Replay(facts, Settings(priority_sorting=by_priority))
    replay.rest()
    while replay.finish_one():
        replay.rest()
    for name in QUEUES:
        spec = replay.engine.cache.spec(name)
        assert spec is not None
        frozen = replay.engine.cache.freeze([name])
        snapshot = Snapshot(frozen)
        for info in replay.engine.pending(name):
            amount = replay.workloads[info.key].spec.pod_sets[0]
            wants = info.pod_sets[0].requests(amount.count, count_pods=False)["gpu"]
            room = max(snapshot.capacity(frozen.queues[name], pair) for pair in PAIRS)
            if wants > room:
                if spec.strict:
                    break
                continue
            raise AssertionError(f"{info.key} wants {wants} of {room} and starves")


@given(facts=worlds(waiting=8))
@settings(max_examples=100, deadline=None)
def test_several_preemptors_of_a_cycle_do_not_share_victims(facts: list[events.Event]) -> None:
    replay = Replay(facts, Settings())
    replay.rest()
    for plan in replay.plans:
        told = [victim.key for one in plan.preemptions for victim in one.victims]
        assert len(told) == len(set(told))
        waiting = {wait.key for wait in plan.waits}
        assert waiting.issuperset(one.key for one in plan.preemptions)
        assert waiting.isdisjoint(admit.key for admit in plan.admissions)
