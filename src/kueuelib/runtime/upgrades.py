"""Connections of our web servers that leave HTTP: their bytes, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import anyio
from aiohttp import web

PIECE: Final = 64 * 1024
"""Bytes that are read at a time; twice as many may wait to be read."""


class Pipe(Protocol):
    """Bytes in both directions."""

    async def receive(self) -> bytes:
        """What has come; empty at the end."""
        ...

    async def send(self, data: bytes) -> None:
        """Sends, and waits while the other side does not read.

        Raises:
            OSError: the other side is gone.
        """
        ...


class StreamPipe:
    """A pipe over streams of asyncio.

    Args:
        reader: what comes.
        writer: what goes.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> bytes:
        """What has come; empty at the end, also at one that is not orderly."""
        try:
            return await self._reader.read(PIECE)
        except OSError:
            return b""

    async def send(self, data: bytes) -> None:
        """Sends, and waits while the other side does not read."""
        self._writer.write(data)
        await self._writer.drain()


class _Feed:
    """Takes the place of aiohttp's parser of WebSockets."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        self._reader.feed_eof()


class UpgradedRequest:
    """A request whose connection has left HTTP; it ends when its handler returns `response`.

    Attributes:
        response: the answer, with the status 101.
    """

    def __init__(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        self.response = response
        self._protocol = cast("Any", request.protocol)
        self._transport = cast("Any", request.transport)
        self._reader = asyncio.StreamReader(PIECE)
        self._reader.set_transport(self._transport)
        self._protocol.set_parser(_Feed(self._reader))
        self._protocol.keep_alive(False)
        self._protocol.wait_for_reader()

    async def receive(self) -> bytes:
        """What has come; empty at the end."""
        return await self._reader.read(PIECE)

    async def send(self, data: bytes) -> None:
        """Sends, and waits while the client does not read."""
        if self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)
        await self._protocol.drained()


async def upgrade(request: web.BaseRequest, headers: Mapping[str, str]) -> UpgradedRequest:
    """Answers 101, and takes the connection of a request.

    Args:
        request: to one of our servers.
        headers: of the answer, with `Connection` and `Upgrade`.

    Raises:
        ConnectionResetError: the client is gone.
    """
    if request.transport is None:
        raise ConnectionResetError("the connection is closed")
    response = web.StreamResponse(status=101, headers=headers)
    response.force_close()
    pipe = UpgradedRequest(request, response)
    await response.prepare(request)
    return pipe


def break_off(request: web.BaseRequest) -> None:
    """Closes the connection of an answer that cannot be completed, so that the client notices."""
    if request.transport is not None:
        request.transport.abort()


async def join(one: Pipe, other: Pipe) -> None:
    """Hands over what comes from each to the other, until one of them ends."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_hand_over, one, other, tasks.cancel_scope)
        tasks.start_soon(_hand_over, other, one, tasks.cancel_scope)


async def _hand_over(source: Pipe, target: Pipe, both: anyio.CancelScope) -> None:
    try:
        while data := await source.receive():
            await target.send(data)
    except OSError:
        pass  # the target is gone
    finally:
        both.cancel()
