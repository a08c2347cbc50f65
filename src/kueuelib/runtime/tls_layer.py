"""TLS between a transport and a protocol, in memory.

asyncio's own layer keeps 256 KiB per connection, and has no public way to less.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from kueuelib.runtime.network_errors import fail

BUFFER: Final = 32 * 1024
"""Bytes of the buffer into which a transport reads; connections of one loop share one."""
_RECORD: Final = 16 * 1024
"""Bytes of the largest record of TLS."""


class _HandshakeState(Enum):
    SHAKING = 1
    OPEN = 2
    LEAVING = 3
    """The end was said, and the other side has not confirmed it."""
    CLOSED = 4


class TlsLayer(asyncio.Transport, asyncio.BufferedProtocol):
    """A protocol for the transport below, and the transport of the protocol above.

    Args:
        make: makes the protocol above, after the handshake.
        context: certificates and rules.
        buffer: of `BUFFER` bytes. A loop reads into it and hands it over in one step, so one is
            enough for all connections of a loop.
        server_side: whether this is the server.
        server_hostname: what the client expects.
        handshake_seconds: how long a handshake may take.
        farewell_seconds: how long the other side may take to confirm the end.
        ready: done after the handshake, or failed.

    Attributes:
        above: the protocol above, while the connection is open.
        received: the buffer.
    """

    __slots__ = (
        "_backlog",
        "_below",
        "_context",
        "_failure",
        "_farewell_seconds",
        "_handshake_seconds",
        "_incoming",
        "_make",
        "_outgoing",
        "_paused",
        "_peer",
        "_ready",
        "_state",
        "_timer",
        "_tls",
        "above",
        "received",
    )

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        buffer: bytearray,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        handshake_seconds: float,
        farewell_seconds: float,
        ready: asyncio.Future[None] | None = None,
    ) -> None:
        super().__init__()
        self.above: Any = None
        self._make = make
        self._context = context
        self.received = memoryview(buffer)
        self._handshake_seconds, self._farewell_seconds = handshake_seconds, farewell_seconds
        self._ready = ready
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._below: Any = None
        self._state = _HandshakeState.SHAKING
        self._paused = False
        self._backlog = b""
        self._failure: Exception | None = None
        self._peer: Any = None
        self._timer: asyncio.TimerHandle | None = None

    # ---- the protocol of the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake."""
        self._below = transport
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake_seconds, self._late)
        self._shake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the protocol above, or the wait for the handshake."""
        failure = self._failure or exc
        shaking, self._state = self._state is _HandshakeState.SHAKING, _HandshakeState.CLOSED
        self._stop_timer()
        self._backlog = b""
        if shaking:
            self._settle(failure or ConnectionResetError("the connection was closed"))
        above, self.above = self.above, None
        if above is not None:
            above.connection_lost(failure)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where received bytes go."""
        del sizehint
        return self.received

    def buffer_updated(self, nbytes: int) -> None:
        """Takes received bytes."""
        self._incoming.write(self.received[:nbytes])
        self._advance()

    def data_received(self, data: bytes) -> None:
        """Takes received bytes from another layer of TLS."""
        self._incoming.write(data)
        self._advance()

    def eof_received(self) -> None:
        """The other side sends no more, perhaps without saying so in TLS."""
        if self._state is _HandshakeState.SHAKING:
            self._fail(ConnectionResetError("the connection was closed in the handshake"))
        elif self._state is _HandshakeState.OPEN and self.above is not None:
            self._state = _HandshakeState.LEAVING
            self.above.eof_received()

    def pause_writing(self) -> None:
        """Pauses the protocol above: what it sends is not taken."""
        if self.above is not None:
            self.above.pause_writing()

    def resume_writing(self) -> None:
        """Resumes the protocol above: the other side reads again."""
        if self.above is not None:
            self.above.resume_writing()

    def refuse(self, answer: bytes) -> None:
        """Answers a client that does not speak TLS in plain text, and closes."""
        self._failure = ConnectionResetError("the client does not speak TLS")
        self._below.write(answer)
        self._below.close()

    # ---- the transport of the protocol above

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Sends; nothing after the end."""
        if self._state is not _HandshakeState.OPEN or not data:
            return
        if self._backlog:
            self._backlog += bytes(data)
            return
        try:
            sent = self._tls.write(data)
            while sent < len(data):
                sent += self._tls.write(memoryview(data)[sent:])
        except ssl.SSLWantReadError:  # new keys are agreed on
            self._backlog += bytes(data)
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Sends all of them."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Says the end, and waits a moment for the other side's."""
        if self._state is _HandshakeState.SHAKING:
            self.abort()
        elif self._state is _HandshakeState.OPEN:
            self._state = _HandshakeState.LEAVING
            self._timer = asyncio.get_running_loop().call_later(self._farewell_seconds, self.abort)
            if self._paused:
                self._paused = False
                self._below.resume_reading()
            self._leave()

    def abort(self) -> None:
        """Closes it at once."""
        self._stop_timer()
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be."""
        return (
            self._state in (_HandshakeState.LEAVING, _HandshakeState.CLOSED)
            or self._below is None
            or self._below.is_closing()
        )

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known about TLS or, below it, the socket."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._context
        if name == "peercert":
            if self._peer is None:
                self._peer = self._tls.getpeercert() or {}
            return self._peer
        if name == "cipher":
            return self._tls.cipher()
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another one gets what is received."""
        self.above = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The one above."""
        protocol: asyncio.BaseProtocol = self.above
        return protocol

    def is_reading(self) -> bool:
        """Whether received bytes are taken."""
        return not self._paused and not self.is_closing()

    def pause_reading(self) -> None:
        """Takes no more bytes."""
        if self._state is _HandshakeState.OPEN and not self._paused:
            self._paused = True
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Takes bytes again."""
        if self._paused:
            self._paused = False
            self._below.resume_reading()
            asyncio.get_running_loop().call_soon(self._advance)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Says when writing is paused."""
        self._below.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Bytes that are not sent yet."""
        return len(self._backlog) + int(self._below.get_write_buffer_size())

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """When writing is resumed and paused."""
        limits: tuple[int, int] = self._below.get_write_buffer_limits()
        return limits

    def can_write_eof(self) -> bool:
        """False: TLS ends in both directions."""
        return False

    # ---- in between

    def _advance(self) -> None:
        if self._state is _HandshakeState.OPEN:
            self._read()
        elif self._state is _HandshakeState.SHAKING:
            self._shake()
        elif self._state is _HandshakeState.LEAVING:
            self._leave()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()  # the alert
            self._fail(error)
            return
        self._stop_timer()
        self._state = _HandshakeState.OPEN
        self._flush()
        self.above = self._make()
        self.above.connection_made(self)
        self._settle(None)
        self._read()

    def _read(self) -> None:
        """Hand over what has come, in one piece."""
        incoming, tls = self._incoming, self._tls
        chunks: list[bytes] = []
        ended = False
        if self._paused:
            return
        try:
            while incoming.pending or tls.pending():
                chunk = tls.read(_RECORD)
                if not chunk:
                    ended = True
                    break
                chunks.append(chunk)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        backlog, self._backlog = self._backlog, b""
        if backlog:
            self.write(backlog)
        elif self._outgoing.pending:
            self._flush()
        if chunks and self.above is not None:
            self.above.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if ended and self.above is not None and self._state is _HandshakeState.OPEN:
            self.above.eof_received()
            self.close()

    def _leave(self) -> None:
        """Say the end, and close when the other side has said it, too."""
        try:
            while (self._incoming.pending or self._tls.pending()) and self._tls.read(_RECORD):
                pass  # what comes now is not read
        except ssl.SSLError:
            pass
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:
            pass  # the other side does not know how to end
        self._flush()
        self._stop_timer()
        self._below.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())

    def _late(self) -> None:
        self._fail(ConnectionAbortedError(f"no handshake within {self._handshake_seconds} seconds"))

    def _fail(self, error: Exception) -> None:
        """Close it; what was written, for example an alert, still goes."""
        self._failure = error
        self._stop_timer()
        if self._state is _HandshakeState.SHAKING:
            self._state = _HandshakeState.CLOSED
            self._settle(error)
            self._below.close()
        else:
            self._below.abort()

    def _settle(self, error: Exception | None) -> None:
        ready, self._ready = self._ready, None
        if ready is None or ready.done():
            return
        if error is None:
            ready.set_result(None)
        else:
            fail(ready, error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
