"""Time as a change: a preemption policy may allow later what it refuses now."""

from __future__ import annotations

import attrs

from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.changes import (
    UnsizedChange,
)
from kueuelib.scheduler.explain.trial import SearchBudget, TrialOutcome, Trials
from kueuelib.scheduler.explain.tried_change import TriedChange
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.policy import Asking, PreemptionPolicy, Refusal, Running
from kueuelib.scheduler.reasons import NoFlavors

MOST_ENDS = 20
"""The maximum number of ends of protections that are tried, one after the other."""


@frozen
class ProtectionEnds(UnsizedChange):
    """The preemption policy allows a preemption that it refuses now.

    Attributes:
        key: the workload that waits.
        policy: the name of the policy.
        until: when, in seconds since the epoch.
        after: how many seconds from now.
    """

    key: ObjectKey
    policy: str
    until: float
    after: float

    kind = "protection"

    @property
    def subject(self) -> str:
        """The workload."""
        return f"Workload {self.key}"

    @property
    def text(self) -> str:
        """When."""
        until = format_time(self.until)
        return f"only time helps: the preemption policy {self.policy} protects others until {until}"

    def apply(self, world: World) -> World:
        """The world in which the policy answers as it will at that time."""
        later = _Later(world.settings.preemption, self.after)
        return attrs.evolve(world, settings=attrs.evolve(world.settings, preemption=later))


def first_end(
    world: World, key: ObjectKey, now: float, base: TrialOutcome, budget: SearchBudget
) -> TriedChange | None:
    """The first end of a protection after which a workload gets quota; None if time does not help.

    Args:
        world: the facts; not changed.
        key: the workload.
        now: seconds since the epoch.
        base: its outcome without a change.
        budget: the remaining budget.

    Raises:
        OutOfStepsError: there are no steps left.
    """
    reason, after = base.reason, 0.0
    for _ in range(MOST_ENDS):
        protected = reason.protected if isinstance(reason, NoFlavors) else None
        if protected is None or protected.until is None:
            return None
        until = after + protected.until
        after = until - now
        change = ProtectionEnds(key, protected.policy, until, after)
        later = change.apply(world)
        outcome = Trials(later, key, now, budget).within(later)
        if outcome.helps:
            return TriedChange(change, outcome)
        reason = outcome.reason
    return None


class _Later(PreemptionPolicy):
    """A policy that is asked about a later time."""

    def __init__(self, policy: PreemptionPolicy, after: float) -> None:
        self.name = policy.name
        self.remembers = policy.remembers
        self._policy = policy
        self._after = after

    def refuse(self, asking: Asking, running: Running, now: float) -> Refusal | None:
        """As the policy will answer then; times are shifted as if it were now."""
        later = now + self._after
        forgotten = later - self.remembers
        running = attrs.evolve(
            running,
            preempted=tuple(at for at in running.preempted if at > forgotten),
            queue_preempted=tuple(
                later if at == now else at
                for at in running.queue_preempted
                if at == now or at > forgotten
            ),
        )
        refusal = self._policy.refuse(asking, running, later)
        if refusal is None or refusal.until is None:
            return refusal
        return attrs.evolve(refusal, until=refusal.until - self._after)

    def order(self, asking: Asking, running: Running) -> tuple[float, ...]:
        """The order of the policy."""
        return self._policy.order(asking, running)
