"""Small summaries whose size does not grow with the data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import attrs

from kueuelib.simulator.trace import CPU

DIGITS = 3
"""Significant digits of quantiles; whole numbers up to 999 are exact."""


class Spread:
    """Counts values by their first significant digits, so that quantiles need little memory."""

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self.count = 0
        self.total = 0.0
        self.most = 0.0

    def add(self, value: float) -> None:
        """Counts a value of at least 0."""
        self._counts[_rounded(value)] += 1
        self.count += 1
        self.total += value
        self.most = max(self.most, value)

    @property
    def mean(self) -> float | None:
        """The exact average; None without values."""
        return self.total / self.count if self.count else None

    def quantile(self, part: float) -> float | None:
        """The smallest value v such that at least this part of the values is at most v."""
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
class AmountOverTime:
    """An amount over time.

    Attributes:
        nominal: the amount beyond which usage counts as borrowed.
        amount: the present amount.
        most: the largest amount so far.
        area: its integral until `since`, in amount times seconds.
        borrowed: the integral of the part above `nominal`.
        owned: the integral of `nominal`.
        since: the time of the last change.
    """

    nominal: int = 0
    amount: int = 0
    most: int = 0
    area: float = 0.0
    borrowed: float = 0.0
    owned: float = 0.0
    since: float = 0.0

    def begin(self, now: float) -> None:
        """Begin to count now."""
        self.area = self.borrowed = self.owned = 0.0
        self.since = now

    def change(self, by: int, now: float) -> None:
        """Change the amount now."""
        self.pass_time(now)
        self.amount += by
        self.most = max(self.most, self.amount)

    def pass_time(self, now: float) -> None:
        """Advance the time with an unchanged amount."""
        seconds = now - self.since
        self.area += self.amount * seconds
        self.borrowed += max(0, self.amount - self.nominal) * seconds
        self.owned += self.nominal * seconds
        self.since = now

    def until(self, now: float) -> tuple[float, float, float]:
        """The integrals of the amount, of its borrowed part and of `nominal` until now."""
        seconds = now - self.since
        return (
            self.area + self.amount * seconds,
            self.borrowed + max(0, self.amount - self.nominal) * seconds,
            self.owned + self.nominal * seconds,
        )


def jain(values: Iterable[float]) -> float | None:
    """Jain's index: 1 if all values are equal, 1/n if one has everything; None without values."""
    numbers = list(values)
    squares = sum(value * value for value in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else None


def shown(resource: str, amount: float) -> float:
    """An amount of the scheduler in the usual unit, for example whole CPUs."""
    return amount / 1000 if resource == CPU else amount
