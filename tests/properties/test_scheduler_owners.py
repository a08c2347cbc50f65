"""The law of owners: nobody borrows later what they own and wait for, if that is protected."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_worlds import PAIRS, QUEUES, Replay, worlds

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, decide
from kueuelib.scheduler.decide.cycle_values import Admit
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.snapshot import Snapshot
from kueuelib.scheduler.settings import FairSharingRules, Settings


class Watched(Replay):
    """A world in which every admission of a borrower is judged."""

    def cycle(self) -> bool:
        self.now += 1
        waiting = {name: {info.key: info for info in self.engine.pending(name)} for name in QUEUES}
        cycle = self.engine.next_cycle(self.now)
        if cycle is None:
            return False
        plan = decide(cycle, self.now)
        self.plans.append(plan)
        promised = {head.info.key for head in cycle.promised}  # decided before others waited
        room = {one.key: (one.cluster_queue, one.promise) for one in plan.waits if one.promise}
        settled = room.keys() | promised  # they have their room
        snapshot = Snapshot(cycle.frozen)
        victims = [one.holder for each in plan.preemptions for one in each.victims]
        for holder in (*cycle.leaving, *victims):
            snapshot.take_out(holder)
        for name, promise in room.values():
            charge(snapshot, name, promise.usage)
        for admit in plan.admissions:
            settled.add(admit.key)
            needs = {
                (name, key): info.pod_sets[0].requests(1, count_pods=False)["gpu"]
                for name, infos in waiting.items()
                for key, info in infos.items()
                if key not in settled
            }
            judge(cycle, snapshot, admit, needs)
        self.carry_out(self.engine.settle(plan, self.now))
        for preemption in plan.preemptions:
            for victim in preemption.victims:
                self.leave(victim)
        return True


def judge(
    cycle: CycleInput,
    snapshot: Snapshot,
    admit: Admit,
    needs: dict[tuple[str, ObjectKey], int],
) -> None:
    """Admits, and looks at what is left for owners that wait in other ClusterQueues.

    Who borrows only until those that leave have left borrows nothing of theirs.
    """
    before = {
        (name, pair): left(snapshot, name, pair) for name in cycle.frozen.queues for pair in PAIRS
    }
    charge(snapshot, admit.cluster_queue, admit.usage)
    borrower = cycle.frozen.queues[admit.cluster_queue]
    if not admit.borrowing or not any(
        amount and snapshot.usage(borrower, pair) > snapshot.limits(borrower, pair).nominal
        for pair, amount in admit.usage.items()
    ):
        return
    for (name, key), amount in needs.items():
        owner = cycle.frozen.queues.get(name)
        if owner is None or name == admit.cluster_queue:
            continue
        for pair in PAIRS:
            limits = snapshot.limits(owner, pair)
            if amount > limits.nominal:
                continue
            unused = limits.nominal - snapshot.usage(owner, pair)
            after = left(snapshot, name, pair)
            assert after >= min(before[name, pair], amount, unused), (
                f"{admit.key} borrows what {key} needs"
            )


def charge(snapshot: Snapshot, name: str, usage: Amounts) -> None:
    queue = snapshot.queue(name)
    assert queue is not None
    snapshot.add(queue, usage)


def left(snapshot: Snapshot, name: str, pair: FlavorResource) -> int:
    queue = snapshot.queue(name)
    assert queue is not None
    return snapshot.available(queue, pair)


@given(facts=worlds(waiting=8), fair=st.booleans(), parallel=st.booleans())
@settings(max_examples=80, deadline=None)
def test_nobody_borrows_later_what_an_owner_waits_for(
    facts: list[events.Event], fair: bool, parallel: bool
) -> None:
    """Also while Workloads end, one after the other; and nobody sleeps who could run."""
    sharing = FairSharingRules() if fair else None
    choices = Settings(protects_nominal=True, fair_sharing=sharing, parallel_preemptors=parallel)
    replay = Watched(facts, choices)
    for _ in range(4):
        replay.rest_without_leaving()
        assert replay.sleeper() is None
        if not replay.finish_one():
            break
