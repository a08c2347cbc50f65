"""How much work a search may do, counted in heads that were tried.

Every cycle of every trial counts, so that an answer comes in bounded time whatever the world is
like. A head takes about a tenth of a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable

MOST_STEPS = 14_000
"""How many heads all trials of a search may try together."""
MOST_BASE_STEPS = 100_000
"""How many heads are tried at most to find out what happens without any change."""
STEPS_PER_WORKLOAD = 50
FEWEST_STEPS = 1_000
COPIED_PER_STEP = 50
"""How many workloads of an engine are copied in the time of one head."""


class OutOfStepsError(Exception):
    """A trial would go beyond what is left; what it would have come to is not known."""


class Budget:
    """What is left to spend.

    Args:
        steps: how many heads may be tried in all.

    Attributes:
        left: how many are left.
        spent: how many were tried.
    """

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps
        self.spent = 0
        self._kept = 0

    def share(self, part: float) -> None:
        """Keeps from now on all but a part of what is left for what comes later.

        Args:
            part: between 0 and 1.
        """
        self._kept = self.left - int(self.left * part)

    def spend(self, steps: int) -> None:
        """Takes some steps.

        Raises:
            OutOfStepsError: there are not that many.
        """
        if self.left - steps < self._kept:
            raise OutOfStepsError
        self.left -= steps
        self.spent += steps


def most_steps(workloads: int) -> int:
    """How many heads a run to rest may try in a world of some size.

    That is far more than any world needs that comes to rest at all.
    """
    return min(MOST_BASE_STEPS, FEWEST_STEPS + STEPS_PER_WORKLOAD * workloads)


Spend = Callable[[int], None]
"""Takes steps, or raises `OutOfStepsError`."""
