"""The virtual time, and the planned events."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Agenda:
    """Planned events by time.

    Attributes:
        now: the virtual time.
    """

    def __init__(self) -> None:
        self.now = -math.inf
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def plan(self, at: float, act: Callable[[], None]) -> None:
        """Plans an event; events at equal times happen in the order they were planned."""
        self._number += 1
        heapq.heappush(self._planned, (at, self._number, act))

    @property
    def next_at(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._planned[0][0] if self._planned else math.inf

    def act(self) -> None:
        """Executes the next event."""
        _, _, act = heapq.heappop(self._planned)
        act()
