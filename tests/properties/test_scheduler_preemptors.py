"""Laws of preemptors in several ClusterQueues with rights against each other, at any pace.

Victims leave at once or when the test says so, while others come and end.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_worlds import PAIRS, QUEUES, worlds
from test_scheduler_owners import judge
from test_scheduler_parallel import Slow, check_admissions

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Plan
from kueuelib.scheduler.decide.nomination import MOST_PREEMPTIONS
from kueuelib.scheduler.decide.preemption.victims import Path, Preemption
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.scheduler.settings import FairSharing, Settings


@st.composite
def choices(draw: st.DrawFn) -> Settings:
    return Settings(
        protects_nominal=draw(st.booleans()),
        priority_sorting=draw(st.booleans()),
        fair_sharing=draw(st.none() | st.just(FairSharing())),
    )


WORLDS = worlds(waiting=8, fierce=True) | worlds(waiting=8, shrinking=True, fierce=True)


class Judged(Slow):
    """A world whose every plan is judged.

    Attributes:
        preempted: how often each Workload preempted others since the last outside change.
    """

    def __init__(self, facts: list[events.Event], policy: Settings) -> None:
        super().__init__(facts, policy)
        self.preempted: Counter[ObjectKey] = Counter()

    def judge(self, cycle: CycleInput, plan: Plan) -> None:
        check_admissions(cycle, plan)
        self.preempted.update(one.key for one in plan.preemptions)
        assert max(self.preempted.values(), default=0) <= MOST_PREEMPTIONS
        check_nominal(cycle, plan)
        check_minimal(cycle, plan)
        if self.policy.protects_nominal:
            check_owners(self, cycle, plan)

    def end(self, key: ObjectKey) -> None:
        super().end(key)
        self.preempted.clear()


def emptied(cycle: CycleInput) -> Snapshot:
    """What holds quota and stays."""
    snapshot = Snapshot(cycle.frozen)
    for holder in cycle.leaving:
        if holder.key not in snapshot.gone:
            snapshot.take_out(holder)
    return snapshot


def check_nominal(cycle: CycleInput, plan: Plan) -> None:
    """Nobody leaves for another ClusterQueue whose own runs no more than its nominal quota."""
    for preemption in plan.preemptions:
        snapshot = emptied(cycle)
        for victim in preemption.victims:
            holder = victim.holder
            queue = cycle.frozen.queues[holder.cluster_queue]
            assert (
                holder.evicted
                or holder.cluster_queue == preemption.cluster_queue
                or any(borrows(snapshot, queue, pair) for pair in PAIRS)
            ), f"{victim.key} is within its nominal quota, and leaves for {preemption.key}"
            if holder.key not in snapshot.gone:
                snapshot.take_out(holder)


def borrows(snapshot: Snapshot, queue: FrozenQueue, pair: Any) -> bool:
    return snapshot.usage(queue, pair) > snapshot.limits(queue, pair).nominal


def check_minimal(cycle: CycleInput, plan: Plan) -> None:
    """Beside what was decided before, the first preemptor of a cycle needs all of its victims.

    Quota may be kept for owners, a blocked head withholds some, and a broken promise was charged
    before: then the plan does not show what each of them had to fit beside.
    """
    if (
        cycle.wanted
        or plan.broken
        or any(isinstance(wait.reason, NoFlavors) for wait in plan.waits)
    ):
        return
    snapshot = emptied(cycle)
    given: dict[ObjectKey, tuple[str, Amounts]] = {
        admit.key: (admit.cluster_queue, admit.usage) for admit in plan.admissions
    }
    given |= {
        wait.key: (wait.cluster_queue, wait.promise.usage) for wait in plan.waits if wait.promise
    }
    for head in cycle.promised:
        name, usage = given.get(head.info.key) or (head.cluster_queue, used_by(head))
        snapshot.add(cycle.frozen.queues[name], usage)
    told = {one.key: one for one in plan.preemptions[:1]}
    for key in plan.order:
        if key not in given:
            continue
        name, usage = given[key]
        queue = cycle.frozen.queues[name]
        if key in told:
            check_needed(snapshot, queue, usage, told[key])
        snapshot.add(queue, usage)


def used_by(head: Any) -> Amounts:
    assert head.promise is not None
    usage: Amounts = head.promise.usage
    return usage


def check_needed(
    snapshot: Snapshot, queue: FrozenQueue, usage: Amounts, preemption: Preemption
) -> None:
    """Takes the victims out; one that comes back leaves too little.

    To reclaim, the preemptor ends within its nominal quota.
    """
    for victim in preemption.victims:
        if victim.key not in snapshot.gone:
            snapshot.take_out(victim.holder)
    assert snapshot.fits(queue, usage), f"{preemption.key} does not fit when its victims are gone"
    reclaims = any(one.path is Path.IN_COHORT_RECLAMATION for one in preemption.victims)
    for victim in preemption.victims:
        if victim.is_leaving:
            continue
        mark = snapshot.mark()
        snapshot.put_back(victim.holder)
        within = all(
            snapshot.usage(queue, pair) + amount <= snapshot.limits(queue, pair).nominal
            for pair, amount in usage.items()
        )
        assert not snapshot.fits(queue, usage) or (reclaims and not within), (
            f"{victim.key} leaves needlessly for {preemption.key}"
        )
        snapshot.undo(mark)


def check_owners(world: Judged, cycle: CycleInput, plan: Plan) -> None:
    """No admission that borrows takes what somebody waits for who owns it."""
    waiting = {
        (name, info.key): info.pod_sets[0].requests(info.pod_sets[0].count, count_pods=False)["gpu"]
        for name in QUEUES
        for info in world.waiting[name]
        if len(info.pod_sets) == 1
    }
    snapshot, settled = emptied(cycle), {admit.key for admit in plan.admissions}
    for preemption in plan.preemptions:
        for victim in preemption.victims:
            if victim.key not in snapshot.gone:
                snapshot.take_out(victim.holder)
    room = {one.key: (one.cluster_queue, one.promise.usage) for one in plan.waits if one.promise}
    for head in cycle.promised:
        if head.info.key not in {*plan.broken, *settled}:
            room[head.info.key] = head.cluster_queue, used_by(head)
    for name, usage in room.values():
        snapshot.add(cycle.frozen.queues[name], usage)
    settled |= room.keys()
    needs = {(name, key): gpu for (name, key), gpu in waiting.items() if key not in settled}
    for admit in plan.admissions:
        judge(cycle, snapshot, admit, needs)


@given(facts=WORLDS, policy=choices(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_preemptors_take_no_more_than_they_may(
    facts: list[events.Event], policy: Settings, data: st.DataObject
) -> None:
    """Nobody within nominal quota leaves, no victim is needless, and it ends; owners come first."""
    world = Judged(facts, policy)
    world.live(data.draw)
    assert world.sleeper() is None
