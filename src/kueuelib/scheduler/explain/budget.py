"""The budget of a search, counted in heads that are tried.

Every cycle of every trial counts, so that an answer takes bounded time in any world. A head takes
about a tenth of a millisecond. A budget may also be bounded in time, by a clock of the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

MOST_STEPS = 14_000
"""The maximum number of heads in all trials of a search together."""
MOST_BASE_STEPS = 100_000
"""The maximum number of heads that are tried to find the outcome without a change."""
STEPS_PER_WORKLOAD = 50
FEWEST_STEPS = 1_000
PAIR_STEPS = 1_000_000
"""The maximum number of heads that a search for two changes tries, unless its time ends before."""
COPIED_PER_STEP = 50
"""How many workloads of an engine are copied in the time of one head."""


class OutOfStepsError(Exception):
    """A trial would exceed the budget, so its outcome is unknown."""


class Budget:
    """The remaining budget.

    Args:
        steps: the total number of heads that may be tried.
        seconds: how long it lasts on the clock.
        clock: the time; by default it never passes.

    Attributes:
        left: how many are left.
        spent: how many were tried.
    """

    def __init__(
        self,
        steps: int = MOST_STEPS,
        *,
        seconds: float = math.inf,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.left = steps
        self.spent = 0
        self._kept = 0
        self._clock = clock
        self._until = self._end = clock() + seconds

    def share(self, part: float) -> None:
        """Limits spending to a part of the rest; the remainder is kept for later.

        Args:
            part: between 0 and 1.
        """
        self._kept = self.left - int(self.left * part)
        self._until = self._end
        if math.isfinite(self._end) and part < 1:
            now = self._clock()
            self._until = now + (self._end - now) * part

    def spend(self, steps: int) -> None:
        """Spends some steps.

        Raises:
            OutOfStepsError: there are not that many, or its time is over.
        """
        if self.left - steps < self._kept or self._clock() > self._until:
            raise OutOfStepsError
        self.left -= steps
        self.spent += steps


def most_steps(workloads: int) -> int:
    """The maximum number of heads that a run to rest may try in a world of a given size.

    That is far more than any world needs that ever comes to rest.
    """
    return min(MOST_BASE_STEPS, FEWEST_STEPS + STEPS_PER_WORKLOAD * workloads)


Spend = Callable[[int], None]
"""Takes steps, or raises `OutOfStepsError`."""
