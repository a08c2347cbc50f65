"""Faulty lines of a trace: counted and left out, or refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import attrs

from kueuelib.errors import ConfigError

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
