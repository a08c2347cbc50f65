"""How the free room of nodes is spread over time (KEP-2724): `places.csv` and its figures."""

from __future__ import annotations

import csv
import math
from typing import IO

from kueuelib.api.meta import Obj
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.topology.room import free_rooms
from kueuelib.simulator.figures import shown
from kueuelib.simulator.live import Listener

PLACE_COLUMNS = ("time", "flavor", "level", "resource", "capacity", "free", "scattered", "largest")


class PlaceRows(Listener):
    """Writes the free room of nodes at most once per interval, and its means.

    Args:
        file: the open file.
        every: the interval in seconds.
    """

    def __init__(self, file: IO[str], every: float) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(PLACE_COLUMNS)
        self._every = every
        self._sums: dict[tuple[str, str, str], float] = {}
        self._seconds = 0.0
        self.engine: Engine | None = None

    def rested(self, now: float, until: float) -> None:
        """Writes the state, unless more may change in the same interval."""
        assert self.engine is not None, "it is set before the run"
        if not self.engine.cache.nodes.flavors:
            return
        if until < math.inf and until // self._every == now // self._every:
            return
        seconds = 0.0 if until == math.inf else max(until - now, self._every)
        self._seconds += seconds
        for flavor, nodes in sorted(self.engine.cache.nodes.freeze().items()):
            for one in free_rooms(nodes):
                amounts = (one.capacity, one.free, one.scattered, one.largest)
                texts = (f"{shown(one.resource, amount):.10g}" for amount in amounts)
                self._rows.writerow((f"{now:.10g}", flavor, one.level, one.resource, *texts))
                key = flavor, one.level, one.resource
                self._sums[key] = self._sums.get(key, 0.0) + one.fragmentation * seconds

    def figures(self) -> Obj:
        """The mean fragmentation by flavor, level and resource; empty without topologies."""
        means: Obj = {}
        for (flavor, level, resource), area in sorted(self._sums.items()):
            mean = area / self._seconds if self._seconds else 0.0
            means.setdefault(flavor, {}).setdefault(level, {})[resource] = mean
        return means
