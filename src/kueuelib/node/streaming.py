"""Processes and ports over upgraded connections: WebSockets, and SPDY inside of them or alone."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, cast

import anyio
import attrs
from aiohttp import WSMsgType, web
from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    create_memory_object_stream,
    create_task_group,
)
from anyio.abc import ByteReceiveStream, ByteStream, TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from kueuelib.errors import BadRequest, Forbidden, KueuelibError
from kueuelib.node.channels import CHANNELS, decode, encode, ended, size_of, status_message
from kueuelib.node.containers import ProcessStreams
from kueuelib.node.spdy import (
    PIECE,
    SpdyConnection,
    SpdyError,
    StreamData,
    StreamEvent,
    StreamOpened,
    StreamReset,
    WentAway,
)
from kueuelib.runtime.server_limits import Connection
from kueuelib.runtime.upgrades import Pipe, UpgradedRequest, upgrade

FORWARD_PROTOCOL: Final = "portforward.k8s.io"
TUNNEL_PROTOCOL: Final = f"SPDY/3.1+{FORWARD_PROTOCOL}"
OPENING_SECONDS: Final = 30.0
"""The time limit until a client has opened all streams, as in kubelets."""
IDLE_SECONDS: Final = 4 * 3600.0
"""Seconds after which a connection on which nothing passes ends, as in kubelets."""
LONGEST_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of the longest message of a WebSocket; some clients send all of their input in one."""
FAREWELL_SECONDS: Final = 2.0
MOST_STREAMS: Final = 1000
"""The maximum number of open streams of a connection."""
_WAITING: Final = 16
"""Pieces of one stream that may wait before others wait, too."""
Dial = Callable[[int], Awaitable[ByteStream]]


# ---- which protocol ------------------------------------------------------------------------------


def is_websocket(request: web.BaseRequest) -> bool:
    """Whether a client asks for a WebSocket, and not for SPDY.

    Raises:
        BadRequest: it asks for neither.
    """
    asked = request.headers.get("Upgrade", "").lower()
    if asked not in ("websocket", "spdy/3.1"):
        raise BadRequest("unable to upgrade: missing upgrade headers in request")
    return asked == "websocket"


def chosen(request: web.BaseRequest, header: str, known: tuple[str, ...]) -> str:
    """The first protocol of a client that is known here; empty if it names none.

    Raises:
        Forbidden: it names only others.
    """
    given = ",".join(request.headers.getall(header, ())).split(",")
    names = [name for each in given if (name := each.strip())]
    first = next((name for name in names if name in known), "")
    if names and not first:
        asked, offered = ", ".join(names), ", ".join(known)
        raise Forbidden(f"unable to upgrade: client supports {asked}, server accepts {offered}")
    return first


async def opened_socket(request: web.BaseRequest, protocol: str) -> web.WebSocketResponse:
    """Accepts a WebSocket."""
    protocols = [protocol] if protocol else []
    socket = web.WebSocketResponse(
        protocols=protocols,
        compress=False,
        max_msg_size=LONGEST_MESSAGE,
        timeout=FAREWELL_SECONDS,
    )
    await socket.prepare(request)
    cast("Connection", request.protocol).wait_for_reader()
    return socket


async def opened_pipe(request: web.BaseRequest, protocol: str) -> UpgradedRequest:
    """Accepts SPDY."""
    headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    if protocol:
        headers["X-Stream-Protocol-Version"] = protocol
    return await upgrade(request, headers)


class SocketPipe:
    """A pipe of bytes in the messages of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def receive(self) -> bytes:
        """What has come; empty at the end."""
        while (message := await self._socket.receive()).type is WSMsgType.BINARY:
            if message.data:
                return bytes(message.data)
        return b""

    async def send(self, data: bytes) -> None:
        """Sends, and waits while the client does not read."""
        await self._socket.send_bytes(data)


# ---- streams that a client opens -----------------------------------------------------------------


class SpdyStreams:
    """Streams of SPDY.

    Attributes:
        used: when something passed last, by the clock of the event loop.
    """

    def __init__(self, pipe: Pipe) -> None:
        self.used = anyio.current_time()
        self._pipe = pipe
        self._spdy = SpdyConnection()

    async def events(self) -> AsyncGenerator[StreamEvent]:
        """What the client does; ends when it is gone, or breaks the protocol."""
        while data := await self._pipe.receive():
            self.used = anyio.current_time()
            try:
                events = self._spdy.receive(data)
            except SpdyError:
                return
            if answers := bytes(self._spdy.answers):
                self._spdy.answers.clear()
                await self._pipe.send(answers)
            for event in events:
                if isinstance(event, WentAway):
                    return
                yield event

    async def accept(self, stream: int) -> None:
        """Accepts a stream that the client opens."""
        await self._pipe.send(self._spdy.reply(stream))

    async def refuse(self, stream: int) -> None:
        """Refuses a stream that the client opens."""
        await self._pipe.send(self._spdy.reset(stream))

    async def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Sends on a stream, and waits while the client does not read.

        Raises:
            OSError: the client is gone.
        """
        self.used = anyio.current_time()
        await self._pipe.send(self._spdy.data(stream, data, fin=fin))

    async def close(self) -> None:
        """Says that this side ends; the connection ends with its request."""
        await self._pipe.send(self._spdy.go_away())


