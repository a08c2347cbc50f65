"""Decisions by label for tests, and a family of scenarios."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import attrs

T = TypeVar("T")


@attrs.frozen
class Dice:
    seed: int

    def _random(self, label: str) -> random.Random:
        return random.Random(f"{self.seed} {label}")

    def chance(self, label: str, probability: float) -> bool:
        return self._random(label).random() < probability

    def uniform(self, label: str, low: float, high: float) -> float:
        return self._random(label).uniform(low, high)

    def integer(self, label: str, low: int, high: int) -> int:
        return self._random(label).randint(low, high)

    def choice(self, label: str, options: Sequence[T]) -> T:
        return self._random(label).choice(options)


@attrs.frozen
class Family:
    jobs: tuple[int, int] = (4, 15)
    crowds: float = 0.0
    users: bool = True
    edits: bool = False
    waits: bool = False
