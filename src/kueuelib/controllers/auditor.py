"""Finds charged quota without an admission, reports it, and releases it
(`kueuelib.workload.orders`).

Before it reports a wrong claim to the engine, it reads the Workload from the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kueuelib.api.meta import Obj
from kueuelib.controllers.applier import OrderWriter
from kueuelib.errors import ApiError, NotFound, TransportError
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.events import EvictionFailed, Forgotten, NotPlaced
from kueuelib.workload import states
from kueuelib.workload.orders import Audit, Loss, OrderBook
from kueuelib.workload.states import Phase

if TYPE_CHECKING:
    from kueuelib.scheduler.engine import Engine

INTERVAL = 5.0
"""Seconds between two looks."""


class Auditor:
    """Compares the engine's assumptions with the orders, every few seconds.

    Args:
        engine: makes the assumptions.
        book: the orders of the applier.
        written: reads Workloads, and informs the engine.
    """

    def __init__(self, engine: Engine, book: OrderBook, written: OrderWriter) -> None:
        self._engine = engine
        self._book = book
        self._written = written
        self._audit = Audit()
        self._log = get_logger("auditor")

    async def run(self, ready: Callable[[], None]) -> None:
        """Look until cancelled."""
        ready()
        while True:
            await self._written.clock.sleep(INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Looks once; faults are logged, counted and repaired."""
        now = self._written.clock.monotonic()
        claims = self._audit.look(
            self._engine.cache.assumed,
            self._engine.placed(),
            self._engine.leaving(),
            self._book,
            now,
        )
        for claim in claims:
            try:
                wl = await self._read(claim)
            except (ApiError, TransportError) as error:
                self._log.info("cannot be audited now", workload=str(claim.key), why=str(error))
                continue
            self._audit.explained(claim)
            if wl is None or not _is_true(wl, claim):
                self._withdraw(claim)

    async def _read(self, claim: Loss) -> Obj | None:
        try:
            return await self._written.writer.read(claim.key)
        except NotFound:
            return None

    def _withdraw(self, claim: Loss) -> None:
        if self._book.explains(claim):
            return  # since the look
        leaving = isinstance(claim, EvictionFailed)
        fault = "counts as leaving without an eviction" if leaving else "is assumed"
        self._log.error(f"a workload {fault}, and nothing will write it", workload=str(claim.key))
        self._written.metrics.orphaned(leaving=leaving)
        self._written.observe(claim)


def _is_true(wl: Obj, claim: Loss) -> bool:
    """Whether the API server confirms the engine's claim, which the watch has not shown yet."""
    if wl["metadata"]["uid"] != claim.uid:
        return False
    phase = states.phase_of(wl)
    match claim:
        case EvictionFailed():
            return phase is Phase.EVICTING
        case NotPlaced():
            return False  # the engine has seen the places by now, if they were stored
        case Forgotten():
            return phase.holds_quota
