"""Hands requests on to kubelets and to servers in pods, and their answers back."""

from __future__ import annotations

import asyncio
import http.client
import io
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from email.message import Message
from http import HTTPStatus
from typing import Any, Final, cast

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from kueuelib.embedded.http.kubelets import Backend
from kueuelib.errors import BadRequest, ServerTimeout, Unavailable, api_error
from kueuelib.runtime.certificates import show_certificate
from kueuelib.runtime.server_limits import Connection, body_of
from kueuelib.runtime.upgrades import StreamPipe, break_off, join, upgrade

CONNECT_SECONDS: Final = 10.0
"""The time limit of a connection and its handshake."""
ANSWER_SECONDS: Final = 60.0
"""The time limit until an answer begins. The log of a container that prints nothing, with
`follow`, begins when it prints something.
"""
FAREWELL_SECONDS: Final = 2.0
_LIMIT: Final = 50_000
"""Bytes of an answer that is a failure, as in kube-apiserver."""
_KEPT_HERE: Final = frozenset(
    (
        *("authorization", "connection", "content-length", "expect", "host", "keep-alive"),
        *("proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"),
        "upgrade",
    )
)
"""Headers about one connection or this server; those that begin with `impersonate-` are, too."""
_NO_ANSWER: Final = (
    *(aiohttp.ClientError, OSError, EOFError, ValueError, http.client.HTTPException),
    asyncio.LimitOverrunError,
)
_AS_GIVEN: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that are not added if the client does not send them."""


async def relay(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Streams an answer back; if it breaks off, so does ours."""
    response = web.StreamResponse(status=answer.status, headers=headers)
    try:
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    except (aiohttp.ClientError, OSError):
        break_off(request)
    return response


