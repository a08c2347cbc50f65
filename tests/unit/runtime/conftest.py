"""Small HTTP servers on loopback for the tests of the shells."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A function that serves one handler for every path and returns the URL."""
    async with AsyncExitStack() as stack:

        async def start(handler: Handler, tls: ssl.SSLContext | None = None) -> str:
            app = web.Application(client_max_size=64 * 1024 * 1024)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await handler(request)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
            await site.start()
            port = runner.addresses[0][1]
            return f"{'https' if tls else 'http'}://127.0.0.1:{port}"

        yield start


class ManualClock:
    """A clock that tests move; sleeping moves it, too."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.at = now
        self.slept: list[float] = []

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
