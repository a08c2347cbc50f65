"""An informer for a kind that a cluster may lack."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import anyio

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ApiError, NotFound, TransportError
from kueuelib.machinery.backoff import Backoff
from kueuelib.machinery.store import Delta, Store
from kueuelib.runtime.cache import SYNC_TIMEOUT, Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.dispatch import Handler, call, check_handler
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.reading import read, unlisted
from kueuelib.runtime.steps import lasting_tasks

PAUSE = 10.0
"""Seconds between two looks at a kind; the first pauses are shorter."""


class OptionalInformer:
    """Follows the objects of a kind for as long as its CRD exists; a part of a `Manager`.

    Without a CRD that serves the version there are no objects. Handlers receive the deltas of an
    `Informer`, and a deletion of each remaining object when the CRD is gone.

    Args:
        client: reads the CRD.
        cache: makes the informers, which learn from answers and catch up like others.
        resource: the kind, at the version that is read.
        sync_timeout: seconds until it must be known whether there are objects, and which.
        pause: seconds between two looks at the kind; the first pauses are shorter.
        clock: monotonic time.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        resource: Resource,
        *,
        sync_timeout: float = SYNC_TIMEOUT,
        pause: float = PAUSE,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.resource = resource
        self.cluster = ""
        self.store: Store[Obj] = Store()
        self._client = client
        self._cache = cache
        self._sync_timeout = sync_timeout
        self._pause = pause
        self._clock = clock
        self._handlers: list[Handler] = []
        self.started = False  # `run` was called; a `Manager` calls it
        self._known = asyncio.Event()
        self._failure: Exception | None = None
        self._log = get_logger("informer", resource=resource.plural)

    def add_handler(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` with what there is, then with every delta; see `Informer.add_handler`."""
        check_handler(handler)
        for delta in self.store.as_initial():
            call(handler, delta)
        self._handlers.append(handler)

        def remove() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return remove

    async def wait_synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - deadline
        """Wait until it is known which objects there are, or that there is no such kind.

        Raises:
            ConfigError: it was not known within `timeout` seconds.
        """
        try:
            with anyio.fail_after(timeout):
                await self._known.wait()
        except TimeoutError as error:
            raise unlisted(self.resource, self._failure) from error

    def learn(self, answer: Obj) -> None:
        """Store the answer to a write; see `Informer.learn`."""
        self._cache.learn(answer)

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the kind until cancelled; `ready` is called once `wait_synced` would return.

        Raises:
            ConfigError: that took too long.
        """
        self.started = True
        async with lasting_tasks(f"informer of {self.resource.plural}") as tasks:
            tasks.start_soon(self._follow, name=f"informer-{self.resource.plural}")
            await self.wait_synced(self._sync_timeout)
            ready()

    async def _follow(self) -> None:
        """Read while there is a definition, and look for one while there is none."""
        pauses = Backoff(base=min(0.25, self._pause), cap=self._pause, jitter=0.1)
        while True:
            defined = await self._is_defined()
            if defined:
                await self._read()
                pauses.reset()
            elif defined is False:
                self._known.set()
            await self._clock.sleep(pauses.next(self._clock.monotonic(), random.random()))

    async def _read(self) -> None:
        """Run an informer until the definition is gone."""
        informer = self._cache.apart(self.resource)
        self.store = informer.store
        informer.add_handler(self._tell)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run, self._known.set)
            while not (
                isinstance(informer.failing, NotFound) and await self._is_defined() is False
            ):
                self._failure = informer.failing
                await self._clock.sleep(self._pause)
            tasks.cancel_scope.cancel()
        self._log.info("the kind is gone", kind=self.resource.kind)
        for delta in informer.store.replace(()):
            self._tell(delta)

    async def _is_defined(self) -> bool | None:
        """Whether there is a CRD that serves the version; None if the server does not answer."""
        name = ObjectKey("", f"{self.resource.plural}.{self.resource.group}")
        try:
            crd = await read(self._client, CRDS, name)
        except (ApiError, TransportError) as error:
            self._log.warning("the definition cannot be read", error=with_fix(error))
            self._failure = error
            return None
        versions = () if crd is None else crd["spec"]["versions"]
        return any(each["name"] == self.resource.version and each["served"] for each in versions)

    def _tell(self, delta: Delta[Obj]) -> None:
        for handler in tuple(self._handlers):
            call(handler, delta)
