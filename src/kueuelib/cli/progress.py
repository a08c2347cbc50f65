"""The progress of long work, for a user who waits."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import IO, Self

SEARCHING = "searching for changes"
_CLEAR = "\r\x1b[K"
"""Empties the line of a terminal."""


class Progress:
    """Shows the current step on standard error, if that is a terminal.

    Args:
        work: what each step does.
        total: the number of steps.
        file: where to write; standard error if None.
    """

    def __init__(self, work: str, total: int, file: IO[str] | None = None) -> None:
        self._work, self._total, self._number = work, total, 0
        self._file = sys.stderr if file is None else file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def step(self, subject: str) -> None:
        """Shows that the next step has begun.

        Args:
            subject: what the step is about.
        """
        self._number += 1
        self._write(f"{_CLEAR}{self._work}: {self._number} of {self._total}, {subject}")

    def clear(self) -> None:
        """Removes the line, so that something else can be written there."""
        self._write(_CLEAR)

    def _write(self, text: str) -> None:
        if self._file.isatty():
            self._file.write(text)
            self._file.flush()
