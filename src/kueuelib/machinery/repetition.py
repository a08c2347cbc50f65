"""What recurs is logged at once, and then once a period with a count."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs

PERIOD: Final = 60.0
"""Seconds between two lines of one cause."""
_NAMES: Final = re.compile(r'"[^"]*"|(?<!\w)\'[^\']*\'(?!\w)|\S*[\d/]\S*')
"""What may be a name, an address or a number."""

Line = TypeVar("Line")


@attrs.define(eq=False)
class _Cause(Generic[Line]):
    """What is known of one cause: when its next line is due, and what was left out until then."""

    due: float
    left_out: int = 0
    last: Line | None = None


class Repetition(Generic[Line]):
    """Decides which lines are logged: of each cause the first one at once, then one each period.

    Counts are exact: the lines that were logged and the numbers of those left out before them sum
    up to the lines that were noted.

    Args:
        period: seconds between two lines of one cause.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._causes: dict[Hashable, _Cause[Line]] = {}

    def note(self, cause: Hashable, line: Line, now: float) -> int | None:
        """How many lines were left out before this one; None if it is left out, too.

        Args:
            cause: which lines are alike.
            line: is returned by `due` if it is the last one that is left out.
            now: seconds, never going back.
        """
        known = self._causes.get(cause)
        if known is not None and now < known.due:
            known.left_out += 1
            known.last = line
            return None
        self._causes[cause] = _Cause(now + self._period)
        return 0 if known is None else known.left_out

    def due(self, now: float = math.inf) -> list[tuple[Line, int]]:
        """The lines to log at this time, or at the end: for each cause the last one that was left
        out, and how many were left out before it.
        """
        due: list[tuple[Line, int]] = []
        for cause, known in list(self._causes.items()):
            if now < known.due:
                continue
            if known.last is None:
                del self._causes[cause]
                continue
            due.append((known.last, known.left_out - 1))
            self._causes[cause] = _Cause(now + self._period)
        return due

    @property
    def next_due(self) -> float:
        """When `due` has the next line; infinity if nothing was left out."""
        return min((each.due for each in self._causes.values() if each.left_out), default=math.inf)


class Recent:
    """Remembers what was said about each subject, so that it is said once a period.

    Args:
        period: seconds.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._said: dict[Hashable, tuple[str, float]] = {}  # in the order of times

    def is_new(self, subject: Hashable, text: str, now: float) -> bool:
        """Whether something else, or nothing, was said last about a subject; if so, this counts as
        said.

        Args:
            subject: what the text is about.
            text: the same one is new again after the period.
            now: seconds, never going back.
        """
        said = self._said
        while said and now - next(iter(said.values()))[1] >= self._period:
            del said[next(iter(said))]
        if subject in said and said[subject][0] == text:
            return False
        said.pop(subject, None)
        said[subject] = text, now
        return True


def cause_of(line: Mapping[str, Any], ignored: frozenset[str]) -> Hashable:
    """What the lines of a cause have in common: all words except names and numbers.

    Names are what is quoted, and words with a digit or a slash.

    Args:
        line: texts and numbers by name.
        ignored: the names of values that do not depend on the cause.
    """
    return tuple(
        (name, _NAMES.sub("*", value) if isinstance(value, str) else None)
        for name, value in line.items()
        if name not in ignored
    )
