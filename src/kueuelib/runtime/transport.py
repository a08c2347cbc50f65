"""HTTP to the API server: two aiohttp sessions, credentials, deadlines (spec/framework 9.3).

One session carries calls, the other watches, so that watches can never use up the connections
that calls need. Neither reads proxies or passwords from the environment per request.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Protocol, Self

import aiohttp
import anyio
import attrs
from yarl import URL

from kueuelib.errors import ConfigError, NotConnected, TransportError
from kueuelib.runtime.bodies import (
    Params,
    Response,
    failure,
    headers_of,
    in_words,
    payload,
    url_of,
)
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.endpoint import Endpoint, EndpointSource, FixedSource
from kueuelib.runtime.lines import MAX_LINE
from kueuelib.runtime.sessions import Sessions
from kueuelib.runtime.watch import WatchStream

CONNECT_TIMEOUT = 10.0
"""Seconds for name resolution, TCP and TLS."""
REQUEST_TIMEOUT = 60.0
"""Seconds from sending a call to the last byte of its answer, unless a program asks for less."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
FORCED_REFRESH_PAUSE = 10.0
"""Seconds between two credential refreshes that a 401 asked for."""


class Observer(Protocol):
    """Receives every call, for example `telemetry.RestMetrics`."""

    def answered(
        self, verb: str, method: str, code: str, host: str, seconds: float, sent: int, received: int
    ) -> None:
        """One call ended; `code` is `<error>` when there was no answer."""
        ...

    def retried(self, verb: str, code: str, host: str) -> None:
        """One call is about to be sent again."""
        ...

    def throttled(self, verb: str, host: str, seconds: float) -> None:
        """One call waited for its turn."""
        ...


