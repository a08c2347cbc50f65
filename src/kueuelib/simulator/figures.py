"""Small sums that do not grow with what they count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import attrs

from kueuelib.simulator.work import CPU

DIGITS = 3
"""Significant digits of quantiles: up to 999 they are exact for whole numbers."""


class Spread:
    """Counts values by their first significant digits, so that quantiles need little memory."""

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self.count = 0
        self.total = 0.0
        self.most = 0.0

    def add(self, value: float) -> None:
        """Counts a value from 0 on."""
        self._counts[_rounded(value)] += 1
        self.count += 1
        self.total += value
        self.most = max(self.most, value)

    @property
    def mean(self) -> float | None:
        """The average, exactly; None of nothing."""
        return self.total / self.count if self.count else None

    def quantile(self, part: float) -> float | None:
        """The smallest value that at least this part of the values does not exceed."""
        wanted = math.ceil(part * self.count)
        seen = 0
        for value in sorted(self._counts):
            seen += self._counts[value]
            if seen >= wanted:
                return min(value, self.most)
        return None

    def steps(self) -> tuple[tuple[float, int], ...]:
        """The values in ascending order, each with how many values do not exceed it."""
        steps, seen = [], 0
        for value in sorted(self._counts):
            seen += self._counts[value]
            steps.append((min(value, self.most), seen))
        return tuple(steps)


def _rounded(value: float) -> float:
    if value < 10**DIGITS:
        return round(value, DIGITS)
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - DIGITS)
    return round(value / step) * step


@attrs.define
class Level:
    """An amount over time.

    Attributes:
        nominal: what counts as borrowed beyond.
        amount: what it is now.
        most: the largest that it was.
        area: its integral until `since`, in amount times seconds.
        borrowed: the integral of what exceeds `nominal`.
        owned: the integral of `nominal`.
        since: when it changed last.
    """

    nominal: int = 0
    amount: int = 0
    most: int = 0
    area: float = 0.0
    borrowed: float = 0.0
    owned: float = 0.0
    since: float = 0.0

    def begin(self, now: float) -> None:
        """The time before now does not count."""
        self.area = self.borrowed = self.owned = 0.0
        self.since = now

    def change(self, by: int, now: float) -> None:
        """The amount changes now."""
        self.pass_time(now)
        self.amount += by
        self.most = max(self.most, self.amount)

    def pass_time(self, now: float) -> None:
        """The amount has been the same until now."""
        seconds = now - self.since
        self.area += self.amount * seconds
        self.borrowed += max(0, self.amount - self.nominal) * seconds
        self.owned += self.nominal * seconds
        self.since = now

    def until(self, now: float) -> tuple[float, float, float]:
        """The integrals of the amount, of what is borrowed and of `nominal` until now."""
        seconds = now - self.since
        return (
            self.area + self.amount * seconds,
            self.borrowed + max(0, self.amount - self.nominal) * seconds,
            self.owned + self.nominal * seconds,
        )


def jain(values: Iterable[float]) -> float | None:
    """Jain's index: 1 when all values are equal, 1/n when one has everything; None without any."""
    numbers = list(values)
    squares = sum(value * value for value in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else None


def shown(resource: str, amount: float) -> float:
    """An amount of the scheduler in the unit that people use: CPUs, not thousandths of them."""
    return amount / 1000 if resource == CPU else amount
