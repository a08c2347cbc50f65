"""The usage of ClusterQueues over time, in a bounded number of equal intervals.

The integrals of all levels are sampled at the borders of intervals, so that every interval has an
exact mean. When there are too many intervals, they are merged in pairs: memory does not grow with
time.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping

import attrs

from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.simulator.figures import AmountOverTime, jain, shown
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.meter import Meter

FEWEST = 160
"""The fewest intervals, for a trace that ends with its last arrival; there are at most twice as
many.
"""

Values = tuple[float, ...]


@attrs.frozen
class Use:
    """The use of one resource of one flavor: means by interval, in the units that people use.

    Attributes:
        used: the usage.
        borrowed: the usage beyond nominal quota.
        nominal: the nominal quota.
    """

    used: Values
    borrowed: Values
    nominal: Values


@attrs.frozen
class QueueHistory:
    """One ClusterQueue over time: means by interval.

    Attributes:
        waiting: jobs without quota.
        holding: jobs with quota.
        use: by flavor and resource.
    """

    waiting: Values
    holding: Values
    use: Mapping[FlavorResource, Use]


@attrs.frozen(eq=False)
class ClusterHistory:
    """All ClusterQueues over time.

    Attributes:
        borders: of the intervals, in seconds on the trace's clock; one more than intervals.
        queues: by ClusterQueue.
        shared: by flavor and resource, the cohorts' own quota: means by interval.
    """

    borders: Values
    queues: Mapping[str, QueueHistory]
    shared: Mapping[FlavorResource, Values]

    def waiting(self) -> Values:
        """The jobs without quota of all ClusterQueues together."""
        return self._sum(queue.waiting for queue in self.queues.values())

    def total(self) -> dict[FlavorResource, Use]:
        """The use of all ClusterQueues together; nominal quota includes that of their cohorts."""
        totals = {}
        for pair in sorted({pair for queue in self.queues.values() for pair in queue.use}):
            uses = [queue.use[pair] for queue in self.queues.values() if pair in queue.use]
            nominal = [one.nominal for one in uses]
            if pair in self.shared:
                nominal.append(self.shared[pair])
            totals[pair] = Use(
                self._sum(one.used for one in uses),
                self._sum(one.borrowed for one in uses),
                self._sum(nominal),
            )
        return totals

    def jain(self) -> tuple[float | None, ...]:
        """By interval, Jain's index of the ClusterQueues that had jobs in it; None without any.

        It compares usage relative to nominal quota, for the resource that each ClusterQueue uses
        most.
        """
        return tuple(
            jain(
                share
                for queue in self.queues.values()
                if queue.waiting[at] or queue.holding[at]
                if (share := _share(queue, at)) is not None
            )
            for at in range(len(self.borders) - 1)
        )

    def _sum(self, series: Iterable[Values]) -> Values:
        columns = zip(*series, strict=True)
        return tuple(map(sum, columns)) or (0.0,) * (len(self.borders) - 1)


def _share(queue: QueueHistory, at: int) -> float | None:
    used: dict[str, float] = {}
    nominal: dict[str, float] = {}
    for pair, use in queue.use.items():
        used[pair.resource] = used.get(pair.resource, 0.0) + use.used[at]
        nominal[pair.resource] = nominal.get(pair.resource, 0.0) + use.nominal[at]
    return max((used[name] / nominal[name] for name in used if nominal[name]), default=None)


@attrs.define
class _Columns:
    """The integrals of a level at the borders."""

    unit: str
    used: array[float]
    borrowed: array[float]
    owned: array[float]

    def all(self) -> tuple[array[float], ...]:
        return self.used, self.borrowed, self.owned


class Historian(Listener):
    """Keeps the history of a simulation.

    Args:
        meter: the source; it must receive every event first.
        span: the shortest possible duration of the trace, in seconds.
    """

    def __init__(self, meter: Meter, span: float) -> None:
        self._meter = meter
        self._step = 2.0 ** math.floor(math.log2(span / FEWEST)) if span > 0 else 1.0
        self._start: float | None = None
        self._end = 0.0
        self._count = 0
        self._columns: dict[tuple[str, FlavorResource | str], _Columns] = {}

    def arrived(self, live: Live, now: float) -> None:
        """Begins with the first arrival."""
        del live
        if self._start is None:
            self._start = self._end = now

    def rested(self, now: float, until: float) -> None:
        """Samples the borders that pass before anything changes again."""
        if self._start is None:
            return
        if until == math.inf:
            if now > self._end:
                self._sample(now)
            return
        while (border := self._start + (self._count + 1) * self._step) <= until:
            self._sample(border)
            if self._count == 2 * FEWEST:
                self._halve()

    def _halve(self) -> None:
        for columns in self._columns.values():
            for column in columns.all():
                column[:] = column[1::2]
        self._count //= 2
        self._step *= 2

    def _sample(self, now: float) -> None:
        for key, unit, level in self._levels():
            columns = self._columns.get(key)
            if columns is None:
                empty = [0.0] * self._count
                columns = _Columns(unit, *(array("d", empty) for _ in range(3)))
                self._columns[key] = columns
            for column, value in zip(columns.all(), level.until(now), strict=True):
                column.append(value)
        self._count += 1
        self._end = now

    def _levels(self) -> Iterator[tuple[tuple[str, FlavorResource | str], str, AmountOverTime]]:
        for name, queue in self._meter.queues.items():
            yield (name, "waiting"), "", queue.waiting
            yield (name, "holding"), "", queue.holding
            for pair, level in queue.used.items():
                yield (name, pair), pair.resource, level
        for pair, level in self._meter.shared.items():
            yield ("", pair), pair.resource, level

    # --- results

    def history(self) -> ClusterHistory:
        """What was seen; call it once the simulation is over."""
        start = self._start or 0.0
        regular = tuple(start + at * self._step for at in range(self._count))
        borders = (*regular, self._end)
        queues = {}
        for name in self._meter.queues:
            mine = {kind: columns for (of, kind), columns in self._columns.items() if of == name}
            use = {
                pair: Use(*(_means(column, borders, columns.unit) for column in columns.all()))
                for pair, columns in mine.items()
                if isinstance(pair, FlavorResource)
            }
            waiting, holding = (
                _means(mine[kind].used, borders, "") if kind in mine else ()
                for kind in ("waiting", "holding")
            )
            queues[name] = QueueHistory(waiting, holding, use)
        shared = {
            pair: _means(columns.owned, borders, columns.unit)
            for (of, pair), columns in self._columns.items()
            if not of and isinstance(pair, FlavorResource)
        }
        return ClusterHistory(borders, queues, shared)


def _means(integral: array[float], borders: Values, unit: str) -> Values:
    means, before = [], 0.0
    for at, value in enumerate(integral):
        means.append(shown(unit, (value - before) / (borders[at + 1] - borders[at])))
        before = value
    return tuple(means)
