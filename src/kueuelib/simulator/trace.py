"""A trace: any number of jobs in the order of their arrivals, in bounded memory, to be read
repeatedly.
"""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.simulator.work import Job

CHUNK = 50_000
"""The number of jobs in memory while a trace is sorted."""
_BATCH = 500
"""The number of jobs that are read from a file at a time."""


@attrs.define
class Demand:
    """The total demand of the jobs of one queue.

    Attributes:
        jobs: their number.
        work: by resource, the sum of amounts times run times, in the units of the scheduler.
        largest: by resource, the most that one job asks for.
    """

    jobs: int = 0
    work: dict[str, float] = attrs.field(factory=dict)
    largest: dict[str, int] = attrs.field(factory=dict)

    def add(self, job: Job) -> None:
        """Counts a job."""
        self.jobs += 1
        for resource, amount in requested(job).items():
            work = self.work.get(resource, 0.0)
            self.work[resource] = work + amount * job.run_seconds
            self.largest[resource] = max(self.largest.get(resource, 0), amount)


def requested(job: Job) -> dict[str, int]:
    """The requests of all pods of a job, in the units of the scheduler.

    Jobs with a pod template are skipped, because a manifest has its own queues.
    """
    totals: dict[str, int] = {}
    for shape in job.pod_sets:
        for resource, text in shape.requests:
            totals[resource] = totals.get(resource, 0) + shape.count * amount_of(
                resource, Quantity.parse(text)
            )
    return totals


class Trace:
    """Jobs, sorted when the trace is made; iterate as often as needed.

    It is a context manager: leaving it deletes the files that it keeps.

    Args:
        jobs: in any order; read once.

    Attributes:
        demand: by namespace and queue.
        awaited: the jobs that others follow.
        first: the first arrival; None without jobs.
        last: the last one.
        count: how many jobs there are.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.demand: dict[ObjectKey, Demand] = {}
        self.awaited: set[ObjectKey] = set()
        self.first: float | None = None
        self.last: float | None = None
        self.count = 0
        self._folder = tempfile.TemporaryDirectory(prefix="kueuelib-trace-")
        self._files: list[Path] = []
        self._rest: list[Job] = []
        try:
            for job in jobs:
                self._note(job)
                self._rest.append(job)
                if len(self._rest) >= CHUNK:
                    self._spill()
        except BaseException:
            self._folder.cleanup()
            raise
        self._rest.sort(key=_order)

    def _note(self, job: Job) -> None:
        key = ObjectKey(job.namespace, job.queue)
        if key not in self.demand:
            self.demand[key] = Demand()
        self.demand[key].add(job)
        if job.after:
            self.awaited.add(ObjectKey(job.namespace, job.after))
        self.first = job.arrival if self.first is None else min(self.first, job.arrival)
        self.last = job.arrival if self.last is None else max(self.last, job.arrival)
        self.count += 1

    def _spill(self) -> None:
        self._rest.sort(key=_order)
        path = Path(self._folder.name) / str(len(self._files))
        with path.open("wb") as file:
            for start in range(0, len(self._rest), _BATCH):
                pickle.dump(self._rest[start : start + _BATCH], file)
        self._files.append(path)
        self._rest = []

    def __iter__(self) -> Iterator[Job]:
        """The jobs by arrival; those with equal arrivals in the order they were read."""
        return heapq.merge(*map(_stored, self._files), self._rest, key=_order)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()


def _order(job: Job) -> float:
    return job.arrival


def _stored(path: Path) -> Iterator[Job]:
    with path.open("rb") as file:
        while True:
            try:
                batch = pickle.load(file)  # noqa: S301 - written by this process, in its own folder
            except EOFError:
                return
            yield from batch
