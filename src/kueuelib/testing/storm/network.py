"""The network of a simulated world: in-memory connections, owned by an adversary.

Every connection has two ends and carries HTTP exchanges, one after the other. A request is held
until it is complete; then the adversary decides its fate and that of its answer. Watches are split
into events.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

import attrs

from kueuelib.testing.storm.exchange import (
    LAST_CHUNK,
    ChunkLines,
    ObservedRequest,
    RequestRecognizer,
    Witness,
    body_of,
    chunk,
    head_length,
    is_chunked,
    message_length,
    response,
    status_of,
)
from kueuelib.testing.storm.faults import FINE, FLOWING, Adversary, EventFate, Fate
from kueuelib.testing.storm.loop import (
    OWNER,
    ListenAddress,
    SimulatedProcess,
    StormLoop,
    context_of,
)

SERVER_HOST: Final = "10.0.0.1"
"""The address of the API server."""
WEBHOOK_HOST: Final = "10.0.0.2"
"""The address of the webhooks' Service: any other listening process."""
SERVER: Final = "server"
LATENCY: Final = 0.0005
"""Seconds that bytes travel in each direction."""
_HIGH: Final = 64 * 1024
Running = tuple[SimulatedProcess, contextvars.Context]
"""The process of an end, and the context in which its protocol is called."""


class ConnectionEnd(asyncio.Transport):
    """One end of a connection, as a transport for the protocol there.

    Args:
        link: the connection.
        running: its process, and the context in which its protocol is called.
        names: the values of `get_extra_info`.
    """

    def __init__(self, link: Link, running: Running, names: dict[str, Any]) -> None:
        super().__init__(names)
        self.owner, self.context = running
        self.gone = False
        self.link = link
        self._protocol: Any = None
        self._closing = False
        self._arriving: deque[Callable[[], None]] = deque()
        self._last = 0.0
        self._reading = True
        self._waiting: deque[Callable[[], None]] = deque()
        self._unread = 0
        self._high = _HIGH
        self._stopped = False

    # ---- what protocols call

    def write(self, data: Any) -> None:
        """Send bytes."""
        if not self._closing and data:
            self.link.sent(self, bytes(data))

    def close(self) -> None:
        """Close in an orderly way."""
        if not self._closing:
            self._closing = True
            self.link.finished(self)
            self._lose(None)

    def abort(self) -> None:
        """Reset the connection."""
        if not self._closing:
            self._closing = True
            self.link.aborted(self)
            self._lose(None)

    def vanish(self) -> None:
        """End because the process died: no callbacks follow."""
        self.gone = self._closing = True
        self.link.wire.loop.bury(self)

    def is_closing(self) -> bool:
        """Whether it is closing or closed."""
        return self._closing

    def pause_reading(self) -> None:
        """Hold arriving bytes back."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver held and further bytes."""
        self._reading = True
        self.link.wire.loop.call_soon(self._catch_up, context=self.context)

    def is_reading(self) -> bool:
        """Whether it delivers arriving bytes."""
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Bytes that the other end may leave unread before this one must wait."""
        del low
        self._high = _HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not read."""
        return self.link.other(self)._unread  # noqa: SLF001 - of the same class

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Choose the receiver of callbacks."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The receiver of callbacks."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # ---- what comes

    @property
    def late(self) -> bool:
        """Whether anything is on its way to this end."""
        return bool(self._arriving)

    def arrive(self, what: Callable[[], None], seconds: float = 0.0) -> None:
        """Schedule an arrival here, after all earlier ones."""
        loop = self.link.wire.loop
        due = max(self._last, loop.now + LATENCY + seconds)
        self._last = due
        self._arriving.append(what)
        loop.after(due - loop.now, self._take, context=self.context)

    def arrive_data(self, data: bytes, seconds: float = 0.0) -> None:
        """Schedule the arrival of bytes."""
        self.arrive(lambda: self._data(data), seconds)

    def arrive_end(self, seconds: float = 0.0) -> None:
        """Schedule the arrival of the other end's close."""
        self.arrive(self._end, seconds)

    def arrive_error(self, seconds: float = 0.0) -> None:
        """Schedule the arrival of a reset."""
        self.arrive(self._reset, seconds)

    def open(self, factory: Callable[[], Any]) -> None:
        """Announce the connection to the protocol."""

        def opened() -> None:
            self._protocol = factory()
            self._protocol.connection_made(self)

        self.arrive(opened)

    def _take(self) -> None:
        what = self._arriving.popleft()
        if self._reading and not self._waiting:
            what()
        else:
            self._waiting.append(what)

    def _catch_up(self) -> None:
        while self._reading and self._waiting:
            self._waiting.popleft()()
        if not self._waiting:
            self._unread = 0
            self.link.other(self).carry_on()

    def _data(self, data: bytes) -> None:
        if self._closing:
            return
        self._protocol.data_received(data)

    def _end(self) -> None:
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def _reset(self) -> None:
        if not self._closing:
            self._closing = True
            self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _lose(self, error: Exception | None) -> None:
        self.gone = True
        if self._protocol is not None:
            loop = self.link.wire.loop
            loop.call_soon(self._protocol.connection_lost, error, context=self.context)
        self.link.forget()

    # ---- back pressure

    def crowd(self, size: int) -> None:
        """Count bytes that arrive while reading is paused; the sender may have to wait."""
        if not self._reading:
            self._unread += size
            self.link.other(self).hold_on(self._unread)

    def hold_on(self, unread: int) -> None:
        """Pause writing of the protocol here, if the other end has too many unread bytes."""
        if unread > self._high and not self._stopped and not self._closing:
            self._stopped = True
            self.link.wire.loop.call_soon(self._protocol.pause_writing, context=self.context)

    def carry_on(self) -> None:
        """Resume writing of the protocol here."""
        if self._stopped and not self._closing:
            self._stopped = False
            self.link.wire.loop.call_soon(self._protocol.resume_writing, context=self.context)