class SocketStreams:
    """The channels of a WebSocket, as streams that its client opens at the beginning.

    Args:
        socket: accepted; it is closed when all streams have ended.
        protocol: one of `PROTOCOLS`, or empty.
        headers: of each channel, as they would be in SPDY.

    Attributes:
        used: when something passed last, by the clock of the event loop.
    """

    def __init__(
        self, socket: web.WebSocketResponse, protocol: str, headers: Sequence[Mapping[str, str]]
    ) -> None:
        self.used = anyio.current_time()
        self._socket, self._protocol, self._headers = socket, protocol, headers
        self._open = set(range(len(headers)))

    async def events(self) -> AsyncGenerator[StreamEvent]:
        """What the client does; ends when it is gone."""
        for stream, headers in enumerate(self._headers):
            if port := port_of(headers.get("port", "")):
                await self.send(stream, struct.pack("<H", port))
            yield StreamOpened(stream, headers, fin=False)
        while (message := await self._socket.receive()).type in (WSMsgType.BINARY, WSMsgType.TEXT):
            self.used = anyio.current_time()
            if piece := decode(self._protocol, message.data):
                yield StreamData(piece[0], piece[1] or b"", fin=piece[1] is None)

    async def accept(self, stream: int) -> None:
        """Does nothing: a channel is there."""

    async def refuse(self, stream: int) -> None:
        """Does nothing: what comes on it is not read."""

    async def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Sends on a channel, and waits while the client does not read."""
        self.used = anyio.current_time()
        if data or not fin:
            message = encode(self._protocol, stream, data)
            if isinstance(message, str):
                await self._socket.send_str(message)
            else:
                await self._socket.send_bytes(message)
        if fin:
            self._open.discard(stream)
            if not self._open:
                await self.close()

    async def close(self) -> None:
        """Closes the WebSocket."""
        await self._socket.close()


Streams = SpdyStreams | SocketStreams
"""The streams of a client, by numbers."""


async def _end_idle(streams: Streams, session: CancelScope) -> None:
    """Ends a session on whose connection nothing passes."""
    while True:
        left = streams.used + IDLE_SECONDS - anyio.current_time()
        if left <= 0:
            session.cancel()
            return
        await anyio.sleep(left)


# ---- a process -----------------------------------------------------------------------------------


@attrs.define(eq=False)
class ProcessSession:
    """A client and a process.

    Args:
        streams: of the client, which opens those that are wanted.
        wanted: their names.
        protocol: for its errors.
        process: that was started; who started it ends it.
        attached: whether its exit code is not the client's matter.
    """

    _streams: Streams
    _wanted: frozenset[str]
    _protocol: str
    _process: ProcessStreams
    _attached: bool
    _numbers: dict[str, int] = attrs.field(factory=dict, init=False)
    _complete: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    async def serve(self) -> None:
        """Connects both until one of them ends."""
        process = self._process
        async with create_task_group() as tasks:
            tasks.start_soon(self._receive, tasks.cancel_scope)
            tasks.start_soon(_end_idle, self._streams, tasks.cancel_scope)
            try:
                with anyio.fail_after(OPENING_SECONDS):
                    await self._complete.wait()
                first = next(name for name in CHANNELS[1:] if name in self._numbers)
                await self._send(first, b"")  # by which clients know that they are connected
                async with create_task_group() as outputs:
                    for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
                        if stream is not None:
                            outputs.start_soon(self._send_all, name, stream)
                status = ended(0 if self._attached else await process.wait())
                if text := status_message(self._protocol, status):
                    await self._send("error", text)
                for number in self._numbers.values():
                    await self._streams.send(number, b"", fin=True)
                await self._streams.close()
            except* OSError:
                pass  # the client is gone, or has not opened its streams in time
            tasks.cancel_scope.cancel()

    async def _send(self, name: str, data: bytes) -> None:
        if name in self._numbers:
            await self._streams.send(self._numbers[name], data)

    async def _send_all(self, name: str, stream: ByteReceiveStream) -> None:
        with suppress(EndOfStream, ClosedResourceError, BrokenResourceError):
            while True:
                await self._send(name, await stream.receive(PIECE))

    async def _receive(self, session: CancelScope) -> None:
        try:
            async with aclosing(self._streams.events()) as events:
                async for event in events:
                    if isinstance(event, StreamOpened):
                        await self._open(event)
                    elif isinstance(event, StreamData | StreamReset):
                        await self._take(event)
        except OSError:
            pass  # the client is gone
        finally:
            session.cancel()

    async def _open(self, event: StreamOpened) -> None:
        name = event.headers.get("streamtype", "")
        if name not in self._wanted or name in self._numbers:
            await self._streams.refuse(event.id)
            return
        self._numbers[name] = event.id
        await self._streams.accept(event.id)
        if len(self._numbers) == len(self._wanted):
            self._complete.set()

    async def _take(self, event: StreamData | StreamReset) -> None:
        data = event.data if isinstance(event, StreamData) else b""
        stdin = self._process.stdin
        if event.id == self._numbers.get("resize") and (size := size_of(data)):
            self._process.resize(*size)
        elif event.id == self._numbers.get("stdin") and stdin is not None:
            with suppress(BrokenResourceError, ClosedResourceError):  # it is not read to the end
                if data:
                    await stdin.send(data)
                if isinstance(event, StreamReset) or event.fin:
                    await stdin.aclose()


# ---- the ports of a pod --------------------------------------------------------------------------


@attrs.define(eq=False)
class PortForwards:
    """Ports of a pod: for each connection the client opens a stream of data and one of errors.

    Args:
        streams: of the client.
        dial: connects to a port.
    """

    _streams: Streams
    _dial: Dial
    _pairs: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    _inboxes: dict[int, MemoryObjectSendStream[bytes]] = attrs.field(factory=dict, init=False)
    _receivers: dict[int, MemoryObjectReceiveStream[bytes]] = attrs.field(factory=dict, init=False)
    _running: dict[int, CancelScope] = attrs.field(factory=dict, init=False)

    async def serve(self) -> None:
        """Forwards until the client is gone."""
        async with create_task_group() as tasks:
            tasks.start_soon(_end_idle, self._streams, tasks.cancel_scope)
            try:
                async with aclosing(self._streams.events()) as events:
                    async for event in events:
                        await self._take(event, tasks)
            except OSError:
                pass  # the client is gone
            tasks.cancel_scope.cancel()
        for stream in tuple(self._receivers):
            self._receivers.pop(stream).close()
        for stream in tuple(self._inboxes):
            self._close(stream)

    async def _take(self, event: StreamEvent, tasks: TaskGroup) -> None:
        if isinstance(event, StreamOpened):
            await self._open(event, tasks)
        elif isinstance(event, StreamReset):
            self._close(event.id)
            if event.id in self._running:
                self._running[event.id].cancel()
        elif isinstance(event, StreamData):
            if event.data and event.id in self._inboxes:
                with suppress(BrokenResourceError):
                    await self._inboxes[event.id].send(event.data)
            if event.fin:
                self._close(event.id)

    def _close(self, stream: int) -> None:
        if stream in self._inboxes:
            self._inboxes.pop(stream).close()

    async def _open(self, event: StreamOpened, tasks: TaskGroup) -> None:
        type_, port = event.headers.get("streamtype", ""), port_of(event.headers.get("port", ""))
        before = event.id if type_ == "error" else event.id - 2
        request = event.headers.get("requestid") or str(before)
        pair = self._pairs.get(request, {})
        full = not pair and len(self._pairs) >= MOST_STREAMS
        if type_ not in ("data", "error") or port is None or type_ in pair or full:
            await self._streams.refuse(event.id)
            return
        pair[type_] = event.id
        self._pairs[request] = pair
        if type_ == "data":
            streams = create_memory_object_stream[bytes](_WAITING)
            self._inboxes[event.id], self._receivers[event.id] = streams
            if event.fin:
                self._close(event.id)
        await self._streams.accept(event.id)
        if len(pair) == 2:
            tasks.start_soon(self._run, request, pair["data"], pair["error"], port)
        else:
            tasks.start_soon(self._end_half, request, pair)

    async def _end_half(self, request: str, pair: Mapping[str, int]) -> None:
        """Gives up a connection whose second stream does not come."""
        await anyio.sleep(OPENING_SECONDS)
        if len(pair) == 2:
            return
        del self._pairs[request]
        for stream in pair.values():
            self._close(stream)
            if stream in self._receivers:
                self._receivers.pop(stream).close()
            with suppress(OSError):
                text = b"" if "data" in pair else b"timed out waiting for streams"
                await self._streams.send(stream, text, fin=True)

    async def _run(self, request: str, data: int, error: int, port: int) -> None:
        with CancelScope() as self._running[data], suppress(OSError):
            await self._forward(data, error, port)
            for stream in (data, error):
                await self._streams.send(stream, b"", fin=True)
        del self._running[data], self._pairs[request]
        self._close(data)

    async def _forward(self, data: int, error: int, port: int) -> None:
        """Connects a client and a port until the port's side ends."""
        with self._receivers.pop(data) as incoming:
            try:
                stream = await self._dial(port)
            except (KueuelibError, OSError) as failed:
                text = f"error forwarding port {port}: {failed}"
                await self._streams.send(error, text.encode())
                return
            async with stream, create_task_group() as both:
                both.start_soon(_upload, incoming, stream)
                with suppress(EndOfStream, BrokenResourceError):
                    while True:
                        await self._streams.send(data, await stream.receive(PIECE))
                both.cancel_scope.cancel()


async def _upload(incoming: MemoryObjectReceiveStream[bytes], stream: ByteStream) -> None:
    with suppress(BrokenResourceError, ClosedResourceError):
        async for data in incoming:
            await stream.send(data)
        await stream.send_eof()


def port_of(text: str) -> int | None:
    """A port; None if it is none."""
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else None
