"""The open connections of a server: their number, and which of them make room."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from kueuelib.runtime.memory import give_back
from kueuelib.runtime.quiet import FULL

MADE_ROOM: Final = 16
"""When there are too many connections, one in this many is closed."""
CROWD: Final = 256
"""The number of connections whose memory is worth giving back."""
LOG: Final = logging.getLogger("kueuelib.connections")


class _Outer(Protocol):
    """The outermost protocol on a socket."""

    @property
    def rests_since(self) -> float | None:
        """Since when it is idle, in seconds of the loop; None while it is working."""
        ...

    def cut_off(self) -> None:
        """Closes it at once, without an answer."""
        ...


class Slots:
    """The open connections of one server.

    Args:
        most: the maximum number at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[_Outer, None] = {}
        self._crowd = 0

    def enter(self, one: _Outer) -> bool:
        """Counts one more connection; idle ones may be closed for it, the longest idle first.

        Returns:
            False if there is no room, because all are working.
        """
        if len(self._open) >= self._most:
            since = {each: each.rests_since for each in self._open}
            resting = [
                (at, i, each) for i, (each, at) in enumerate(since.items()) if at is not None
            ]
            for _, _, each in sorted(resting)[: max(1, self._most // MADE_ROOM)]:
                del self._open[each]
                each.cut_off()
            LOG.warning(FULL)
        if len(self._open) >= self._most:
            return False
        self._open[one] = None
        self._crowd = max(self._crowd, len(self._open))
        return True

    def leave(self, one: _Outer) -> None:
        """Counts a connection off; after a crowd, its memory is given back."""
        self._open.pop(one, None)
        if self._crowd >= CROWD and len(self._open) <= self._crowd // 4:
            self._crowd = len(self._open)
            asyncio.get_running_loop().call_later(1.0, give_back)
