"""The admission loop: runs cycles while there is something to decide.

It sleeps until the feed reports a change, or until the engine's next deadline; it never polls.
Cycles without an admission are followed by a growing pause, so that a head which returns at once
cannot keep a processor busy. Other tasks run between cycles, and between the heads of a cycle that
takes long. What the engine learns meanwhile does not change what the cycle sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock, Deadlines, Limit
from kueuelib.scheduler.decide.cycle import decide_step_by_step

if TYPE_CHECKING:
    from kueuelib.scheduler.decide.cycle import CycleInput, Plan
    from kueuelib.scheduler.engine import Engine, Settled
    from kueuelib.scheduler.events import Effects

FIRST_PAUSE = 0.001
LAST_PAUSE = 0.1
"""Seconds between cycles without an admission: the first pause and the longest."""

LONGEST_STRETCH = 0.01
"""Seconds for which a cycle decides heads before other tasks run."""


class AdmissionLoop:
    """Requests cycles from the engine, decides them, and passes the plans on.

    Args:
        engine: the cache and the queues.
        submit: carries a plan out; must return at once.
        spread: receives the queues whose status changed.
        metrics: cycles and their duration.
        clock: epoch time for decisions, monotonic time for pauses.
    """

    def __init__(
        self,
        engine: Engine,
        submit: Callable[[Settled], None],
        spread: Callable[[Effects], None],
        metrics: SchedulerMetrics,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._engine = engine
        self._submit = submit
        self._spread = spread
        self._metrics = metrics
        self._clock = clock
        self._changed = asyncio.Event()
        self._deadlines = Deadlines()
        self._fruitless = 0

    def wake(self) -> None:
        """The engine received a change."""
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Decide until cancelled."""
        ready()
        while True:
            self._changed.clear()
            if await self._cycle():
                await self._clock.sleep(self._pause())
            else:
                self._fruitless = 0
                await self._until_changed()

    async def _cycle(self) -> bool:
        """One cycle; False when there is nothing to decide now."""
        now, started = self._clock.now(), self._clock.monotonic()
        cycle = self._engine.next_cycle(now)
        if cycle is None:
            return False
        plan = await self._decide(cycle, now)
        settled = self._engine.settle(plan, now)
        self._submit(settled)
        self._spread(settled.effects)
        skips = {head.cluster_queue: 0 for head in cycle.heads}
        self._metrics.skipped_preemptions({**skips, **plan.skipped_preemptions})
        self._metrics.recomputed(plan.recomputations)
        if not cycle.heads:  # only skipped turns: no try failed
            return True
        admitted = bool(settled.admissions)
        self._metrics.cycle(self._clock.monotonic() - started, success=admitted)
        self._fruitless = 0 if admitted else self._fruitless + 1
        return True

    async def _decide(self, cycle: CycleInput, now: float) -> Plan:
        steps = decide_step_by_step(cycle, now)
        since = self._clock.monotonic()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                plan: Plan = end.value
                return plan
            if self._clock.monotonic() - since >= LONGEST_STRETCH:
                await asyncio.sleep(0)
                since = self._clock.monotonic()

    def _pause(self) -> float:
        if not self._fruitless:
            return 0.0
        return min(FIRST_PAUSE * 2.0 ** min(self._fruitless - 1, 10), LAST_PAUSE)

    async def _until_changed(self) -> None:
        now = self._clock.now()
        deadline = self._engine.next_deadline()
        seconds = None if deadline is None else max(deadline - now, LAST_PAUSE)
        try:
            with Limit(self._deadlines, seconds):
                await self._changed.wait()
        except TimeoutError:
            return
