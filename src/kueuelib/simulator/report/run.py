"""One run in a report."""

from __future__ import annotations

import attrs

from kueuelib.api.meta import Obj
from kueuelib.simulator.history import History, Values

KINDS = 8
"""The number of runs with different styles."""


@attrs.frozen(eq=False)
class Run:
    """One run of a simulation, shown next to others.

    Attributes:
        name: of the run.
        figures: its part of `result.json`.
        history: its ClusterQueues over time.
        waits: the waits of all jobs that started, ascending, each with how many waited no longer.
        kind: the class of its lines in pictures.
    """

    name: str
    figures: Obj
    history: History
    waits: tuple[tuple[float, int], ...]
    kind: str = ""

    @property
    def borders(self) -> Values:
        """The borders of the intervals of its history, in seconds since the first arrival."""
        edges = self.history.borders
        return tuple(border - edges[0] for border in edges)
