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

from kueuelib.api.kueue import NEVER
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Plan, Wait
from kueuelib.scheduler.decide.nomination import MOST_PREEMPTIONS
from kueuelib.scheduler.decide.preemption.victims import Path, PendingPreemption
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.scheduler.settings import FairSharingRules, Settings


@st.composite
def choices(draw: st.DrawFn) -> Settings:
    return Settings(
        protects_nominal=draw(st.booleans()),
        priority_sorting=draw(st.booleans()),
        fair_sharing=draw(st.none() | st.just(FairSharingRules())),
    )


WORLDS = (
    worlds(waiting=8, fierce=True)
    | worlds(waiting=8, shrinking=True, fierce=True)
    | worlds(waiting=8, fierce=True, crowded=True)
)


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
    """Nobody leaves for another ClusterQueue whose own runs no more than its nominal quota.

    Those that leave for earlier preemptors of the same cycle do not run any more.
    """
    snapshot = emptied(cycle)
    for preemption in plan.preemptions:
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


class Known:
    """What a plan shows of the state in which each of its heads was decided.

    Two things it does not show: in which flavors a blocked head withholds quota, and which head
    broke a promise. So there are two states: `least` has neither, `most` has all that is possible.
    """

    def __init__(self, cycle: CycleInput, plan: Plan) -> None:
        self.queues, self.fair = cycle.frozen.queues, cycle.settings.fair_sharing is not None
        self.least, self.most = emptied(cycle), emptied(cycle)
        self.wanted = {name: dict(amounts) for name, amounts in cycle.wanted.items()}
        self.breaking: list[tuple[str, Amounts]] = []
        admitted = {one.key: one.usage for one in plan.admissions}
        for head in cycle.promised:
            assert head.promise is not None
            usage = admitted.get(head.info.key, head.promise.usage)
            if head.info.key in plan.broken:
                self.breaking.append((head.cluster_queue, usage))
                self.most.add(self.queues[head.cluster_queue], usage)
                wanted = self.wanted.setdefault(head.cluster_queue, {})
                for pair in PAIRS:
                    wanted[pair] = wanted.get(pair, 0) + sum(usage.values())
            else:
                self.give(head.cluster_queue, usage)

    def give(self, name: str, usage: Amounts) -> None:
        """A head gets room. Promises that do not fit beside it are broken."""
        self.least.add(self.queues[name], usage)
        self.most.add(self.queues[name], usage)
        for other, promised in tuple(self.breaking):
            if not self.least.fits(self.queues[other], promised):
                self.breaking.remove((other, promised))
                self.most.remove(self.queues[other], promised)

    def admit(self, name: str, usage: Amounts) -> None:
        """A head is admitted, and wants nothing more."""
        self.give(name, usage)
        wanted = self.wanted.get(name, {})
        for pair in wanted.keys() & usage.keys():
            wanted[pair] = max(0, wanted[pair] - usage[pair])

    def withhold(self, wait: Wait) -> None:
        """A blocked head withholds quota in any of the flavors."""
        queue = self.queues[wait.cluster_queue]
        assert isinstance(wait.reason, NoFlavors)
        if wait.reason.keeps_quota(queue.spec.preemption):
            gpu = sum(one.count * one.per_pod.get("gpu", 0) for one in wait.pod_sets)
            self.most.add(queue, dict.fromkeys(PAIRS, gpu))

    def take_out(self, preemption: PendingPreemption) -> None:
        for victim in preemption.victims:
            for snapshot in (self.least, self.most):
                if victim.key not in snapshot.gone:
                    snapshot.take_out(victim.holder)

    def may_have(self, name: str, usage: Amounts) -> bool:
        """Whether a head fits in any case, and leaves owners what they wait for if it borrows."""
        queue, snapshot = self.queues[name], self.most
        if is_within(snapshot, queue, usage):
            return snapshot.fits(queue, usage)
        mark = snapshot.mark()
        for other, wanted in self.wanted.items():
            owner = self.queues.get(other)
            if owner is not None and other != name:
                for pair, amount in wanted.items():
                    unused = snapshot.limits(owner, pair).nominal - snapshot.usage(owner, pair)
                    snapshot.add(owner, {pair: max(0, min(amount, unused))})
        fits = snapshot.fits(queue, usage)
        snapshot.undo(mark)
        return fits


def check_minimal(cycle: CycleInput, plan: Plan) -> None:
    """Beside all that was decided before, no preemptor would fit without one of its victims."""
    known = Known(cycle, plan)
    admits = {one.key: one for one in plan.admissions}
    waits = {one.key: one for one in plan.waits}
    told = {one.key: one for one in plan.preemptions}
    for key in plan.order:
        if key in admits:
            known.admit(admits[key].cluster_queue, admits[key].usage)
            continue
        wait = waits[key]
        if isinstance(wait.reason, NoFlavors):
            known.withhold(wait)
        elif wait.promise is not None:
            if key in told:
                check_needed(known, wait.promise.usage, told[key])
            known.give(wait.cluster_queue, wait.promise.usage)


def check_needed(known: Known, usage: Amounts, preemption: PendingPreemption) -> None:
    """Takes the victims out; one that comes back leaves too little.

    Who reclaims must not borrow in the end. Who could reclaim, but not while borrowing, first looks
    for victims with which it does not borrow, and is content with those of its own ClusterQueue.
    """
    name = preemption.cluster_queue
    queue, snapshot = known.queues[name], known.most
    known.take_out(preemption)
    assert known.least.fits(queue, usage), f"{preemption.key} does not fit when its victims left"
    policy = queue.spec.preemption
    reclaims = any(one.path is Path.IN_COHORT_RECLAMATION for one in preemption.victims)
    reclaims |= not (known.fair or policy.may_borrow) and policy.reclaim_within_cohort != NEVER
    may_borrow = not reclaims or not is_within(snapshot, queue, usage)
    for victim in preemption.victims:
        if victim.is_leaving:
            continue
        mark = snapshot.mark()
        snapshot.put_back(victim.holder)
        assert not known.may_have(name, usage) or not (
            may_borrow or is_within(snapshot, queue, usage)
        ), f"{victim.key} leaves needlessly for {preemption.key}"
        snapshot.undo(mark)


def is_within(snapshot: Snapshot, queue: FrozenQueue, usage: Amounts) -> bool:
    """Whether a ClusterQueue does not exceed its nominal quota with a request."""
    return all(
        snapshot.usage(queue, pair) + amount <= snapshot.limits(queue, pair).nominal
        for pair, amount in usage.items()
        if amount
    )


def used_by(head: Any) -> Amounts:
    assert head.promise is not None
    usage: Amounts = head.promise.usage
    return usage


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
@settings(max_examples=100, deadline=None)
def test_preemptors_take_no_more_than_they_may(
    facts: list[events.Event], policy: Settings, data: st.DataObject
) -> None:
    """Nobody within nominal quota leaves, no victim is needless, and it ends; owners come first."""
    world = Judged(facts, policy)
    world.live(data.draw)
    assert world.sleeper() is None
