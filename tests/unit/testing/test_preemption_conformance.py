"""The conformance suite of preemption policies: it passes good ones and finds bad ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kueuelib.scheduler.preemption.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.testing.preemption_conformance import BrokenLawError, check_preemption_policy

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
        lambda: PreemptionBudget(3, 100),
    ],
)
def test_good_policies_pass(make: Callable[[], PreemptionPolicy]) -> None:
    assert check_preemption_policy(make, worlds=25) > 5


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
        (lambda: Mute(900), r"mute in world \d+: .* sleeps"),
        (Hasty, r"hasty in world \d+: refuse\(\) returned until=.*, which is not later than now"),
        (Unordered, r"unordered in world \d+: order\(\) returned \(nan,\)"),
    ],
)
def test_bad_policies_are_found(make: Callable[[], PreemptionPolicy], law: str) -> None:
    with pytest.raises(BrokenLawError, match=law):
        check_preemption_policy(make, worlds=40)
