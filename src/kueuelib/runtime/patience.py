"""How long a server waits for a client that does not read."""

from __future__ import annotations

import asyncio

PATIENCE_SECONDS = 30.0
"""Seconds after which a connection is closed whose client takes nothing of what is sent."""


class Patience:
    """Closes a connection when what is sent is not taken.

    Args:
        transport: of the connection.
    """

    __slots__ = ("_timer", "_transport", "_unsent")

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def begin(self) -> None:
        """Wait for the client."""
        self._unsent = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._look)

    def end(self) -> None:
        """The client has read, or the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._transport.get_write_buffer_size() >= self._unsent:
            self._transport.abort()
        else:
            self.begin()
