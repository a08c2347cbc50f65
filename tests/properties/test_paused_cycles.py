"""Cycles during which the engine learns something else."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from preemption_worlds import QUEUES, Replay, wild_world

from kueuelib.api.meta import ObjectKey
from kueuelib.recording.facts import plan_data
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import Plan, decide, decide_step_by_step
from kueuelib.scheduler.settings import FairSharingRules, Settings

SETTINGS = (
    Settings(),
    Settings(fair_sharing=FairSharingRules()),
    Settings(parallel_preemptors=False),
    Settings(protects_nominal=True),
)


def decide_beside(replay: Replay, later: list[events.Event]) -> Plan | None:
    """A cycle that is decided while the engine observes events, one in each pause."""
    replay.now += 1
    cycle = replay.engine.next_cycle(replay.now)
    if cycle is None:
        return None
    expected = decide(cycle, replay.now)
    steps = decide_step_by_step(cycle, replay.now)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan: Plan = end.value
            break
        if later:
            happen(replay, later.pop())
    assert plan_data(plan) == plan_data(expected)
    return plan


def happen(replay: Replay, event: events.Event) -> None:
    match event:
        case events.WorkloadSet(workload):
            replay.come(workload)
            return
        case events.WorkloadGone(key):
            replay.workloads.pop(key, None)
        case _:
            replay.facts.append(event)
    replay.engine.observe(event, replay.now)


@given(st.integers(0, 10**6))
def test_what_happens_during_a_cycle_does_not_change_it_and_is_not_forgotten(seed: int) -> None:
    rng = random.Random(seed)
    replay = Replay(wild_world(rng), rng.choice(SETTINGS))
    later: list[events.Event] = [
        one for one in wild_world(rng) if not isinstance(one, events.NamespaceSet)
    ]
    names = [f"{letter}{number}" for letter in "rp" for number in range(9)]
    later += [events.WorkloadGone(ObjectKey("ns", name)) for name in rng.sample(names, 4)]
    later += [events.ClusterQueueGone(rng.choice(QUEUES)) for _ in range(rng.randrange(2))]
    rng.shuffle(later)
    for _ in range(3):
        plan = decide_beside(replay, later)
        if plan is None:
            break
        settled = replay.engine.settle(plan, replay.now)
        replay.carry_out(settled)
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                replay.leave(victim)
    replay.rest()
    assert replay.sleeper() is None
