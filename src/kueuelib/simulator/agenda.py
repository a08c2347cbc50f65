"""The virtual time, and what is going to happen."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import attrs


@attrs.frozen(order=True)
class _Planned:
    """Something that happens at a certain time; equal times in the order in which planned."""

    at: float
    number: int
    act: Callable[[], None] = attrs.field(order=False)


class Agenda:
    """What is planned, by time.

    Attributes:
        now: the virtual time.
    """

    def __init__(self) -> None:
        self.now = -math.inf
        self._planned: list[_Planned] = []
        self._number = 0

    def plan(self, at: float, act: Callable[[], None]) -> None:
        """Plans something; equal times come in the order in which they were planned."""
        self._number += 1
        heapq.heappush(self._planned, _Planned(at, self._number, act))

    @property
    def next_at(self) -> float:
        """When the next thing happens, infinite when nothing is planned."""
        return self._planned[0].at if self._planned else math.inf

    def act(self) -> None:
        """Does the next thing."""
        heapq.heappop(self._planned).act()
