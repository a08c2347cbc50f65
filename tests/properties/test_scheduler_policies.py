"""Laws of preemption hold with any pure policy, however strange."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.scheduler.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.testing.preemption_conformance import check_preemption_policy


def lot(*values: Any) -> int:
    """A number from 0 to 255 that depends on nothing else."""
    return sha256(repr(values).encode()).digest()[0]


@attrs.frozen(eq=False)
class Strange(PreemptionPolicy):
    """Protects by lot, by age and by budget, and orders by lot."""

    salt: int
    spared: int
    seconds: float
    budget: int
    remembers: float

    name = "strange"

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        who = (running.uid, asking.priority, asking.local_queue.name)
        if lot(self.salt, who) < self.spared:
            return Refusal("the lot protects it")
        since = running.reserved_at if running.started_at is None else running.started_at
        until = (now if since is None else since) + self.seconds
        recent = running.queue_preempted[-self.budget :]
        if len(recent) == self.budget:
            until = max(until, recent[0] + self.remembers)
        return Refusal("time protects it", until) if now < until else None

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        return (lot(self.salt, running.uid), len(running.preempted))


@given(
    seed=st.integers(0, 2**32),
    policy=st.builds(
        Strange,
        salt=st.integers(0, 2**32),
        spared=st.sampled_from([0, 40, 120]),
        seconds=st.sampled_from([0.0, 0.5, 60.0, 3000.0]),
        budget=st.integers(1, 4),
        remembers=st.sampled_from([5.0, 600.0, 7200.0]),
    ),
)
@settings(max_examples=40, deadline=None)
def test_laws_hold_with_any_pure_policy(seed: int, policy: PreemptionPolicy) -> None:
    check_preemption_policy(lambda: policy, worlds=1, first=seed)
