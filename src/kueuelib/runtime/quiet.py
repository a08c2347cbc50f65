"""Keeps the log short: messages about closed connections may come in any number."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

EVERY_SECONDS: Final = 60.0
FULL: Final = "too many connections: those idle longest are closed"
REPEATED: Final = frozenset(
    ("SSL connection is closed", "socket.send() raised exception.", "SSL handshake failed", FULL)
)


class Sparse(logging.Filter):
    """Passes each message at most once a minute, with the number of those left out.

    Args:
        clock: in seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; its message may get the number."""
        name = record.msg
        if name not in REPEATED:
            return True
        now = self._clock()
        if name in self._told and now - self._told[name] < EVERY_SECONDS:
            self._left_out[name] = self._left_out.get(name, 0) + 1
            return False
        self._told[name] = now
        count = self._left_out.pop(name, 0)
        if count:
            record.msg = f"{name} (and {count:,} times before)"
        return True
