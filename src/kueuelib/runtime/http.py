"""Web servers of a program: a site that starts and stops, probes, metrics."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from kueuelib.errors import ApiError, Forbidden, TransportError, Unauthorized
from kueuelib.runtime.addresses import unbound
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.server_limits import Connection, Site

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

WebHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[], str]
"""Returns what is wrong, or an empty text."""
Guard = Callable[[str], Awaitable[None]]
TEXT_FORMAT = "text/plain; version=1.0.0; charset=utf-8"


@asynccontextmanager
async def serving(
    app: web.Application | web.Server,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    drain: float = 5.0,
    subject: str = "",
    connection: Callable[..., Connection] = Connection,
) -> AsyncIterator[int]:
    """Serve an application, or a bare server, while the context is entered; gives the port.

    Args:
        app: what to serve; a bare server costs less per request.
        host: the address to bind; all of them when empty.
        port: 0 for any free one.
        tls: for https.
        drain: seconds that running requests have to end.
        subject: what to name in errors besides the address, for example the configuration's key.
        connection: what speaks HTTP.

    Raises:
        ConfigError: the address cannot be bound.
    """
    runner: web.BaseRunner
    if isinstance(app, web.Application):
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=drain)
    else:
        runner = web.ServerRunner(app, handle_signals=False, shutdown_timeout=drain)
    await runner.setup()
    try:
        assert runner.server is not None, "it is set up"
        site = Site(runner.server, (host or None, port), tls, connection)
        try:
            try:
                await site.start()
            except OSError as error:
                raise unbound(host, port, subject, error) from error
            yield site.port
        finally:
            site.stop()
    finally:
        with anyio.CancelScope(shield=True):
            await close_connections(runner)


async def close_connections(runner: web.BaseRunner) -> None:
    """Ends a server and all its connections, without waiting for clients to say goodbye."""
    server = runner.server
    connections = [] if server is None else server.connections
    transports = [each.transport for each in connections if each.transport is not None]
    await runner.cleanup()
    for transport in transports:
        transport.abort()
    await asyncio.sleep(0)


class ProbeServer:
    """`/healthz` and `/readyz`, with a sub-path per check, `?verbose` and `?exclude=name`.

    Only the log says why a check failed, unless the reason is `shown`, because probes need no
    credentials.

    Args:
        host: the address to bind.
        port: 0 for any free one; see `port`.
        live_path: the path for liveness.
        ready_path: the path for readiness.
        subject: what to name in errors, for example the configuration's key.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        live_path: str = "/healthz",
        ready_path: str = "/readyz",
        subject: str = "",
    ) -> None:
        self.port = port
        self._subject = subject
        self._host = host
        self._checks: dict[str, dict[str, Check]] = {live_path: {}, ready_path: {}}
        self._shown: set[tuple[str, str]] = set()
        self._dispensable: set[tuple[str, str]] = set()
        self._live, self._ready = live_path, ready_path
        self._log = get_logger("probes")
        self._started = False

    def add_live_check(self, name: str, check: Check, *, shown: bool = False) -> None:
        """Liveness also depends on this. Add before `run`."""
        self._add(self._live, name, check, shown=shown)

    def add_ready_check(
        self, name: str, check: Check, *, shown: bool = False, required: bool = True
    ) -> None:
        """Readiness also depends on this. Add before `run`.

        Args:
            name: of the sub-path.
            check: says what is wrong.
            shown: whether answers say why it failed.
            required: False for what the program can do without, for example another cluster: only
                the sub-path fails, and `?verbose` shows it.
        """
        self._add(self._ready, name, check, shown=shown)
        if not required:
            self._dispensable.add((self._ready, name))

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        self._started = True
        app = web.Application()
        for path, checks in self._checks.items():
            app.router.add_get(path, self._all(path, checks))
            app.router.add_get(path + "/", self._all(path, checks))
            for name, check in (checks or {"ping": lambda: ""}).items():
                app.router.add_get(f"{path}/{name}", self._one(path, name, check))
        async with serving(app, self._host, self.port, subject=self._subject) as self.port:
            ready()
            await anyio.sleep_forever()

    def _add(self, path: str, name: str, check: Check, *, shown: bool) -> None:
        if self._started:
            raise RuntimeError("checks are added before the server starts")
        self._checks[path][name] = check
        if shown:
            self._shown.add((path, name))

    def _all(self, path: str, checks: Mapping[str, Check]) -> WebHandler:
        async def handle(request: web.Request) -> web.Response:
            left_out = set(request.query.getall("exclude", []))
            lines, failed = [], []
            for name, check in (checks or {"ping": lambda: ""}).items():
                if name in left_out:
                    lines.append(f"[+]{name} excluded: ok")
                    continue
                reason = check()
                if not reason:
                    lines.append(f"[+]{name} ok")
                elif (path, name) in self._dispensable:
                    lines.append(
                        f"[!]{name} not required: {self._shown_reason(path, name, reason)}"
                    )
                else:
                    lines.append(f"[-]{name} failed: {self._shown_reason(path, name, reason)}")
                    failed.append(f"{name}: {reason}")
            if failed:
                self._log.info("check failed", path=path, failed=failed)
                return web.Response(
                    status=500, text="\n".join([*lines, f"{path.strip('/')} check failed", ""])
                )
            if "verbose" in request.query:
                return web.Response(text="\n".join([*lines, f"{path.strip('/')} check passed", ""]))
            return web.Response(text="ok")

        return handle

    def _one(self, path: str, name: str, check: Check) -> WebHandler:
        async def handle(_: web.Request) -> web.Response:
            if reason := check():
                text = f"{name} failed: {self._shown_reason(path, name, reason)}\n"
                return web.Response(status=500, text=text)
            return web.Response(text="ok")

        return handle

    def _shown_reason(self, path: str, name: str, reason: str) -> str:
        return reason if (path, name) in self._shown else "reason withheld"


class MetricsServer:
    """`/metrics` in Prometheus' text format.

    Args:
        host: the address to bind.
        port: 0 for any free one; see `port`.
        telemetry: what to show.
        subject: what to name in errors, for example the configuration's key.
        tls: for HTTPS; another part loads the certificate into it. None: plain HTTP.
        guard: raises for an `Authorization` header whose owner may not read; None: everyone may.
    """

    def __init__(
        self,
        host: str,
        port: int,
        telemetry: Telemetry,
        *,
        subject: str = "",
        tls: ssl.SSLContext | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.port = port
        self._subject = subject
        self._host = host
        self._telemetry = telemetry
        self._tls = tls
        self._guard = guard
        self._log = get_logger("metrics")

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        async with serving(
            app, self._host, self.port, tls=self._tls, subject=self._subject
        ) as self.port:
            ready()
            await anyio.sleep_forever()

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._guard is not None:
            try:
                await self._guard(request.headers.get("Authorization", ""))
            except (Unauthorized, Forbidden) as error:
                return web.Response(status=error.code, text=f"{error.message}\n")
            except (ApiError, TransportError) as error:
                self._log.warning("the API server cannot say who may read", error=with_fix(error))
                text = "The API server could not verify who you are; try again\n"
                return web.Response(status=503, text=text)
        headers = {"Content-Type": TEXT_FORMAT}
        return web.Response(body=self._telemetry.render(), headers=headers)
