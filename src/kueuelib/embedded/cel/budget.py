"""Limits the cost of an evaluation, in the units of Kubernetes and in time."""

from __future__ import annotations

import time

from kueuelib.embedded.cel.errors import BudgetExceeded

CALL_LIMIT = 2_000_000
"""Cost units of one expression."""

OBJECT_LIMIT = 20_000_000
"""Cost units of all rules of one object."""

OBJECT_SECONDS = 0.5
"""The same in time, because a single-threaded server blocks meanwhile."""

STRIDE = 4_000


class Budget:
    """Counts down, and reads the clock every few thousand units.

    Args:
        units: of cost.
        deadline: on the monotonic clock, None for no limit in time.
    """

    __slots__ = ("_deadline", "_mark", "left")

    def __init__(self, units: int = CALL_LIMIT, deadline: float | None = None) -> None:
        self.left = units
        self._deadline = deadline
        self._mark = units - STRIDE if deadline is not None else 0

    def spend(self, units: int) -> None:
        """Spends units.

        Raises:
            BudgetExceeded: nothing is left.
        """
        self.left -= units
        if self.left < self._mark:
            self._look()

    def _look(self) -> None:
        if self.left < 0:
            raise BudgetExceeded
        if self._deadline is not None:
            if time.monotonic() > self._deadline:
                self.left = -1
                raise BudgetExceeded
            self._mark = self.left - STRIDE


def deadline_in(seconds: float) -> float:
    """The deadline of a budget that begins now."""
    return time.monotonic() + seconds


def traversal(*values: object) -> int:
    """The cost of reading texts, bytes and lists once: a tenth of a unit for each element."""
    total = 0
    for value in values:
        if isinstance(value, str | bytes | list | dict):
            total += len(value)
    return total // 10 + 1