class Transport:
    """Requests and watches to one API server.

    The connections belong to the event loop that makes the first request.

    Args:
        source: loads the endpoint, again whenever credentials went stale.
        clock: decides when they are stale.
        observer: receives every call.
        user_agent: the `User-Agent` header.
        max_line: bytes of the longest watch event that is accepted.
        request_timeout: seconds from sending a call to the last byte of its answer, unless the call
            says otherwise.

    Attributes:
        answered_at: when the server last answered with anything but a failure of its own, in
            monotonic seconds of the clock; None before the first such answer.
    """

    def __init__(
        self,
        source: EndpointSource | Endpoint,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer | None = None,
        user_agent: str = "kueuelib",
        max_line: int = MAX_LINE,
        request_timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        self._source = FixedSource(source) if isinstance(source, Endpoint) else source
        self._clock = clock
        self.observer = observer
        self.answered_at: float | None = None
        self._user_agent = user_agent
        self._max_line = max_line
        self._request_timeout = request_timeout
        self._endpoint: Endpoint | None = None
        self._sessions: Sessions | None = None
        self._lock = asyncio.Lock()
        self._forced_at = float("-inf")
        self._closed = False

    async def endpoint(self) -> Endpoint:
        """The endpoint with credentials that are good now.

        Raises:
            ConfigError: it cannot be loaded, and never could.
        """
        endpoint, _ = await self._ready()
        return endpoint

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline for the whole call
        verb: str = "",
    ) -> Response:
        """One call. It is sent once more only when the credentials turned out to be stale.

        Args:
            method: the HTTP method.
            path: the path from the server's root, unquoted.
            params: query parameters.
            body: the encoded body.
            content_type: its type.
            accept: types that the answer may have.
            timeout: seconds until the last byte of the answer; those of the transport when None.
            verb: the Kubernetes verb, for metrics.

        Raises:
            ApiError: the server answered with a failure.
            NotConnected: no connection was made.
            TransportError: there was no complete answer.
            ConfigError: there are no credentials.
        """
        started = time.monotonic()
        code, received, host = "<error>", 0, ""
        try:
            async with asyncio.timeout(self._request_timeout if timeout is None else timeout):
                lease = await self._send(method, path, params, body, content_type, accept)
                response = lease.response
                host = response.url.raw_authority
                try:
                    data = await _read(response)
                finally:
                    await lease.release()
            code, received = str(response.status), len(data)
        except TimeoutError as error:
            raise self._late(path, error) from error
        finally:
            if self.observer is not None:
                seconds = time.monotonic() - started
                self.observer.answered(
                    verb or method, method, code, host, seconds, len(body or b""), received
                )
        if response.status < 500:
            self.answered_at = self._clock.monotonic()
        if response.status >= 300:
            raise failure(response.status, response.headers.get("Retry-After"), data)
        return Response(response.status, headers_of(response), data)

    async def watch(
        self,
        path: str,
        *,
        params: Params = (),
        timeout: float,  # noqa: ASYNC109 - the server's
        what: str = "",
        accept: str = "application/json",
    ) -> WatchStream:
        """Open a watch.

        Args:
            path: the path of the collection.
            params: query parameters without `watch` and `timeoutSeconds`.
            timeout: seconds after which the server shall end the stream.
            what: the kind, for messages.
            accept: types that the answer may have.

        Raises:
            ApiError: the server refused.
            NotConnected: no connection was made.
            TransportError: there was no answer in time.
        """
        query = [*params, ("watch", "true"), ("timeoutSeconds", str(max(int(timeout), 1)))]
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                lease = await self._send("GET", path, query, None, "", accept, watch=True)
        except TimeoutError as error:
            raise self._late(path, error) from error
        response = lease.response
        try:
            await _check_watch(response)
        except BaseException:
            await lease.release()
            raise
        self.answered_at = self._clock.monotonic()
        return WatchStream(
            response,
            server_timeout=timeout,
            what=what or path,
            max_line=self._max_line,
            release=lease.release,
        )

    async def close(self) -> None:
        """Close every connection, also in a cancelled scope; calling again does nothing."""
        self._closed = True
        sessions, self._sessions = self._sessions, None
        if sessions is not None:
            with anyio.CancelScope(shield=True):  # it is quick and waits for nothing
                await sessions.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _late(self, path: str, error: TimeoutError) -> TransportError:
        """The error for a call whose deadline is over.

        aiohttp has deadlines of its own, but loses a cancellation that comes at the same moment.
        """
        server = self._endpoint.url if self._endpoint else ""
        return TransportError(server + path, in_words(error))

    async def _send(
        self,
        method: str,
        path: str,
        params: Params,
        body: bytes | None,
        content_type: str,
        accept: str,
        *,
        watch: bool = False,
    ) -> _Lease:
        """Send; repeat once with other credentials if the first ones were refused."""
        may_renew = True
        while True:
            endpoint, sessions = await self._ready()
            url = url_of(endpoint.url, path, params)
            session = sessions.watches if watch else sessions.calls
            sessions.join()
            try:
                response = await self._open(
                    session, endpoint, method, url, body, content_type, accept
                )
            except BaseException:
                await sessions.leave()
                raise
            lease = _Lease(response, sessions)
            if response.status != 401 or not may_renew:
                return lease
            may_renew = False
            try:
                renewed = await self._renew(endpoint)
            except BaseException:
                await lease.release()
                raise
            if not renewed:
                return lease
            await lease.release()

    async def _open(
        self,
        session: aiohttp.ClientSession,
        endpoint: Endpoint,
        method: str,
        url: URL,
        body: bytes | None,
        content_type: str,
        accept: str,
    ) -> aiohttp.ClientResponse:
        headers = [("Accept", accept), ("User-Agent", self._user_agent), *endpoint.headers]
        if endpoint.authorization:
            headers.append(("Authorization", endpoint.authorization))
        if body is not None:
            headers.append(("Content-Type", content_type))
        try:
            return await session.request(
                method,
                url,
                data=payload(body),
                headers=headers,
                proxy=endpoint.proxy,
                server_hostname=endpoint.server_hostname,
                allow_redirects=False,
                timeout=_TIMEOUT,
            )
        except aiohttp.ClientSSLError as error:
            raise TransportError(str(url.origin()), in_words(error)) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotConnected(str(url.origin()), in_words(error)) from error
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError, OSError) as error:
            raise TransportError(str(url), in_words(error)) from error

    async def _ready(self) -> tuple[Endpoint, Sessions]:
        """The endpoint and its sessions; loads at most once at a time."""
        if self._closed:
            raise TransportError(self._endpoint.url if self._endpoint else "", "is closed")
        endpoint, sessions = self._endpoint, self._sessions
        if endpoint is not None and sessions is not None and not self._is_stale(endpoint):
            return endpoint, sessions
        async with self._lock:
            if self._endpoint is None or self._is_stale(self._endpoint):
                await self._load(force=False)
            if self._sessions is None:
                assert self._endpoint is not None
                self._sessions = Sessions(self._endpoint)
            assert self._endpoint is not None
            return self._endpoint, self._sessions

    def _is_stale(self, endpoint: Endpoint) -> bool:
        return endpoint.refresh_at is not None and self._clock.now() >= endpoint.refresh_at

    async def _load(self, *, force: bool) -> None:
        old = self._endpoint
        try:
            new = await self._source.load(force=force)
        except ConfigError:
            if old is None:
                raise
            # A plug-in or a file that fails for a while must not stop a running process: the
            # the present credentials stay in use, and the server judges them.
            self._endpoint = attrs.evolve(old, refresh_at=self._clock.now() + FORCED_REFRESH_PAUSE)
            return
        self._endpoint = new
        if self._sessions is not None and old is not None and old.fingerprint != new.fingerprint:
            retired, self._sessions = self._sessions, Sessions(new)
            await retired.retire()

    async def _renew(self, used: Endpoint) -> bool:
        """Get other credentials than those that were refused; returns whether there are any."""
        async with self._lock:
            if self._endpoint is not used:
                return True
            now = self._clock.monotonic()
            if (
                isinstance(self._source, FixedSource)
                or now - self._forced_at < FORCED_REFRESH_PAUSE
            ):
                return False
            self._forced_at = now
            await self._load(force=True)
            return self._endpoint is not used and self._endpoint != used


@attrs.define
class _Lease:
    """An open answer, and the sessions it keeps from being closed."""

    response: aiohttp.ClientResponse
    sessions: Sessions | None

    async def release(self) -> None:
        """Give the connection back; calling again does nothing."""
        sessions, self.sessions = self.sessions, None
        if sessions is not None:
            self.response.close()
            await sessions.leave()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise TransportError(str(response.url), in_words(error)) from error


async def _check_watch(response: aiohttp.ClientResponse) -> None:
    if response.status >= 300:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransportError(str(response.url), in_words(error)) from error
        raise failure(response.status, response.headers.get("Retry-After"), data)
    if response.content_type != "application/json":
        raise TransportError(str(response.url), f"a watch answered with {response.content_type}")
