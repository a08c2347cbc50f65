"""The conformance suite of preemption policies: it passes good ones and finds bad ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.policy import (
    KUEUE,
    Asking,
    PreemptionPolicy,
    Refusal,
    Running,
)
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.preemption_conformance import (
    START,
    BrokenLawError,
    WorldObjects,
    check_preemption_policy,
    random_world,
)

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "preemption_policies"))

from preemption_policies import MinimumRunTime, PreemptionBudget


class Plain(PreemptionPolicy):
    """Kueue's own policy, asked like one of others."""

    name = "plain"


class BlueStays(PreemptionPolicy):
    name = "blue"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        return Refusal("it is blue") if running.labels["team"] == "blue" else None


class NewestFirst(PreemptionPolicy):
    name = "newest"

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        return (-(running.started_at or 0.0),)


@pytest.mark.parametrize(
    "make",
    [
        Plain,
        BlueStays,
        NewestFirst,
        lambda: MinimumRunTime(600),
        lambda: MinimumRunTime(7.5),
        lambda: PreemptionBudget(1, 3600),
        lambda: PreemptionBudget(2, 3600),
    ],
)
def test_good_policies_pass(make: Callable[[], PreemptionPolicy]) -> None:
    assert check_preemption_policy(make, worlds=12) > 2


class Moody(PreemptionPolicy):
    """Remembers what it was asked."""

    name = "moody"

    def __init__(self) -> None:
        self.asked = 0

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        self.asked += 1
        return Refusal("it is the second question") if self.asked % 2 else None


class Raises(PreemptionPolicy):
    name = "raises"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        raise KeyError(running.labels["team"])


class Mute(MinimumRunTime):
    """Does not say when to look again."""

    name = "mute"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        found = super().refuse(asking, running, now)
        return Refusal(found.why) if found else None


class Hasty(PreemptionPolicy):
    name = "hasty"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        return Refusal("later", now)


class Unordered(PreemptionPolicy):
    name = "unordered"

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        return (float("nan"),)


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (Moody, r"moody in world \d+: refuse\(\) returned .*, and then"),
        (Raises, r"raises in world \d+: refuse\(\) raised KeyError: '(red|blue)'"),
        (lambda: Mute(900), r"mute in world \d+: .* stays parked"),
        (Hasty, r"hasty in world \d+: refuse\(\) returned until=.*, which is not later than now"),
        (Unordered, r"unordered in world \d+: order\(\) returned \(nan,\)"),
    ],
)
def test_bad_policies_are_found(make: Callable[[], PreemptionPolicy], law: str) -> None:
    with pytest.raises(BrokenLawError, match=law):
        check_preemption_policy(make, worlds=40)


def decisions(seed: int, policy: PreemptionPolicy) -> list[Any]:
    """What is admitted and preempted in a world until it rests."""
    world = random_world(seed)
    engine = Engine(Settings(fair_sharing=world.fair_sharing, preemption=policy))
    told: list[Any] = []
    engine.observe_all([*world.facts, *map(events.WorkloadSet, world.workloads)], START)
    stored, found = WorldObjects(world.workloads), engine.next_cycle(START)
    while found is not None:
        settled = engine.settle(decide(found, START), START)
        told += [admit.key for admit in settled.admissions]
        told += [(one.key, victim.key) for one in settled.preemptions for victim in one.victims]
        engine.observe_all(list(stored.carried_out(settled, START)), START)
        found = engine.next_cycle(START)
    return told


def test_kueues_own_rules_are_a_policy_like_any_other() -> None:
    """Asked through the guard, and made to order, they decide as they do without being asked."""

    class Kueues(Plain):
        def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
            return super().order(asking, running)

    for seed in range(60):
        assert decisions(seed, Kueues()) == decisions(seed, KUEUE)
