"""One connection: two ends, and the exchanges between them with their fates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from kueuelib.testing.storm.end import LATENCY, End, Running
from kueuelib.testing.storm.exchange import (
    LAST_CHUNK,
    Call,
    Lines,
    body_of,
    chunk,
    head_length,
    is_chunked,
    message_length,
    response,
    status_of,
)
from kueuelib.testing.storm.faults import Fate
from kueuelib.testing.storm.owners import Owner

if TYPE_CHECKING:
    from kueuelib.testing.storm.wire import Wire

_GONE: Final = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},'
    b'"status":"Failure","message":"The resourceVersion for the provided watch is too old.",'
    b'"reason":"Expired","code":410}}\n'
)


@attrs.define(eq=False)
class _Exchange:
    """A call that waits for its answer."""

    call: Call
    fate: Fate
    answer: bytearray = attrs.field(factory=bytearray)
    lines: Lines | None = None
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
        self, wire: Wire, number: int, peer: str, client: Running, server: Running
    ) -> None:
        self.wire = wire
        self.number = number
        self.peer = peer
        address = (f"10.0.1.{1 + number % 250}", 40_000 + number % 20_000)
        self.client = End(self, client, {"peername": ("10.0.0.1", 6443), "sockname": address})
        self.server = End(self, server, {"peername": address, "sockname": ("10.0.0.1", 6443)})
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

    def other(self, end: End) -> End:
        """The end on the other side."""
        return self.server if end is self.client else self.client

    def forget(self) -> None:
        """Nothing uses it now."""
        if self.client.gone and self.server.gone:
            self.wire.links.pop(self.number, None)

    # ---- what ends say

    def sent(self, end: End, data: bytes) -> None:
        """One end sends bytes."""
        if end is self.client:
            self._request += data
            self._next()
        else:
            self._answered(data)

    def finished(self, end: End) -> None:
        """One end has closed."""
        if end is self.client:
            self._left(self.server.arrive_end)
            return
        if self._exchange is not None and self._exchange.answer:
            self._give(bytes(self._exchange.answer))
        if not self._mute:
            self.client.arrive_end()

    def aborted(self, end: End) -> None:
        """One end has reset the connection."""
        if end is self.client:
            self._left(self.server.arrive_error)
        else:
            self.client.arrive_error()

    def died(self, owner: Owner) -> None:
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
            exchange.lines = Lines()
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

    def _witness(self, call: Call, message: bytes, seconds: float) -> None:
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