class Backends:
    """Connections to other servers.

    Args:
        identity: a key and a certificate as PEM, which kubelets are shown.
    """

    def __init__(self, identity: bytes) -> None:
        self._identity = identity
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None
        self._upgraded: set[asyncio.StreamWriter] = set()

    async def close(self) -> None:
        """Ends all connections."""
        for writer in self._upgraded:
            writer.transport.abort()
        if self._session is not None:
            await self._session.close()

    async def log(
        self, request: web.BaseRequest, kubelet: Backend, target: str
    ) -> web.StreamResponse:
        """The log that a kubelet returns for a path with its query.

        Raises:
            ApiError: what the kubelet answers, or that it does not answer.
        """
        seconds = None if "follow=" in target else ANSWER_SECONDS
        async with await self._ask(kubelet, "GET", target, {}, None, seconds) as answer:
            if not HTTPStatus.OK <= answer.status <= HTTPStatus.PARTIAL_CONTENT:
                with _explained(kubelet, ANSWER_SECONDS):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        text = (await answer.content.read(_LIMIT)).decode(errors="replace")
                raise api_error(answer.status, None, text=text)
            cast("Connection", request.protocol).wait_for_reader()
            return await relay(request, answer, {"Content-Type": "text/plain"})

    async def forward(
        self, request: web.BaseRequest, backend: Backend, target: str, prefix: str
    ) -> web.StreamResponse:
        """The answer to the same request at another server, which may also change the protocol.

        Args:
            request: of the client.
            backend: the other server.
            target: path and query there.
            prefix: the path at which this server shows the other one, for redirects.

        Raises:
            ApiError: it does not answer.
        """
        if "Upgrade" in request.headers:
            return await self.connect(request, backend, target)
        body = await body_of(request) if request.can_read_body else None
        headers = _headers(request.headers)
        method = request.method
        async with await self._ask(
            backend, method, target, headers, body, ANSWER_SECONDS
        ) as answer:
            back = _headers(answer.headers)
            if answer.headers.get("Location", "").startswith("/"):
                back["Location"] = prefix + answer.headers["Location"]
            if "Content-Length" in answer.headers:
                back["Content-Length"] = answer.headers["Content-Length"]
            return await relay(request, answer, back)

    async def _ask(
        self,
        backend: Backend,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        seconds: float | None,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_AS_GIVEN,
                trust_env=False,
            )
        url = URL(f"{backend.scheme}://{backend.authority}{target}", encoded=True)
        with _explained(backend, seconds):
            async with asyncio.timeout(seconds):
                return await self._session.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    ssl=self._tls(backend),
                    timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS),
                    allow_redirects=False,
                )

    def _tls(self, backend: Backend) -> ssl.SSLContext:
        """Trusts each server: as with kubeadm, kubelets sign their certificates themselves."""
        context = self._contexts.get(backend.identified)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if backend.identified:
                show_certificate(context, self._identity)
            self._contexts[backend.identified] = context
        return context

    # ---- other protocols

    async def connect(
        self, request: web.BaseRequest, backend: Backend, target: str
    ) -> web.StreamResponse:
        """Hands over the bytes of a connection after a request to change the protocol.

        Raises:
            BadRequest: the client asks for no other protocol.
            ApiError: the other server does not answer.
        """
        if "Upgrade" not in request.headers:
            raise BadRequest("Upgrade request required")
        async with self._dialled(backend) as (reader, writer):
            with _explained(backend, ANSWER_SECONDS):
                async with asyncio.timeout(ANSWER_SECONDS):
                    writer.write(_head(request, backend, target))
                    status, headers = _parsed(await reader.readuntil(b"\r\n\r\n"))
                    body = (
                        b""
                        if status == HTTPStatus.SWITCHING_PROTOCOLS
                        else await _rest(reader, headers)
                    )
            back = _headers(headers)
            if status != HTTPStatus.SWITCHING_PROTOCOLS:
                return web.Response(status=status, headers=back, body=body)
            back.update(Connection="Upgrade", Upgrade=headers.get("Upgrade", ""))
            client = await upgrade(request, back)
            await join(client, StreamPipe(reader, writer))
            return client.response

    @asynccontextmanager
    async def _dialled(
        self, backend: Backend
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        options: dict[str, Any] = {}
        if backend.scheme == "https":
            options = {"ssl": self._tls(backend), "ssl_shutdown_timeout": FAREWELL_SECONDS}
        with _explained(backend, CONNECT_SECONDS):
            async with asyncio.timeout(CONNECT_SECONDS):
                try:
                    reader, writer = await asyncio.open_connection(
                        backend.host, backend.port, **options
                    )
                except OSError as error:
                    if isinstance(error, TimeoutError):
                        raise
                    raise Unavailable(f"error dialing backend: {backend}: {error}") from error
        self._upgraded.add(writer)
        try:
            yield reader, writer
        finally:
            self._upgraded.discard(writer)
            writer.close()


@contextmanager
def _explained(backend: Backend, seconds: float | None) -> Iterator[None]:
    """Says in the words of kube-apiserver which server does not answer, and why."""
    text = f"error dialing backend: {backend}: "
    try:
        yield
    except TimeoutError as error:
        raise ServerTimeout(f"{text}no answer within {seconds:g} s") from error
    except aiohttp.ClientConnectorError as error:
        raise Unavailable(text + str(error.os_error)) from error
    except _NO_ANSWER as error:
        raise api_error(502, None, text=f"{text}{str(error) or type(error).__name__}") from error


def _headers(given: Any) -> CIMultiDict[str]:
    """The headers that are not about one connection, or this server alone."""
    return CIMultiDict(
        (name, value)
        for name, value in given.items()
        if name.lower() not in _KEPT_HERE and not name.lower().startswith("impersonate-")
    )


def _head(request: web.BaseRequest, backend: Backend, target: str) -> bytes:
    """The same request to another server, to change the protocol."""
    headers = _headers(request.headers)
    headers.update(Host=backend.authority, Connection="Upgrade", Upgrade=request.headers["Upgrade"])
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode(errors="surrogateescape")


def _parsed(head: bytes) -> tuple[int, Message]:
    """The status and the headers of an answer.

    Raises:
        ValueError: it is not HTTP.
    """
    line, _, rest = head.partition(b"\r\n")
    version, _, status = line.decode(errors="replace").partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("it does not speak HTTP")
    return int(status[:3]), http.client.parse_headers(io.BytesIO(rest))


async def _rest(reader: asyncio.StreamReader, headers: Message) -> bytes:
    """The body of a failure; the rest of a long one is left out."""
    if headers.get("Transfer-Encoding", "").lower() != "chunked":
        if "Content-Length" not in headers:
            return await reader.read(_LIMIT)
        return await reader.readexactly(min(int(headers["Content-Length"]), _LIMIT))
    body = b""
    while len(body) < _LIMIT and (size := int((await reader.readline()).split(b";")[0], 16)):
        body += (await reader.readexactly(min(size, _LIMIT) + 2))[:-2]
    return body[:_LIMIT]
