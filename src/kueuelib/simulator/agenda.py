"""The virtual time, and what is going to happen."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Agenda:
    """What is planned, by time.

    Attributes:
        now: the virtual time.
    """

    def __init__(self) -> None:
        self.now = -math.inf
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def plan(self, at: float, act: Callable[[], None]) -> None:
        """Plans something; equal times come in the order in which they were planned."""
        self._number += 1
        heapq.heappush(self._planned, (at, self._number, act))

    @property
    def next_at(self) -> float:
        """When the next thing happens, infinite when nothing is planned."""
        return self._planned[0][0] if self._planned else math.inf

    def act(self) -> None:
        """Does the next thing."""
        _, _, act = heapq.heappop(self._planned)
        act()
