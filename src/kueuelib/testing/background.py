"""An API server in its own thread, for tests in any framework, including blocking ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kueuelib.api.yaml_text import to_yaml
from kueuelib.embedded.cluster.clock import ManualClock
from kueuelib.embedded.server import ApiServer

if TYPE_CHECKING:
    from kueuelib.runtime.client import Client

R = TypeVar("R")
START_SECONDS = 120.0
CALL_SECONDS = 60.0


class BackgroundServer:
    """`kueuelib.embedded.server.ApiServer` for code outside its event loop.

    A context manager. Everything but `call` may be used from any thread.

    Args:
        simulate: also run the simulated cluster.
        authorization: `always` or `rbac`.
        services: addresses of webhooks that are named by a Service: `host:port` by
            `namespace/name`.
        start_time: seconds since the epoch for a clock that only `advance` moves; None: the clock
            of this machine.
    """

    def __init__(
        self,
        *,
        simulate: bool = False,
        authorization: str = "always",
        start_time: float | None = None,
        services: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = None if start_time is None else ManualClock(start_time)
        self._simulate = simulate
        self._server = ApiServer(
            simulate=simulate, authorization=authorization, clock=self.clock, services=services
        )
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="api server", daemon=True)

    # ---- life

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise TimeoutError(f"the API server did not start within {START_SECONDS:g} s")
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread of the test
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._server:
            self._ready.set()
            await self._stop.wait()

    # ---- use

    @property
    def url(self) -> str:
        """`https://host:port`."""
        return self._server.url

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self._server.token

    @property
    def ca(self) -> bytes:
        """The CA certificate that clients have to trust, as PEM."""
        return self._server.ca

    def kubeconfig(self, token: str = "") -> dict[str, Any]:
        """A kubeconfig; see `ApiServer.kubeconfig`."""
        return self._server.kubeconfig(token)

    def client(self, token: str = "", *, field_manager: str = "kueuelib") -> Client:
        """A client for the event loop of the test; see `ApiServer.client`."""
        return self._server.client(token, field_manager=field_manager)

    def write_kubeconfig(self, path: Path, token: str = "") -> Path:
        """Writes a kubeconfig to a file that only its owner may read."""
        path.touch(mode=0o600)
        path.write_text(to_yaml(self.kubeconfig(token)))
        return path

    def add_user(self, name: str, *groups: str) -> str:
        """Adds a user; returns the bearer token."""
        return self._server.add_user(name, *groups)

    def call(self, work: Callable[[ApiServer], Coroutine[Any, Any, R]]) -> R:
        """Runs something in the server's own event loop, and waits for its result.

        For what HTTP does not offer: the service without transport, the simulated cluster.

        Raises:
            TimeoutError: it takes longer than a minute.
        """
        assert self._loop is not None, "the server is not started"
        future = asyncio.run_coroutine_threadsafe(work(self._server), self._loop)
        try:
            return future.result(CALL_SECONDS)
        except TimeoutError:
            future.cancel()
            raise

    def advance(self, seconds: float) -> None:
        """Advances the time, and waits until the simulated cluster has done everything that became
        due.

        Work that becomes due is done at its own instant: a Job of three pods of ten seconds each,
        one after the other, ends thirty seconds from now, however long the step is.

        Raises:
            ValueError: the server uses the clock of this machine, or time would go back.
        """
        clock = self.clock
        if clock is None:
            raise ValueError("the clock of this machine cannot be moved: give a start_time")

        async def work(server: ApiServer) -> None:
            if self._simulate:
                await server.cluster.pass_time(clock, seconds)
            else:
                clock.advance(seconds)

        self.call(work)

    def settle(self) -> None:
        """Waits until the simulated cluster has done everything that is due now."""

        async def work(server: ApiServer) -> None:
            await server.cluster.settle()

        self.call(work)
