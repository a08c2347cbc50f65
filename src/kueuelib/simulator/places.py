"""How the free room of nodes is spread over time (KEP-2724): `places.csv` and its figures."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from itertools import accumulate
from typing import IO

import attrs

from kueuelib.api.meta import Obj
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.topology.demand import POD_SLOTS
from kueuelib.scheduler.topology.tree import FlavorNodes
from kueuelib.simulator.figures import shown
from kueuelib.simulator.live import Listener

PLACE_COLUMNS = ("time", "flavor", "level", "resource", "capacity", "free", "scattered", "largest")


@attrs.frozen
class FreeRoom:
    """What is free of a resource in the domains of a level.

    Attributes:
        level: its label key.
        resource: the resource.
        capacity: what all domains have.
        free: what is free of that.
        scattered: what of that is free in domains that are partly used.
        largest: what is free in the domain where most is.
    """

    level: str
    resource: str
    capacity: int
    free: int
    scattered: int
    largest: int

    @property
    def fragmentation(self) -> float:
        """The part of the free amount that lies in domains that are partly used; 0 to 1."""
        return self.scattered / self.free if self.free else 0.0


def free_rooms(nodes: FlavorNodes) -> Iterator[FreeRoom]:
    """What is free of each resource but pods, level by level.

    Args:
        nodes: of one flavor.
    """
    tree = nodes.tree
    for resource in sorted(nodes.capacity.keys() - {POD_SLOTS}):
        has = [max(0, amount) for amount in nodes.capacity[resource]]
        free = [max(0, amount) for amount in nodes.free[resource]]
        for level in range(len(tree.levels) - 1, -1, -1):
            if level < len(tree.levels) - 1:
                has, free = (_sums(column, tree.children[level]) for column in (has, free))
            partly = sum(left for all_, left in zip(has, free, strict=True) if left < all_)
            yield FreeRoom(
                tree.levels[level], resource, sum(has), sum(free), partly, max(free, default=0)
            )


def _sums(column: list[int], spans: list[tuple[int, int]]) -> list[int]:
    total = [0, *accumulate(column)]
    return [total[end] - total[first] for first, end in spans]


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
