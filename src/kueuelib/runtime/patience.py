"""How long a server waits for a client that does not read."""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol

PATIENCE_SECONDS = 30.0
"""Seconds after which a connection is closed whose client takes nothing of what is sent."""


class PatientTls(SSLProtocol):
    """TLS of one connection, which is closed when what is sent is not taken."""

    _patience: asyncio.TimerHandle | None = None
    _unsent = 0

    def pause_writing(self) -> None:
        """Begins to wait for the client."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Ends to wait, as the client has read."""
        self._stop()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forgets the connection."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if isinstance(self._transport, asyncio.WriteTransport):
            self._unsent = self._transport.get_write_buffer_size()
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(PATIENCE_SECONDS, self._look, self._transport)

    def _look(self, transport: asyncio.WriteTransport) -> None:
        if transport.get_write_buffer_size() >= self._unsent:
            transport.abort()
        else:
            self._wait()

    def _stop(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