# --------------------------------------------------------------------------------------------------

_GONE: Final = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},'
    b'"status":"Failure","message":"The resourceVersion for the provided watch is too old.",'
    b'"reason":"Expired","code":410}}\n'
)


@attrs.define(eq=False)
class _Exchange:
    """A call that waits for its answer."""

    call: ObservedRequest
    fate: Fate
    answer: bytearray = attrs.field(factory=bytearray)
    lines: ChunkLines | None = None
    events: int = 0


class Link:
    """A connection between a client and a server.

    Args:
        wire: of the connection.
        number: of the connection.
        peer: the name of the server in calls.
        client: the connecting process.
        server: the listening process.
    """

    def __init__(
        self, wire: Network, number: int, peer: str, client: Running, server: Running
    ) -> None:
        self.wire = wire
        self.number = number
        self.peer = peer
        address = (f"10.0.1.{1 + number % 250}", 40_000 + number % 20_000)
        self.client = ConnectionEnd(
            self, client, {"peername": ("10.0.0.1", 6443), "sockname": address}
        )
        self.server = ConnectionEnd(
            self, server, {"peername": address, "sockname": ("10.0.0.1", 6443)}
        )
        self._request = bytearray()
        self._exchange: _Exchange | None = None
        self._mute = False
        self._farewell: Callable[[], None] | None = None

    def open(self, protocol: Any, factory: Callable[[], Any]) -> None:
        """Connect both ends."""
        self.client.set_protocol(protocol)
        protocol.connection_made(self.client)
        self.server.open(factory)

    @property
    def behind(self) -> bool:
        """Whether the client has not received everything that was sent, or never will without
        noticing.
        """
        return not self.client.gone and (self._mute or self.client.late or self.server.late)

    def other(self, end: ConnectionEnd) -> ConnectionEnd:
        """The end on the other side."""
        return self.server if end is self.client else self.client

    def forget(self) -> None:
        """Nothing uses it now."""
        if self.client.gone and self.server.gone:
            self.wire.links.pop(self.number, None)

    # ---- what ends say

    def sent(self, end: ConnectionEnd, data: bytes) -> None:
        """One end sends bytes."""
        if end is self.client:
            self._request += data
            self._next()
        else:
            self._answered(data)

    def finished(self, end: ConnectionEnd) -> None:
        """One end has closed."""
        if end is self.client:
            self._left(self.server.arrive_end)
            return
        if self._exchange is not None and self._exchange.answer:
            self._give(bytes(self._exchange.answer))
        if not self._mute:
            self.client.arrive_end()

    def aborted(self, end: ConnectionEnd) -> None:
        """One end has reset the connection."""
        if end is self.client:
            self._left(self.server.arrive_error)
        else:
            self.client.arrive_error()

    def died(self, owner: SimulatedProcess) -> None:
        """The process of one end has died."""
        for end in (self.client, self.server):
            if end.owner is owner and not end.gone:
                end.vanish()
                self.aborted(end)
        self.forget()

    def _left(self, told: Callable[[], None]) -> None:
        """Handle the loss of the client, which the server notices after it has handled the request.

        So a write may happen long after its sender has given up or died.
        """
        if self._exchange is None or self._exchange.call.verb == "watch":
            told()
        else:
            self._farewell = told

    def reset(self, seconds: float = 0.0) -> None:
        """The connection breaks."""
        self._mute = True
        self.client.arrive_error(seconds)
        self.server.arrive_error(seconds)

    # ---- requests

    def _next(self) -> None:
        """Send the next request if it is complete and nothing else is under way."""
        while self._exchange is None and self._request:
            length = message_length(self._request)
            if not length:
                return
            raw = bytes(self._request[:length])
            del self._request[:length]
            self._begin(raw)

    def _begin(self, raw: bytes) -> None:
        call = self.wire.calls.recognise(self.client.owner.name, self.peer, raw)
        if self.wire.witness is not None:
            self.wire.witness.sent(call, self.wire.loop.now)
        fate = self.wire.fate(call)
        if self.wire.tell is not None:
            marks = f" [{' '.join(fate.faults)}]" if fate.faults else ""
            self.wire.note(f"{call.owner} -> {call.peer}: {call.title} #{call.ordinal}{marks}")
        if fate.refuse is not None:
            answer = fate.refuse
            message = response(answer.status, answer.headers, answer.body)
            self._witness(call, message, fate.delay + LATENCY)
            self._give(message, fate.delay + LATENCY)
            return
        if fate.stale_list is not None:
            body = self.wire.stale(call, fate.stale_list)
            if body is not None:
                headers = (("Content-Type", "application/json"),)
                message = response(200, headers, body)
                self._witness(call, message, fate.delay + LATENCY)
                self._give(message, fate.delay + LATENCY)
                return
        self._exchange = _Exchange(call, fate)
        self.server.arrive_data(raw, fate.delay)

    # ---- answers

    def _give(self, data: bytes, seconds: float = 0.0) -> None:
        if not self._mute:
            self.client.crowd(len(data))
            self.client.arrive_data(data, seconds)

    def _answered(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self._give(data)
            return
        if exchange.lines is not None:
            self._stream(exchange, data)
            return
        exchange.answer += data
        start = head_length(exchange.answer)
        if not start:
            return
        call, fate = exchange.call, exchange.fate
        if call.verb == "watch" and is_chunked(bytes(exchange.answer[:start])):
            rest = bytes(exchange.answer[start:])
            exchange.lines = ChunkLines()
            self._pass(bytes(exchange.answer[:start]), fate)
            self._tell(exchange, "open")
            self._stream(exchange, rest)
            return
        if message_length(exchange.answer, bodiless=call.method == "HEAD"):
            self._exchange = None
            self._tell(exchange, f"{status_of(exchange.answer)} {len(exchange.answer)} bytes")
            if self._farewell is not None:
                self._farewell()
                return
            answer, other = bytes(exchange.answer), fate.instead
            if other is not None:
                answer = response(other.status, other.headers, other.body)
            if not (fate.silent or fate.lose_answer or fate.cut_answer is not None):
                self._witness(call, answer, fate.answer_delay)
            self._pass(answer, fate)
            self._next()

    def _witness(self, call: ObservedRequest, message: bytes, seconds: float) -> None:
        """Show an answer to the witness just before it arrives.

        Later would be too late, because the client may send its next call at the same instant.
        """
        witness, loop = self.wire.witness, self.wire.loop
        if witness is None or self._mute:
            return

        def arrived() -> None:
            if not self.client.is_closing():
                witness.answered(call, status_of(message), body_of(message), loop.now)

        self.client.arrive(arrived, seconds)

    def _tell(self, exchange: _Exchange, what: str) -> None:
        if self.wire.tell is not None:
            call = exchange.call
            self.wire.note(f"{call.owner} <- {call.peer}: {call.title} #{call.ordinal}: {what}")

    def _pass(self, data: bytes, fate: Fate) -> None:
        """Deliver an answer, as far as its fate permits."""
        if fate.silent:
            self._mute = True
        elif fate.lose_answer:
            self.reset(fate.answer_delay)
        elif fate.cut_answer is not None:
            self._give(data[: int(len(data) * fate.cut_answer)], fate.answer_delay)
            self.reset(fate.answer_delay)
        else:
            self._give(data, fate.answer_delay)

    # ---- watches

    def _stream(self, exchange: _Exchange, data: bytes) -> None:
        assert exchange.lines is not None
        for line in exchange.lines.lines(data):
            if not self._event(exchange, line):
                return
        if exchange.lines.ended:
            self._give(LAST_CHUNK)
            self._tell(exchange, "end")
            self._exchange = None
            self._next()

    def _event(self, exchange: _Exchange, line: bytes) -> bool:
        """Deliver an event; False if it was the last one."""
        if self._mute:
            return False
        number = exchange.events
        exchange.events += 1
        fate = self.wire.event_fate(exchange.call, number, line)
        if self.wire.tell is not None and fate.faults:
            self._tell(exchange, f"event {number} [{' '.join(fate.faults)}]")
        if fate.silence:
            self._mute = True
            return False
        if fate.drop:
            return True
        if fate.gone or fate.close:
            self._give((chunk(_GONE) if fate.gone else b"") + LAST_CHUNK, fate.delay)
            self._mute = True
            self.client.arrive_end(fate.delay)
            self.server.arrive_error()
            return False
        if fate.cut:
            framed = chunk(line)
            self._give(framed[: len(framed) // 2], fate.delay)
            self.reset(fate.delay)
            return False
        self._give(chunk(line), fate.delay)
        return True


@attrs.define(eq=False)
class PortListener(asyncio.AbstractServer):
    """A listener on a port of a process."""

    owner: SimulatedProcess
    port: int
    factory: Callable[[], Any]
    wire: Network
    open: bool = True

    @property
    def sockets(self) -> list[ListenAddress]:
        """One stand-in with its address."""
        return [
            ListenAddress(SERVER_HOST if self.owner.name == SERVER else WEBHOOK_HOST, self.port)
        ]

    def close(self) -> None:
        """Accept no more connections."""
        self.open = False
        self.wire.listeners = [each for each in self.wire.listeners if each is not self]

    async def wait_closed(self) -> None:
        """Returns at once: it is closed immediately."""

    async def start_serving(self) -> None:
        """Does nothing: it accepts connections from the beginning."""

    async def serve_forever(self) -> None:
        """Wait until cancelled; connections are accepted anyway."""
        await self.wire.loop.create_future()

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return self.open

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the world."""
        return self.wire.loop


class Network:
    """All connections of a world.

    Args:
        loop: of the world.

    Attributes:
        adversary: decides the fates; None: no faults.
        clean: names of processes without faults.
        down: whether the server refuses connections.
        links: the open connections, oldest first.
        stale: returns the body of an answer from some seconds ago, or None if it is not available.
        tell: receives a line about every call, answer and event.
        witness: receives every call, and every answer that arrives.
    """

    def __init__(self, loop: StormLoop) -> None:
        self.loop = loop
        self.adversary: Adversary | None = None
        self.clean: set[str] = set()
        self.down = False
        self.links: dict[int, Link] = {}
        self.listeners: list[PortListener] = []
        self.calls = RequestRecognizer()
        self.stale: Callable[[ObservedRequest, float], bytes | None] = lambda _call, _seconds: None
        self.tell: Callable[[str], None] | None = None
        self.witness: Witness | None = None
        self.requests = 0
        self._reached: dict[int, tuple[PortListener, str]] = {}
        self._attempts: Counter[tuple[str, str]] = Counter()
        loop.wire = self

    @property
    def behind(self) -> bool:
        """Whether anything is on its way, or a silent connection has not been noticed yet."""
        return any(link.behind for link in self.links.values())

    # ---- what the loop asks for

    def listen(self, factory: Callable[[], Any], port: int) -> PortListener:
        """Accept connections for the running process.

        Raises:
            OSError: it already listens on that port.
        """
        owner = OWNER.get()
        if any(each.owner is owner and each.port == port for each in self.listeners):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = PortListener(owner, port, factory, self)
        self.listeners.append(listener)
        return listener

    async def reach(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Find the listener of an address.

        Raises:
            ConnectionRefusedError: there is none, or the adversary refuses.
        """
        host, port = address[0], address[1]
        owner = OWNER.get()
        peer = SERVER if host == SERVER_HOST else "webhook"
        ordinal = self._attempts[owner.name, peer]
        self._attempts[owner.name, peer] += 1
        listener = self._listener(host, port, ordinal)
        if peer != SERVER and listener is not None:
            peer = f"{peer}@{listener.owner.name}"
        fate = FINE
        if self.adversary is not None and owner.name not in self.clean:
            fate = self.adversary.connect(owner.name, peer, ordinal, self.loop.now)
        arrived = self.loop.create_future()
        if not fate.silent:
            context = contextvars.copy_context()
            self.loop.after(2 * LATENCY + fate.delay, _arrive, arrived, context=context)
        await arrived
        if fate.refuse is not None or listener is None or not self._accepts(listener):
            self.note(f"{owner.name} -> {peer}: connection refused")
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._reached[sock.fileno()] = (listener, peer)

    def connect(self, factory: Callable[[], Any], sock: socket.socket) -> tuple[ConnectionEnd, Any]:
        """Open the connection that a socket has reached.

        Raises:
            ConnectionResetError: the listener is gone.
        """
        listener, peer = self._reached.pop(sock.fileno())
        sock.close()
        if not self._accepts(listener):
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        owner = OWNER.get()
        number = self.loop.new_number()
        client_context = contextvars.copy_context()
        server_context = context_of(listener.owner, owner.name)
        link = Link(self, number, peer, (owner, client_context), (listener.owner, server_context))
        self.links[number] = link
        protocol = factory()
        link.open(protocol, listener.factory)
        return link.client, protocol

    def _listener(self, host: str, port: int, ordinal: int) -> PortListener | None:
        wanted = host == SERVER_HOST
        listeners = [
            each
            for each in self.listeners
            if each.port == port and (each.owner.name == SERVER) is wanted and each.owner.alive
        ]
        return listeners[ordinal % len(listeners)] if listeners else None

    def _accepts(self, listener: PortListener) -> bool:
        if self.down and listener.owner.name == SERVER:
            return False
        return listener.open and listener.owner.alive

    # ---- what links ask

    def fate(self, call: ObservedRequest) -> Fate:
        """The fate of a call."""
        self.requests += 1
        if self.adversary is None or call.owner in self.clean:
            return FINE
        return self.adversary.call(call, self.loop.now)

    def event_fate(self, watch: ObservedRequest, number: int, event: bytes) -> EventFate:
        """The fate of an event."""
        if self.adversary is None or watch.owner in self.clean:
            return FLOWING
        return self.adversary.event(watch, number, event, self.loop.now)

    def note(self, line: str) -> None:
        """Report the event to the listener."""
        if self.tell is not None:
            self.tell(line)

    # ---- disasters

    def drop(self, owner: SimulatedProcess) -> None:
        """A process has died: its peers get a reset."""
        self.listeners = [each for each in self.listeners if each.owner is not owner]
        for link in list(self.links.values()):
            link.died(owner)

    def reset(self, owner: SimulatedProcess) -> None:
        """Break all connections of a process, which continues."""
        for link in list(self.links.values()):
            if owner in (link.client.owner, link.server.owner):
                link.reset()


def _arrive(arrived: asyncio.Future[Any]) -> None:
    if not arrived.done():
        arrived.set_result(None)
