"""Laws about effort: nothing is written again and again without a cause."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws.memory import Memory, is_manager, life
from kueuelib.testing.storm.laws.reading import LEASES, reserving, subject_of_workload

STEPS = 12
"""The maximum number of steps of a Workload between two reservations without outside events."""
STEPS_PER_CAUSE = 4


def no_burst(memory: Memory, commit: Commit) -> Iterator[str]:
    """Managers write one object only a limited number of times within a period."""
    if not is_manager(commit.actor) or commit.resource == LEASES:
        return
    tolerance = memory.tolerance
    times = memory.recent[commit.key]
    times.append(commit.at)
    while times[0] < commit.at - tolerance.window:
        times.pop(0)
    if len(times) > tolerance.burst:
        count = len(times)
        times.clear()
        yield f"managers wrote it {count} times within {tolerance.window:g} s"


def bounded_steps(memory: Memory, commit: Commit) -> Iterator[str]:
    """The number of writes between two reservations of a Workload is bounded by its events."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or life(commit.old) == life(new):
        return
    if reserving(new) and not reserving(commit.old):
        return
    subject = subject_of_workload(new)
    budget = memory.budgets[subject]
    allowed = STEPS + STEPS_PER_CAUSE * (budget.causes + memory.turns - budget.turn)
    if budget.steps >= allowed:
        steps = budget.steps + 1
        budget.steps = 0
        yield f"{steps} steps since it last reserved quota; what happened explains {allowed}"
