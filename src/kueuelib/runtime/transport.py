"""HTTP to the API server: connections, credentials, deadlines.

The number of calls at once is limited and that of watches is not, so that watches never use up
what calls need. Proxies and passwords are not read from the environment per request.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import anyio
import attrs

from kueuelib.errors import ApiError, ConfigError, NotConnected, TooManyRequests, TransportError
from kueuelib.machinery.backoff import TokenBucket
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock, Deadlines, Limit
from kueuelib.runtime.dialling import CONNECT_TIMEOUT
from kueuelib.runtime.endpoint import Endpoint, EndpointSource, FixedSource
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.http_connection import ResponseBody
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.network_errors import NetworkError, NoConnection, NoTls
from kueuelib.runtime.sessions import (
    OpenResponse,
    Params,
    Response,
    Session,
    failure,
    in_words,
    target_of,
)
from kueuelib.runtime.watch import MAX_LINE, WatchStream

# ---- a client-side rate limit; off unless asked for ----------------------------------------------


class Throttle:
    """Lets `qps` calls per second pass, and `burst` at once after a pause; in order.

    Args:
        qps: calls per second.
        burst: calls that may pass at once.
        clock: time.
    """

    def __init__(self, qps: float, burst: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._limits = qps, burst, clock
        self._bucket = TokenBucket(qps, burst)
        self._clock = clock

    def alike(self) -> Throttle:
        """Another one with the same limits: calls that wait for it delay nobody here."""
        return Throttle(*self._limits)

    async def __call__(self) -> None:
        """Wait for this call's turn."""
        seconds = self._bucket.when(None, self._clock.monotonic())
        if seconds > 0:
            await self._clock.sleep(seconds)


# --------------------------------------------------------------------------------------------------

