"""Random decisions that are keyed by labels instead of positions in a sequence.

So removing one decision does not change any other, which makes shrinking work: suppressing a fault
does not reshuffle the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Draws"]

T = TypeVar("T")

_SPAN = float(2**53)


class Draws:
    """A source of decisions: the same seed, stream and label always give the same result.

    Args:
        seed: The seed of the whole storm.
        stream: Separates decisions for different purposes, for example `faults` and `users`.
    """

    def __init__(self, seed: int, stream: str = "") -> None:
        self.seed = seed
        self._stream = stream
        self._key = hashlib.blake2b(f"{seed}\0{stream}\0".encode(), digest_size=8)

    def stream(self, name: str) -> Draws:
        """Return the decisions of another stream of the same seed."""
        return Draws(self.seed, f"{self._stream}/{name}" if self._stream else name)

    def unit(self, label: str) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        key = self._key.copy()
        key.update(label.encode())
        return (int.from_bytes(key.digest(), "big") >> 11) / _SPAN

    def chance(self, label: str, probability: float) -> bool:
        """Return `True` with a probability from 0 to 1."""
        return self.unit(label) < probability

    def uniform(self, label: str, low: float, high: float) -> float:
        """Return a number between two bounds; each part of the range is equally likely."""
        return low + (high - low) * self.unit(label)

    def scaled(self, label: str, low: float, high: float) -> float:
        """Return a number between two positive bounds; each order of magnitude is equally likely.

        Raises:
            ValueError: A bound is not positive.
        """
        if low <= 0 or high <= 0:
            raise ValueError(f"bounds {low:g} and {high:g}: use positive numbers")
        return float(low * (high / low) ** self.unit(label))

    def integer(self, label: str, low: int, high: int) -> int:
        """Return a whole number between two inclusive bounds."""
        return low + int(self.unit(label) * (high - low + 1))

    def choice(self, label: str, options: Sequence[T]) -> T:
        """Return one of the options.

        Raises:
            ValueError: There are no options.
        """
        if not options:
            raise ValueError(f"draw {label!r}: there are no options to choose from")
        return options[int(self.unit(label) * len(options))]
