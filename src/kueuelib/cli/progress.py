"""The progress of long work, for a user who waits."""

from __future__ import annotations

import shutil
import sys
from typing import IO, Self

SEARCHING = "searching for changes"
_CLEAR = "\r\x1b[K"
"""Empties the line of a terminal."""


class StatusLine:
    """A line of a terminal that is written again and again; nothing if it is none.

    Args:
        file: where to write; standard error if None.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = sys.stderr if file is None else file
        self.shows = self._file.isatty()

    def show(self, text: str) -> None:
        """Replaces the line; a text that wraps could not be overwritten, so it is cut."""
        self._write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        """Removes the line, so that something else can be written there."""
        self._write(_CLEAR)

    def _write(self, text: str) -> None:
        if self.shows:
            self._file.write(text)
            self._file.flush()


class StepProgress:
    """Shows the current step on standard error, if that is a terminal.

    Args:
        work: what each step does.
        total: the number of steps.
        file: where to write; standard error if None.
    """

    def __init__(self, work: str, total: int, file: IO[str] | None = None) -> None:
        self._work, self._total, self._number = work, total, 0
        self._line = StatusLine(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def step(self, subject: str) -> None:
        """Shows that the next step has begun.

        Args:
            subject: what the step is about.
        """
        self._number += 1
        self._line.show(f"{self._work}: {self._number} of {self._total}, {subject}")

    def clear(self) -> None:
        """Removes the line, so that something else can be written there."""
        self._line.clear()
