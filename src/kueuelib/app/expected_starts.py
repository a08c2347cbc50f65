"""Predicts for the visibility API when the first Workloads of a queue start, with a small part of a
processor.

It is the simulation of `explain --when`, on the facts that the engine has, for all of them at once.
Simulations run in a thread, which often pauses so that the event loop is not late.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import anyio.to_thread
import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.phrases import counted
from kueuelib.app.explaining.when import WINDOW, limits_in, without_held_back
from kueuelib.controllers.visibility.summary import PredictedStart, PredictedStarts
from kueuelib.recording.history import PresentObjects
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.events import Event
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import Settings
from kueuelib.simulator.forecast import HORIZON, Forecast, Known, RunTimes, forecasts, run_time
from kueuelib.workload.life import LifeSettings

RUNS: Final = 19
FEWEST: Final = 9
"""Simulations without which there is no p90."""
PLACES: Final = 100
"""The first Workloads of a ClusterQueue, whose starts are predicted."""
EVERY: Final = 10.0
"""Seconds after which a prediction is made again, if it is asked for."""
SHARE: Final = 0.015
"""The part of a processor that predictions may use over time."""
BUDGET: Final = 2.0
"""Seconds of processor time for one prediction, and for all after a rest."""
PATIENCE: Final = 2.0
"""Seconds that the first question about a queue waits for its answer."""
_TURN, _PAUSE = 0.002, 0.004
"""Seconds of work in the thread before each pause, and the length of a pause."""
MOST_ENDED, MOST_RECENT = 10_000, 2000
_NOT_YET = PredictedStarts(0.0, {}, "the prediction is being made; ask again in a few seconds")


class ExpectedStarts:
    """Predictions by ClusterQueue, made again while somebody asks for them.

    Args:
        engine: knows what waits, in which order.
        settings: of its decisions.
        life: the manager's settings for times; may be set again.
        clock: the time.
    """

    def __init__(
        self, engine: Engine, settings: Settings, life: LifeSettings, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.life = life
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._objects = PresentObjects()
        self._times = RunTimes(MOST_ENDED)
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._recent: OrderedDict[str, Workload] = OrderedDict()
        self._since = clock.now()
        self._made: dict[str, PredictedStarts] = {}
        self._wanted: dict[str, asyncio.Event] = {}
        self._asked = asyncio.Event()
        self._log = get_logger("visibility")
        self._credit, self._credited = BUDGET, clock.monotonic()

    def observe(self, event: Event) -> None:
        """Takes in a fact that the engine receives, too."""
        self._objects.observe(event)
        if not isinstance(event, events.WorkloadSet):
            return
        workload = event.workload
        if workload.uid not in self._recent:
            self._recent[workload.uid] = workload
            if len(self._recent) > MOST_RECENT:
                _, oldest = self._recent.popitem(last=False)
                self._since = max(self._since, oldest.metadata.creation_timestamp or 0.0)
        seconds = run_time(workload)
        if seconds is not None and workload.uid not in self._ended:
            self._ended[workload.uid] = None
            self._times.add(workload, seconds)
            if len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)

    async def of(self, cluster_queue: str) -> PredictedStarts:
        """The last prediction for a ClusterQueue; a question starts a new one if it is old."""
        made = self._made.get(cluster_queue)
        if made is None or self._clock.now() - made.at > EVERY:
            done = self._wanted.setdefault(cluster_queue, asyncio.Event())
            self._asked.set()
            if made is None:
                with anyio.move_on_after(PATIENCE):
                    await done.wait()
        return self._made.get(cluster_queue, _NOT_YET)

    async def run(self, ready: Callable[[], None]) -> None:
        """Predicts until cancelled."""
        ready()
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._wanted:
                await self._afford()
                name, done = next(iter(self._wanted.items()))
                self._made[name] = await self._predict(name)
                del self._wanted[name]
                done.set()
                for gone in [one for one in self._made if not self._engine.exists(one)]:
                    del self._made[gone]

    async def _afford(self) -> None:
        """Waits until there is processor time again."""
        now = self._clock.monotonic()
        self._credit = min(BUDGET, self._credit + (now - self._credited) * SHARE)
        self._credited = now
        if self._credit <= 0:
            await self._clock.sleep(-self._credit / SHARE)

    async def _predict(self, name: str) -> PredictedStarts:
        keys = [info.key for info in self._engine.pending(name)]
        simulation = _Simulation(
            self._objects.world(self._settings),
            keys[:PLACES],
            self._clock.now(),
            self._times,
            tuple(self._recent.values()),
            self._since,
            self.life,
        )
        try:
            return await anyio.to_thread.run_sync(simulation.run, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - a queue without predictions, not without places
            self._log.exception("starts cannot be predicted", cluster_queue=name)
            why = f"the prediction failed with {type(error).__name__}; the manager's log has it"
            return PredictedStarts(simulation.now, {}, why)
        finally:
            simulation.cancelled = True
            self._credit -= simulation.spent


@attrs.define(eq=False)
class _Simulation:
    """One prediction, in a thread."""

    world: World
    keys: Sequence[ObjectKey]
    now: float
    times: RunTimes
    recent: Sequence[Workload]
    since: float
    life: LifeSettings
    cancelled: bool = False
    spent: float = 0.0
    _began: float = 0.0
    _paused: float = 0.0

    def run(self) -> PredictedStarts:
        self._began = self._paused = time.thread_time()
        world = without_held_back(self.world)
        keys = [key for key in self.keys if key in world.workloads]
        if not keys:
            return PredictedStarts(self.now, {}, "")
        world = world.narrowed(keys[-1])
        since, recent = self._arrivals()
        known = Known(self.times, limits_in(world, {}), recent, since)
        made = forecasts(
            world,
            keys,
            self.now,
            known,
            runs=RUNS,
            life=self.life,
            goes_on=lambda _: not self._stops(),
            stops=self._stops,
        )
        self.spent = time.thread_time() - self._began
        starts = {key: _start(made[key], self.now) for key in keys}
        rest = f"starts are predicted for the first {PLACES} places of a ClusterQueue"
        return PredictedStarts(self.now, starts, rest)

    def _arrivals(self) -> tuple[float, Sequence[Workload]]:
        """Recent arrivals, and since when they are complete."""
        born = [each.metadata.creation_timestamp or self.now for each in self.recent]
        since = max(self.now - WINDOW, min([self.since, *born]))
        return since, [each for each, at in zip(self.recent, born, strict=True) if at >= since]

    def _stops(self) -> bool:
        spent = time.thread_time()
        self.spent = spent - self._began
        if spent - self._paused > _TURN:
            self._paused = spent
            time.sleep(_PAUSE)
        return self.cancelled or self.spent > BUDGET


def _start(made: Forecast, now: float) -> PredictedStart:
    p50, p90 = made.quantile(0.5), made.quantile(0.9)
    why = ""
    if p90 is None and made.runs < FEWEST:
        why = f"there was time for {counted(made.runs, 'simulation')} only, of {FEWEST} needed"
    elif p90 is None and made.unknown:
        jobs = counted(len(made.unknown), "job")
        why = f"no end is known for {jobs}: no time limit, and no similar job has finished"
    elif p90 is None:
        reasons = ", ".join(made.because)
        days = f"{HORIZON / 86400:.0f} days"
        why = f"it starts within {days} in {len(made.waits)} of {made.runs} simulations: {reasons}"
    return PredictedStart(
        None if p50 is None else now + p50, None if p90 is None else now + p90, why
    )
