"""A law of evictions that the API server refuses for a while."""

from __future__ import annotations

import itertools
import random

from hypothesis import event, given, settings
from hypothesis import strategies as st
from preemption_worlds import Replay, wild_world

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.decide.preemption.guard import FIRST_REST
from kueuelib.scheduler.reasons import NoFlavors
from kueuelib.scheduler.settings import FairSharingRules, Settings

NAMES = [f"r{number}" for number in range(9)]


class Refusing(Replay):
    """A world in which victims leave at once, except those that the API server keeps.

    Attributes:
        kept: their names.
        tried: when their eviction was tried.
    """

    def __init__(self, facts: list[events.Event], policy: Settings, kept: set[str]) -> None:
        super().__init__(facts, policy)
        self.kept = kept
        self.tried: dict[ObjectKey, list[float]] = {}

    def cycle(self) -> bool:
        self.now += 0.01
        cycle = self.engine.next_cycle(self.now)
        if cycle is None:
            return False
        settled = self.engine.settle(decide(cycle, self.now), self.now)
        self.carry_out(settled)
        for preemption in settled.preemptions:
            for victim in preemption.victims:
                if victim.key.name in self.kept:
                    self.tried.setdefault(victim.key, []).append(self.now)
                    failed = events.EvictionFailed(victim.key, victim.holder.uid, "no")
                    self.engine.observe(failed, self.now)
                else:
                    self.leave(victim)
        return True

    def wait(self) -> bool:
        """Lets the time pass until something is due; False if nothing ever is."""
        deadline = self.engine.next_deadline()
        if deadline is None:
            return False
        self.now = deadline
        self.rest()
        return True


def test_a_preemptor_that_was_refused_meets_other_heads_like_any_other() -> None:
    """In this random world it came first again, and met a blocked head at one flavor each time."""
    replay = Refusing(
        wild_world(random.Random(512421)), Settings(parallel_preemptors=False), {"r0"}
    )
    replay.rest()
    while replay.wait():
        replay.kept = set()
    replay.rest_without_leaving()
    assert replay.sleeper() is None


@given(
    seed=st.integers(0, 2**32),
    kept=st.sets(st.sampled_from(NAMES)) | st.just({*NAMES}),
    fair=st.booleans(),
    parallel=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_a_refused_eviction_waits_its_time_and_nobody_sleeps_after_it(
    seed: int, kept: set[str], fair: bool, parallel: bool
) -> None:
    sharing = FairSharingRules() if fair else None
    policy = Settings(parallel_preemptors=parallel, fair_sharing=sharing)
    replay = Refusing(wild_world(random.Random(seed)), policy, kept)
    replay.rest()
    for _ in range(3):
        replay.wait()
    event(f"refused: {len(replay.tried)}")
    for times in replay.tried.values():
        pauses = [later - before for before, later in itertools.pairwise(times)]
        assert all(pause >= FIRST_REST for pause in pauses)
        assert pauses == sorted(pauses)
    replay.kept = set()
    assert any(not replay.wait() for _ in range(50)), "something is always due"
    replay.rest_without_leaving()
    reasons = [replay.engine.standing(key).reason for key in replay.workloads]
    gave_up = any(isinstance(reason, NoFlavors) and reason.in_vain for reason in reasons)
    if not (fair or gave_up):  # those behind one that gave up wait for it
        assert replay.sleeper() is None
