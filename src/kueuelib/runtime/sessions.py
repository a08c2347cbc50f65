"""The aiohttp sessions of one endpoint, and the sockets they are made of."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp

from kueuelib.runtime.endpoint import Endpoint

CALL_CONNECTIONS = 64
"""Connections for calls; watches have as many as they need."""


class AbortingResponse(aiohttp.ClientResponse):
    """An answer that drops its connection at once if it is closed before its end.

    aiohttp does not wait for the TLS goodbye of such a connection. That could take longer than the
    event loop lives, which leaks the socket.
    """

    def close(self) -> None:
        """Drop the connection if it is still open; one that may be used again is not touched."""
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()


class Sessions:
    """The connections of one endpoint; a retired pair is closed when its last user is done."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.calls = _session(endpoint, CALL_CONNECTIONS)
        self.watches = _session(endpoint, 0)
        self._users = 0
        self._retired = False

    def join(self) -> None:
        """Count one more request, until `leave`."""
        self._users += 1

    async def leave(self) -> None:
        """Count one request less."""
        self._users -= 1
        await self._close_if_idle()

    async def retire(self) -> None:
        """Close once the present requests have ended; no further ones will come."""
        self._retired = True
        await self._close_if_idle()

    async def _close_if_idle(self) -> None:
        if self._retired and self._users == 0:
            await self.close()

    async def close(self) -> None:
        """Close every connection now."""
        await self.calls.close()
        await self.watches.close()


def _session(endpoint: Endpoint, connections: int) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=connections,
        ssl=endpoint.tls or True,
        socket_factory=_socket,
        keepalive_timeout=30.0,
    )
    return aiohttp.ClientSession(
        connector=connector,
        response_class=AbortingResponse,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=2**18,
    )


def _socket(address: Any) -> socket.socket:
    """A socket that detects the loss of the other machine within a minute."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 60_000),
    ):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
