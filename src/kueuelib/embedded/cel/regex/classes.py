"""Sets of characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

import attrs

Range = tuple[int, int]
LAST: Final = 0x10FFFF

DIGIT: Final[tuple[Range, ...]] = ((48, 57),)
SPACE: Final[tuple[Range, ...]] = ((9, 10), (12, 13), (32, 32))
WORD: Final[tuple[Range, ...]] = ((48, 57), (65, 90), (95, 95), (97, 122))
PERL: Final = {"d": DIGIT, "s": SPACE, "w": WORD}
POSIX: Final[dict[str, tuple[Range, ...]]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
CATEGORIES: Final = frozenset(
    [
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
        "Any",
    ]
)


@attrs.frozen
class CharSet:
    """A set of characters.

    Attributes:
        ranges: first and last code points.
        categories: Unicode general categories or their first letters, with whether they count
            as excluded.
        negated: the set is everything else.
        fold: upper and lower case are the same.
    """

    ranges: tuple[Range, ...]
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False
    fold: bool = False

    def has(self, letter: str) -> bool:
        """Whether a character is in the set."""
        found = self._has(letter)
        if not found and self.fold:
            found = any(
                self._has(other)
                for other in (letter.lower(), letter.upper(), letter.casefold())
                if len(other) == 1 and other != letter
            )
        return found is not self.negated

    def _has(self, letter: str) -> bool:
        code = ord(letter)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        if not self.categories:
            return False
        own = unicodedata.category(letter)
        return any(
            (name == "Any" or own.startswith(name)) is not excluded
            for name, excluded in self.categories
        )


def complement(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Everything else."""
    found: list[Range] = []
    position = 0
    for low, high in sorted(ranges):
        if low > position:
            found.append((position, low - 1))
        position = max(position, high + 1)
    if position <= LAST:
        found.append((position, LAST))
    return tuple(found)
