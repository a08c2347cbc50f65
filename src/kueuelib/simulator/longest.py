"""The jobs that waited longest, and preemptions by ClusterQueue."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

import attrs

from kueuelib.api.meta import Obj
from kueuelib.scheduler.decide.preemption.victims import Preemption
from kueuelib.simulator.listener import Listener
from kueuelib.simulator.live import Live

KEPT = 20
"""The number of jobs that are kept."""
MOST_TURNS = 200
"""The maximum number of runs of a job that are kept; later ones are not."""


@attrs.define
class Longest(Listener):
    """Keeps the jobs with the longest waits until their first start.

    Jobs that arrived with quota are left out, because their wait is unknown.
    """

    _since: dict[str, float] = attrs.field(factory=dict, init=False)
    _ran: dict[str, list[tuple[float, float]]] = attrs.field(factory=dict, init=False)
    _heap: list[tuple[float, int, Obj]] = attrs.field(factory=list, init=False)
    _seen: int = attrs.field(default=0, init=False)

    def started(self, live: Live, now: float) -> None:
        """Records the start of a run."""
        self._since[live.workload.metadata.uid] = now

    def released(self, live: Live, now: float) -> None:
        """Records the run, if there was one."""
        since = self._since.pop(live.workload.metadata.uid, None)
        if since is not None:
            turns = self._ran.setdefault(live.workload.metadata.uid, [])
            if len(turns) < MOST_TURNS:
                turns.append((since, now))

    def ended(self, live: Live, end: str, now: float) -> None:
        """Keeps the job if it waited long."""
        self._keep(live, end, now, now)

    def unfinished(self, lives: Iterable[Live], now: float) -> None:
        """Adds the jobs that have not ended, with their waits so far."""
        for live in lives:
            self.released(live, now)
            self._keep(live, "", None, now)

    def _keep(self, live: Live, end: str, ended: float | None, now: float) -> None:
        ran = self._ran.pop(live.workload.metadata.uid, [])
        start = live.first_start
        wait = (now if start is None else start) - live.arrived
        least = self._heap[0][0] if len(self._heap) >= KEPT else 0.0
        if live.given or wait <= least:
            return
        self._seen += 1
        entry: Obj = {
            "job": str(live.key),
            "cluster_queue": live.cluster_queue,
            "priority": live.job.priority,
            "shape": live.job.shape,
            "wait_seconds": wait,
            "arrived": live.arrived,
            "started": start,
            "ended": ended,
            "end": end,
            "preemptions": live.preemptions,
            "ran": ran,
        }
        heapq.heappush(self._heap, (wait, -self._seen, entry))
        if len(self._heap) > KEPT:
            heapq.heappop(self._heap)

    def figures(self) -> list[Obj]:
        """The jobs, the longest wait first."""
        return [entry for _, _, entry in sorted(self._heap, key=lambda one: (-one[0], -one[1]))]


@attrs.define
class Rivals(Listener):
    """Counts preemptions by the ClusterQueues on both sides."""

    _count: Counter[tuple[str, str]] = attrs.field(factory=Counter, init=False)

    def preempted(self, live: Live, preemption: Preemption, now: float) -> None:
        """Counts a preemption."""
        del now
        self._count[preemption.cluster_queue, live.cluster_queue] += 1

    def figures(self) -> Obj:
        """By ClusterQueue of the preemptors, the number of victims by their ClusterQueue."""
        by_preemptor: Obj = {}
        for (by, whom), count in sorted(self._count.items()):
            by_preemptor.setdefault(by, {})[whom] = count
        return by_preemptor