REQUEST_TIMEOUT = 60.0
"""Seconds from sending a call to the last byte of its answer, unless a program asks for less."""
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
        self._session: Session | None = None
        self._deadlines = Deadlines()
        self._lock = asyncio.Lock()
        self._forced_at = float("-inf")
        self._not_renewed: ConfigError | None = None
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
            with Limit(self._deadlines, self._request_timeout if timeout is None else timeout):
                answer = await self._send(method, path, params, body, content_type, accept)
                host = answer.host
                try:
                    data = await answer.read()
                finally:
                    answer.release()
            code, received = str(answer.status), len(data)
        except TimeoutError as error:
            raise self._late(path, error) from error
        finally:
            if self.observer is not None:
                seconds = time.monotonic() - started
                self.observer.answered(
                    verb or method, method, code, host, seconds, len(body or b""), received
                )
        if answer.status < 500:
            self.answered_at = self._clock.monotonic()
        response = Response(answer.status, answer.headers, data)
        if answer.status >= 300:
            raise failure(response) from (self._not_renewed if answer.status == 401 else None)
        return response

    async def watch(
        self,
        path: str,
        *,
        params: Params = (),
        timeout: float,  # noqa: ASYNC109 - the server's
        accept: str = "application/json",
    ) -> WatchStream:
        """Open a watch.

        Args:
            path: the path of the collection.
            params: query parameters without `watch` and `timeoutSeconds`.
            timeout: seconds after which the server shall end the stream.
            accept: types that the answer may have.

        Raises:
            ApiError: the server refused.
            NotConnected: no connection was made.
            TransportError: there was no answer in time.
        """
        query = [*params, ("watch", "true"), ("timeoutSeconds", str(max(int(timeout), 1)))]
        try:
            with anyio.fail_after(REQUEST_TIMEOUT):
                answer = await self._send("GET", path, query, None, "", accept, streams=True)
        except TimeoutError as error:
            raise self._late(path, error) from error
        try:
            await _check_watch(answer)
        except BaseException:
            answer.release()
            raise
        self.answered_at = self._clock.monotonic()
        assert isinstance(answer.content, ResponseBody)
        return WatchStream(
            answer.content,
            server_timeout=timeout,
            what=path,
            max_line=self._max_line,
            release=answer.release,
        )

    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,  # noqa: ASYNC109 - until the answer begins
        verb: str = "",
    ) -> OpenResponse:
        """One call whose answer is read as it comes; the caller releases it. See `request`.

        Raises:
            TooManyRequests: the server answered 429; any other failure is an answer.
            NotConnected: no connection was made.
            TransportError: no answer began in time.
            ConfigError: there are no credentials.
        """
        started, code, host = time.monotonic(), "<error>", ""
        try:
            with Limit(self._deadlines, self._request_timeout if timeout is None else timeout):
                answer = await self._send(
                    method, path, params, body, content_type, accept, streams=True
                )
                code, host = str(answer.status), answer.host
                if answer.status == 429:
                    await _raise_failure(answer)
        except TimeoutError as error:
            raise self._late(path, error) from error
        finally:
            if self.observer is not None:
                seconds = time.monotonic() - started
                self.observer.answered(
                    verb or method, method, code, host, seconds, len(body or b""), 0
                )
        self.answered_at = self._clock.monotonic()
        return answer

    @property
    def address(self) -> str:
        """The URL of the server; empty before the first call."""
        return self._endpoint.url if self._endpoint else ""

    @property
    def configuration(self) -> Any:
        """The `ClientConfiguration` of a generated client that the endpoint comes from, or None."""
        return getattr(self._source, "configuration", None)

    async def close(self) -> None:
        """Close every connection, also in a cancelled scope; calling again does nothing."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _late(self, path: str, error: TimeoutError) -> TransportError:
        """The error for a call whose deadline is over."""
        return TransportError(self.address + path, in_words(error))

    async def _send(
        self,
        method: str,
        path: str,
        params: Params,
        body: bytes | None,
        content_type: str,
        accept: str,
        *,
        streams: bool = False,
    ) -> OpenResponse:
        """Send; repeat once with other credentials if the first ones were refused."""
        may_renew = True
        target = target_of(path, params)
        while True:
            endpoint, session = await self._ready()
            try:
                answer = await session.send(
                    endpoint, method, target, body, content_type, accept, streams=streams
                )
            except NoTls as error:
                raise TransportError(_origin(endpoint), in_words(error)) from error
            except NoConnection as error:
                raise NotConnected(_origin(endpoint), in_words(error)) from error
            except (NetworkError, TimeoutError, OSError) as error:
                raise TransportError(f"{endpoint.url}{target}", in_words(error)) from error
            if answer.status != 401 or not may_renew:
                return answer
            may_renew = False
            try:
                renewed = await self._renew(endpoint)
            except BaseException:
                answer.release()
                raise
            if not renewed:
                return answer
            answer.release()

    async def _ready(self) -> tuple[Endpoint, Session]:
        """The endpoint and its session; loads at most once at a time."""
        if self._closed:
            raise TransportError(self.address, "is closed")
        endpoint, session = self._endpoint, self._session
        if endpoint is not None and session is not None and not self._is_stale(endpoint):
            return endpoint, session
        async with self._lock:
            if self._endpoint is None or self._is_stale(self._endpoint):
                await self._load(force=False)
            if self._session is None:
                assert self._endpoint is not None
                self._session = Session(self._endpoint, self._user_agent)
            assert self._endpoint is not None
            return self._endpoint, self._session

    def _is_stale(self, endpoint: Endpoint) -> bool:
        return endpoint.refresh_at is not None and self._clock.now() >= endpoint.refresh_at

    async def _load(self, *, force: bool) -> None:
        old = self._endpoint
        try:
            new = await self._source.load(force=force)
        except ConfigError as error:
            if old is None:
                raise
            # A plug-in or a file that fails for a while must not stop a running process: the
            # present credentials stay in use, and the server judges them.
            if str(error) != str(self._not_renewed):
                problem = with_fix(error)
                get_logger("client").warning("credentials cannot be renewed", problem=problem)
            self._not_renewed = error
            self._endpoint = attrs.evolve(old, refresh_at=self._clock.now() + FORCED_REFRESH_PAUSE)
            return
        self._endpoint, self._not_renewed = new, None
        if self._session is not None and old is not None and old.route != new.route:
            retired, self._session = self._session, Session(new, self._user_agent)
            retired.retire()

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


def _origin(endpoint: Endpoint) -> str:
    url = urlsplit(endpoint.url)
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


async def _raise_failure(answer: OpenResponse) -> None:
    try:
        with anyio.fail_after(CONNECT_TIMEOUT):
            data = await answer.read()
    except TimeoutError as error:
        raise TransportError(answer.url, in_words(error)) from error
    finally:
        answer.release()
    raise failure(Response(answer.status, answer.headers, data))


async def _check_watch(answer: OpenResponse) -> None:
    if answer.status >= 300:
        await _raise_failure(answer)
    content_type, _, _ = (answer.headers.first("Content-Type") or "nothing").partition(";")
    if content_type != "application/json":
        raise TransportError(answer.url, f"a watch answered with {content_type}")


# ---- calls of the API, sent again where that is safe ---------------------------------------------

RETRIES = 8
"""How often a call is repeated after an answer 429."""
CONNECT_RETRIES = 3
"""How often a read without a connection is repeated; callers that need more wait themselves."""
FIRST_DELAY = 0.25
"""Seconds before the first repetition; doubles each time, up to `MAX_DELAY`."""
MAX_DELAY = 30.0
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
"""The text of a `Warning` header: a quoted string, in which a backslash escapes (RFC 9110)."""

A = TypeVar("A", Response, OpenResponse)


@attrs.define(eq=False)
class Requester:
    """Sends the calls of one client.

    A call is repeated with back-off if the server answered 429, or if a read could not connect,
    unless a deadline of the caller passes before.

    Attributes:
        transport: carries the calls.
        throttle: awaited before every attempt.
        guard: called right before every attempt to write; what it raises prevents the write.
        clock: waits between attempts.
        pauses: seconds in which repetitions may wait, of all calls together; calls that wait at
            the same time count once.
    """

    transport: Transport
    throttle: Callable[[], Awaitable[None]] | None
    guard: Callable[[], None] | None
    clock: Clock
    pauses: float = math.inf
    _paused_until: float = -math.inf
    _log: Any = attrs.field(factory=lambda: get_logger("client"), init=False)
    _warned: set[str] = attrs.field(factory=set, init=False)

    def apart(self) -> Requester:
        """The same with a rate limit of its own, if it is a `Throttle`."""
        throttle = self.throttle
        return attrs.evolve(
            self, throttle=throttle.alike() if isinstance(throttle, Throttle) else throttle
        )

    async def send(self, method: str, path: str, *, verb: str, **request: Any) -> Response:
        """Send one call until it is answered; see `Transport.request` for its parameters.

        Raises:
            ApiError: the server reports a failure.
            TransportError: there was no answer.
            ConfigError: there are no credentials.
        """
        return await self._send(self.transport.request, method, path, verb, request)

    async def stream(self, method: str, path: str, *, verb: str, **request: Any) -> OpenResponse:
        """Send one call; its answer, also a failure, is read as it comes. See `Transport.stream`.

        Raises:
            TooManyRequests: the server answered 429 again and again.
            TransportError: there was no answer.
            ConfigError: there are no credentials.
        """
        return await self._send(self.transport.stream, method, path, verb, request)

    async def _send(
        self,
        send: Callable[..., Awaitable[A]],
        method: str,
        path: str,
        verb: str,
        request: Mapping[str, Any],
    ) -> A:
        delay = FIRST_DELAY
        for attempt in range(RETRIES + 1):
            if self.throttle is not None:
                await self._wait_for_turn(self.throttle, verb or method)
            if self.guard is not None and method != "GET":
                self.guard()
            try:
                response = await send(method, path, verb=verb, **request)
            except (TooManyRequests, NotConnected) as error:
                if attempt >= _repetitions(method, error):
                    raise
                self._note_retry(verb or method, error)
                asked = error.retry_after if isinstance(error, ApiError) else None
                pause = min(asked, MAX_DELAY) if asked else delay * random.uniform(0.5, 1.5)
                now = self.clock.monotonic()
                if self.pauses < math.inf:  # else the calls of a command return all at once
                    pause += random.uniform(0.0, delay)
                together = now + pause - max(now, self._paused_until)
                left = anyio.current_effective_deadline() - anyio.current_time()
                if pause >= left or together >= self.pauses:
                    raise  # rather than let the caller's deadline pass without a reason
                if together > 0.0:
                    self.pauses -= together
                    self._paused_until = now + pause
                await self.clock.sleep(pause)
                delay = min(delay * 2, MAX_DELAY)
                continue
            for warning in response.headers.all("Warning"):
                self._warn(warning, path)
            return response
        raise AssertionError("the loop returns or raises")

    async def _wait_for_turn(self, throttle: Callable[[], Awaitable[None]], verb: str) -> None:
        began = self.clock.monotonic()
        await throttle()
        if self.transport.observer is not None:
            self.transport.observer.throttled(verb, "", self.clock.monotonic() - began)

    def _note_retry(self, verb: str, error: Exception) -> None:
        if self.transport.observer is not None:
            code = str(error.code) if isinstance(error, ApiError) else "<error>"
            self.transport.observer.retried(verb, code, "")

    def _warn(self, header: str, path: str) -> None:
        """Log a warning of the server, each text once."""
        quoted = _QUOTED.search(header)
        text = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else header
        if text not in self._warned and len(self._warned) < 1000:
            self._warned.add(text)
            self._log.warning("the API server warns", warning=text, path=path)


def _repetitions(method: str, error: Exception) -> int:
    if isinstance(error, TooManyRequests):
        return RETRIES
    return CONNECT_RETRIES if method == "GET" else 0
