"""Parses fields of a trace; lines with errors are counted and left out, or refused."""

from __future__ import annotations

import math
import re
from collections import Counter
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.errors import ConfigError, InvalidQuantity

# ---- faulty lines of a trace: counted and left out, or refused -----------------------------------

SHOWN = 10
"""The maximum number of bad lines that are kept and shown; the others are only counted."""


@attrs.frozen
class BadLine:
    """A line that cannot be read.

    Attributes:
        file: its file.
        line: its number, from 1; for JSON and YAML the number of the item.
        field: the field at fault, empty if it is the whole line.
        reason: what is wrong with it.
    """

    file: str
    line: int
    field: str
    reason: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.file}:{self.line}: {field}{self.reason}"


class BadValue(Exception):
    """A field of the line that is being read; readers turn it into a `BadLine`.

    Attributes:
        field: the field.
        reason: what is wrong with it.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class Faults:
    """Counts the lines that were left out of a trace.

    Args:
        strict: whether a bad line is an error.

    Attributes:
        bad: how many lines could not be read.
        shown: the first of them.
        dropped: by reason, the number of valid lines that do not describe a job that ran.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self.bad = 0
        self.shown: list[BadLine] = []
        self.dropped: Counter[str] = Counter()

    def refuse(self, path: Path, line: int, error: BadValue) -> None:
        """Leaves a bad line out.

        Raises:
            ConfigError: with `strict`.
        """
        bad_line = BadLine(str(path), line, error.field, error.reason)
        if self._strict:
            raise ConfigError(
                f"{bad_line.file}:{line}",
                f"{bad_line.field}: {bad_line.reason}" if bad_line.field else bad_line.reason,
                "correct the line, or leave out --strict to skip it",
            )
        self.bad += 1
        if len(self.shown) < SHOWN:
            self.shown.append(bad_line)

    def drop(self, reason: str) -> None:
        """Leaves out a valid line that does not describe a job that ran."""
        self.dropped[reason] += 1


# --------------------------------------------------------------------------------------------------

END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""The end of simulated time in seconds since the epoch, because objects cannot express later
times.
"""
_MILLISECONDS = 1000.0
_LARGEST = 2**53
_NOT_IN_NAMES = re.compile("[^a-z0-9]+")
_LONGEST_NAME = 63


def number(text: Any, field: str) -> float:
    """A finite number.

    Raises:
        BadValue: it is not one.
    """
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise BadValue(field, f"{_shown(text)} is not a number") from None
    if not math.isfinite(value):
        raise BadValue(field, f"{_shown(text)} is not a finite number")
    return value


def not_negative(text: Any, field: str) -> float:
    """A number of at least 0 that is small enough to count with.

    Raises:
        BadValue: it is not one.
    """
    value = _countable(text, field)
    if value < 0:
        raise BadValue(field, f"{_shown(text)} is negative")
    return value


def _countable(text: Any, field: str) -> float:
    """Refuses a number above which whole numbers are rounded."""
    value = number(text, field)
    if abs(value) > _LARGEST:
        raise BadValue(field, f"{_shown(text)} is too large")
    return value


def whole(text: Any, field: str, *, least: int | None = None) -> int:
    """A whole number.

    Args:
        text: the value.
        field: its name.
        least: the smallest one that is allowed; None: any.

    Raises:
        BadValue: it is not one, or too small.
    """
    value = _countable(text, field)
    if value != int(value):
        raise BadValue(field, f"{_shown(text)} is not a whole number")
    if least is not None and value < least:
        raise BadValue(field, f"{_shown(text)} is less than {least}")
    return int(value)


def exact(text: Any, field: str) -> Fraction:
    """A finite number of at least 0, exactly as written.

    Raises:
        BadValue: it is not one.
    """
    not_negative(text, field)
    return Fraction(str(text).strip())


def moment(text: Any, field: str) -> float:
    """The time of an event: an `instant` from 0 to the year 9999.

    Raises:
        BadValue: it is not one.
    """
    seconds = instant(text, field)
    if seconds < 0:
        raise BadValue(field, f"{_shown(text)} is negative")
    if seconds >= END_OF_TIME:
        hint = "; are these milliseconds?" if seconds / _MILLISECONDS < END_OF_TIME else ""
        raise BadValue(field, f"{_shown(text)} is past the year 9998{hint}")
    return seconds


def instant(text: Any, field: str) -> float:
    """Seconds: a number, or a date and time; without a zone it counts as UTC.

    Raises:
        BadValue: it is neither.
    """
    if isinstance(text, int | float):
        return number(text, field)
    try:
        return number(text, field)
    except BadValue:
        pass
    try:
        when = datetime.fromisoformat(str(text).strip())
    except ValueError:
        raise BadValue(field, f"{_shown(text)} is neither a number nor a date and time") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def amount(text: Any, field: str) -> str:
    """A Kubernetes quantity that is not negative, as text.

    Raises:
        BadValue: it is not one.
    """
    try:
        quantity = Quantity.parse(text.strip() if isinstance(text, str) else text)
    except InvalidQuantity:
        raise BadValue(field, f"{_shown(text)} is not a Kubernetes quantity") from None
    if quantity.nanos < 0:
        raise BadValue(field, f"{_shown(text)} is negative")
    return str(quantity)


def named(text: str, empty: str = "") -> str:
    """A text as a name of a Kubernetes object: lower-case letters, digits and '-'.

    Args:
        text: any text.
        empty: the name for a text without letters and digits.
    """
    name = _NOT_IN_NAMES.sub("-", text.lower()).strip("-")
    return name[:_LONGEST_NAME].rstrip("-") or empty


def _shown(text: Any) -> str:
    shown = repr(text)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
