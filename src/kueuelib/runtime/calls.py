"""Calls of the API, sent again where that is safe."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import attrs

from kueuelib.errors import ApiError, NotConnected, TooManyRequests
from kueuelib.runtime.bodies import Response
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.sessions import Answer
from kueuelib.runtime.throttle import Throttle
from kueuelib.runtime.transport import Transport

RETRIES = 8
"""How often a call is repeated after an answer 429."""
CONNECT_RETRIES = 3
"""How often a read without a connection is repeated; callers that need more wait themselves."""
FIRST_DELAY = 0.25
"""Seconds before the first repetition; doubles each time, up to `MAX_DELAY`."""
MAX_DELAY = 30.0
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
"""The text of a `Warning` header: a quoted string, in which a backslash escapes (RFC 9110)."""

A = TypeVar("A", Response, Answer)


@attrs.frozen(eq=False)
class Calls:
    """Sends the calls of one client.

    A call is repeated with back-off if the server answered 429, or if a read could not connect.

    Attributes:
        transport: carries the calls.
        throttle: awaited before every attempt.
        guard: called right before every attempt to write; what it raises prevents the write.
        clock: waits between attempts.
    """

    transport: Transport
    throttle: Callable[[], Awaitable[None]] | None
    guard: Callable[[], None] | None
    clock: Clock
    _log: Any = attrs.field(factory=lambda: get_logger("client"), init=False)
    _warned: set[str] = attrs.field(factory=set, init=False)

    def apart(self) -> Calls:
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

    async def stream(self, method: str, path: str, *, verb: str, **request: Any) -> Answer:
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
                await self.clock.sleep(
                    min(asked or 0.0, MAX_DELAY) if asked else delay * random.uniform(0.5, 1.5)
                )
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
