"""Follows the objects of a kind while something needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any

import anyio

from kueuelib.api.meta import Obj, Resource
from kueuelib.machinery.store import Store
from kueuelib.runtime.cache import SYNC_TIMEOUT, Cache, PartTimeInformer
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.informer import Informer

REFUSED_PAUSE = 1.0
"""Seconds between two looks whether objects may be read by now."""


class WantedInformer(PartTimeInformer):
    """Follows the objects of a kind for as long as something needs them.

    Args:
        cache: see `PartTimeInformer`.
        resource: the kind.
        decided: returns once it is known whether the objects are needed from the start.
        indexes: of each store, by name.
        refused: hears why the objects cannot be read; an empty text once they can, or once nothing
            needs them.
        after: an informer that is wanted together with this one, and lists its objects first.
        selection: what is listed and how it is stored; see `Cache.informer`.

    Attributes:
        answered: set once the server has listed the objects or refused to; `want` starts a new one.
    """

    def __init__(
        self,
        cache: Cache,
        resource: Resource,
        decided: Callable[[], Awaitable[None]],
        *,
        indexes: Mapping[str, Callable[[Obj], Iterable[Hashable]]] | None = None,
        refused: Callable[[str], None] = lambda _: None,
        after: WantedInformer | None = None,
        **selection: Any,
    ) -> None:
        super().__init__(cache, resource, SYNC_TIMEOUT, SYSTEM_CLOCK)
        self._refused = refused
        self._decided = decided
        self._after = after
        self.answered = asyncio.Event()
        self._indexes = indexes or {}
        self._selection = selection
        self._wanted = False
        self._changed = asyncio.Event()
        self._use(self.store)

    @property
    def synced(self) -> bool:
        """Whether the store is what the server has, and not just empty."""
        informer = self._informer if self._wanted else None
        return informer is not None and informer.synced and not informer.ended

    def want(self, wanted: bool) -> None:
        """Say whether the objects are needed."""
        if wanted != self._wanted:
            self._wanted = wanted
            self.answered = asyncio.Event()
            self._changed.set()

    async def _follow(self) -> None:
        await self._decided()
        while True:
            self._changed.clear()
            if self._wanted:
                await self._read()
            else:
                self._known.set()
                await self._changed.wait()

    async def _read(self) -> None:
        """Run an informer until nobody needs it."""
        self._informer = informer = self._cache.apart(self.resource, **self._selection)
        self._use(informer.store)
        informer.add_handler(self._pass_on)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, informer)
            tasks.start_soon(self._let_begin, informer)
            while self._wanted:
                await self._changed.wait()
                self._changed.clear()
            tasks.cancel_scope.cancel()
        self._forget()
        self._refused("")

    async def _run(self, informer: Informer) -> None:
        if self._after is not None:
            await self._after.answered.wait()
        await informer.run()

    async def _let_begin(self, informer: Informer) -> None:
        """Let others begin, also without objects that may not be read."""
        await informer.wait_settled()
        if not informer.synced:
            self._refused(str(informer.failing))
        self.answered.set()
        self._known.set()
        while not informer.synced:
            await self._clock.sleep(REFUSED_PAUSE)
        self._refused("")

    def _use(self, store: Store[Obj]) -> None:
        self.store = store
        for name, function in self._indexes.items():
            store.add_index(name, function)
