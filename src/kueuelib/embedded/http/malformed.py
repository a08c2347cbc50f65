"""Requests that are not HTTP, have an unknown method, or never arrive: ends of connections."""

from __future__ import annotations

import asyncio
import logging
import re
from asyncio.sslproto import SSLProtocol
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError

from kueuelib.embedded import failures
from kueuelib.embedded.http.answers import failure
from kueuelib.errors import BadRequest

SILENT_SECONDS = 32.0
"""A handshake, the first request and each body have so long, as in kube-apiserver."""
_LOG = logging.getLogger("kueuelib.embedded")
_REQUEST_LINE: Final = re.compile(r"'[A-Za-z-]+ /\S* HTTP/1\.[01]'")


class _Connection(web.RequestHandler):
    """One connection; what cannot be parsed ends it."""

    __slots__ = ("_silence",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._silence = self._loop.call_later(SILENT_SECONDS, self._look)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forgets the connection."""
        self._silence.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        if not self._request_count:
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """405 for an unknown method, 400 for what is not a request."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        _LOG.debug("a malformed request from %s", request.remote, exc_info=exc)
        if isinstance(exc, BadHttpMethod) and _REQUEST_LINE.search(exc.message):
            response = failure(failures.wrong_method())
        else:
            response = failure(BadRequest("the request is malformed"))
        response.force_close()
        return response


class _Tls(SSLProtocol):
    """TLS of one connection, with a buffer of two records; by default it keeps 256 KiB."""

    max_size = 32 * 1024


class Site(web.SockSite):
    """Where such connections come in; who does not finish the TLS handshake is cut off."""

    async def start(self) -> None:
        """Begins to listen."""
        await web.BaseSite.start(self)
        server, context = self._runner.server, self._ssl_context
        assert server is not None
        assert context is not None
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.SelectorEventLoop):  # other loops have a TLS of their own
            self._server = await loop.create_server(
                server,
                sock=self._sock,
                ssl=context,
                backlog=self._backlog,
                ssl_handshake_timeout=SILENT_SECONDS,
            )
            return

        def connection() -> _Tls:
            return _Tls(
                loop,
                server(),
                context,
                waiter=None,  # type: ignore[arg-type]  # typeshed wants one
                server_side=True,
                ssl_handshake_timeout=SILENT_SECONDS,  # type: ignore[arg-type]
            )

        self._server = await loop.create_server(connection, sock=self._sock, backlog=self._backlog)


async def body_of(request: web.BaseRequest) -> bytes:
    """The whole body.

    Raises:
        ApiError: it does not come in time.
    """
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            return await request.read()
    except TimeoutError as error:
        raise failures.unexplained("the body of the request does not come", 408) from error


class Server(web.Server):
    """A server of such connections."""

    def __call__(self) -> web.RequestHandler:
        """A handler for one more connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)
