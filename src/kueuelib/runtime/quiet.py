"""Keeps the log short: a recurring problem is logged once a minute, with a count."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final

import structlog

from kueuelib.machinery.repetition import PERIOD, Repetition, cause_of

FULL: Final = "too many connections: those idle longest are closed"
REPEATED: Final = frozenset(
    ("SSL connection is closed", "socket.send() raised exception.", "SSL handshake failed", FULL)
)
LEFT_OUT: Final = "left_out"
"""The value of a line that says how many lines like it were left out before it."""
_PROBLEMS: Final = frozenset(("warning", "error", "critical"))
_OF_ONE_LINE: Final = frozenset(("key", "reconcile", "resource", "exc_info", "stack_info"))
"""The values that say what a line is about, and not why. A kind that is alone in its trouble, such
as a missing right, is named by the error itself.
"""

Event = MutableMapping[str, Any]


class Sparse(logging.Filter):
    """Passes messages about closed connections at most once a minute, with the number left out.

    Args:
        clock: in seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._repetition = Repetition[None]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; its message may get the number."""
        if record.msg not in REPEATED:
            return True
        left_out = self._repetition.note(record.msg, None, self._clock())
        if left_out:
            record.msg = f"{record.msg} (and {left_out:,} times before)"
        return left_out is not None


class OncePerMinute:
    """A processor of structlog: our lines about problems are logged once a minute per cause.

    These are warnings, errors, and all lines with an `error`. Two of them have the same cause if
    they differ only in names and numbers. The first one is logged at once. A minute later follows
    the latest of the lines that were left out, with their number. `finish` logs what is left.

    Args:
        tell: writes a line that was left out.
        period: seconds.
        clock: in seconds, never going back.
    """

    def __init__(
        self,
        tell: Callable[[Event], None],
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._repetition = Repetition[Event](period)
        self._lock = threading.Lock()
        self._waits: asyncio.AbstractEventLoop | None = None  # has a timer

    def __call__(self, _: Any, level: str, event: Event) -> Event:
        """The line, or `structlog.DropEvent`."""
        if "component" not in event or (level not in _PROBLEMS and "error" not in event):
            return event
        if event.get("exc_info") is True:
            event["exc_info"] = sys.exc_info()  # a line that is logged later has no other chance
        with self._lock:
            left_out = self._repetition.note(cause_of(event, _OF_ONE_LINE), event, self._clock())
        if left_out is None:
            self._wait()
            raise structlog.DropEvent
        return {**event, LEFT_OUT: left_out} if left_out else event

    def finish(self) -> None:
        """Log the last line of each cause that was left out."""
        with self._lock:
            due = self._repetition.due()
        self._tell_all(due)

    def _wait(self) -> None:
        """Set a timer of the running loop; without one, the next line or the end has the number."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._waits is not loop:
            self._waits = loop
            loop.call_later(max(self._repetition.next_due - self._clock(), 0.0), self._tick)

    def _tick(self) -> None:
        self._waits = None
        with self._lock:
            due, more = self._repetition.due(self._clock()), self._repetition.next_due
        self._tell_all(due)
        if more < float("inf"):
            self._wait()

    def _tell_all(self, due: Sequence[tuple[Event, int]]) -> None:
        for event, left_out in due:
            self._tell({**event, LEFT_OUT: left_out} if left_out else event)
