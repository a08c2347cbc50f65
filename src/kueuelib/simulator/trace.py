"""A trace: any number of jobs in the order of their arrivals, in bounded memory, to be read
repeatedly.
"""

from __future__ import annotations

import heapq
import math
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.patterns import MAIN_POD_SET
from kueuelib.api.quantity import Quantity, amount_of

CPU = "cpu"
MEMORY = "memory"
GPU = "nvidia.com/gpu"
GPU_MILLI = "kueuelib.dev/gpu-milli"
"""The resource for thousandths of a GPU, for traces with shared GPUs; extended resources have
no fractions.
"""

COMPLETED = "completed"
FAILED = "failed"
KILLED = "killed"
END_STATES = (COMPLETED, FAILED, KILLED)


@attrs.frozen
class PodShape:
    """Identical pods.

    Attributes:
        count: how many.
        requests: what one pod asks for: resource and Kubernetes quantity, sorted.
        name: of the pod set.
        min_count: the fewest pods worth starting; None: all of them.
        pod_set: the raw pod set as JSON, if it comes from a manifest; for the scheduler it replaces
            the others.
    """

    count: int = 1
    requests: tuple[tuple[str, str], ...] = ()
    name: str = MAIN_POD_SET
    min_count: int | None = None
    pod_set: bytes = b""

    def raw(self) -> Obj:
        """The pod set as a Workload has it."""
        if self.pod_set:
            given: Obj = orjson.loads(self.pod_set)
            return given
        container = {"name": "c", "image": "-", "resources": {"requests": dict(self.requests)}}
        template = {"spec": {"containers": [container]}}
        pod_set: Obj = {"name": self.name, "count": self.count, "template": template}
        if self.min_count is not None:
            pod_set["minCount"] = self.min_count
        return pod_set


def pods(
    requests: Mapping[str, int | Fraction | str], count: int = 1, min_count: int | None = None
) -> PodShape:
    """Pods with requests: whole numbers, fractions rounded up to thousandths, or quantities.

    Amounts of 0 are left out.
    """
    texts = ((resource, _text(amount)) for resource, amount in requests.items())
    asked = tuple(sorted((resource, text) for resource, text in texts if text != "0"))
    return PodShape(count, asked, min_count=min_count)


def _text(amount: int | Fraction | str) -> str:
    if isinstance(amount, str):
        return amount
    if amount == int(amount):
        return str(int(amount))
    return f"{-(-amount * 1000 // 1)}m"


@attrs.frozen
class TraceJob:
    """One line of a trace. Times are seconds on the trace's own clock.

    Attributes:
        name: unique in its namespace.
        arrival: when it is submitted.
        run_seconds: its run time if all its pods run and nothing stops it.
        pod_sets: what it asks for.
        queue: its LocalQueue.
        namespace: of the job and its LocalQueue.
        priority: higher goes first.
        end: how it ends: `completed`, `failed` or `killed`; it runs for `run_seconds` either way.
        after: the name of the job that has to end before this one is submitted; empty for none.
        think_seconds: the shortest delay between the end of that job and the submission of this
            one.
        checkpoint_seconds: how often it saves its work; None: never, it restarts from scratch.
        limit_seconds: how long it may be admitted in total; None: without a limit.
        requested_seconds: the run time that its user expected, for the output only.
        user: who submitted it, for `--queue-by`.
        group: the group of the user, for `--queue-by`.
        vc: its virtual cluster, for `--queue-by`.
        workload: its raw Workload as JSON, with its own times and perhaps quota.
        ran_seconds: how long it has already run on arrival, if its Workload is admitted.
    """

    name: str
    arrival: float
    run_seconds: float
    pod_sets: tuple[PodShape, ...]
    queue: str = ""
    namespace: str = "default"
    priority: int = 0
    end: str = COMPLETED
    after: str = ""
    think_seconds: float = 0.0
    checkpoint_seconds: float | None = None
    limit_seconds: int | None = None
    requested_seconds: float | None = None
    user: str = ""
    group: str = ""
    vc: str = ""
    workload: bytes = b""
    ran_seconds: float = 0.0

    @property
    def shape(self) -> str:
        """Its requests as a text; jobs with the same text are counted together."""
        return shape_of(self.pod_sets)


def shape_of(pod_sets: Iterable[PodShape]) -> str:
    """The text of a shape, for example `4x(cpu=2,memory=1Gi)`."""
    return "+".join(
        f"{shape.count}x({','.join(f'{name}={text}' for name, text in shape.requests)})"
        for shape in pod_sets
    )


CHUNK = 50_000
"""The number of jobs in memory while a trace is sorted."""
SIZES = SMALL, MEDIUM, LARGE, ALL = "small", "medium", "large", "all"
"""Classes of jobs; `ALL` if all jobs of a trace have one size."""
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

    def add(self, job: TraceJob) -> None:
        """Counts a job."""
        self.jobs += 1
        for resource, amount in requested(job).items():
            work = self.work.get(resource, 0.0)
            self.work[resource] = work + amount * job.run_seconds
            self.largest[resource] = max(self.largest.get(resource, 0), amount)


def requested(job: TraceJob) -> Mapping[str, int]:
    """The requests of all pods of a job, in the units of the scheduler.

    Jobs with a pod template are skipped, because a manifest has its own queues.
    """
    return _requested(job.pod_sets)


@lru_cache(maxsize=4096)
def _requested(pod_sets: tuple[PodShape, ...]) -> Mapping[str, int]:
    totals: dict[str, int] = {}
    for shape in pod_sets:
        for resource, text in shape.requests:
            totals[resource] = totals.get(resource, 0) + shape.count * amount_of(
                resource, Quantity.parse(text)
            )
    return totals


@attrs.frozen
class Sizes:
    """Which jobs are small, medium and large.

    The size of a job is its dominant share: the largest part of the nominal quota of any resource
    that it asks for. The classes are thirds of the range of sizes on a logarithmic scale: if the
    smallest job is an eighth of the largest one, small jobs are at most a quarter of it.

    Attributes:
        quota: nominal quota by resource, in the units of the scheduler.
        small: the largest share of a small job.
        medium: the largest share of a medium one; equals `small` if all jobs have one size.
    """

    quota: Mapping[str, int] = attrs.field(factory=dict)
    small: float = 0.0
    medium: float = 0.0

    def of(self, job: TraceJob) -> str:
        """The class of a job: one of `SIZES`."""
        if self.small == self.medium:
            return ALL
        size = _share(job, self.quota)
        return SMALL if size <= self.small else MEDIUM if size <= self.medium else LARGE


def _share(job: TraceJob, quota: Mapping[str, int]) -> float:
    asked = requested(job).items()
    return max((amount / quota[name] for name, amount in asked if quota.get(name)), default=0.0)


def sizes_of(trace: Iterable[TraceJob], quota: Mapping[str, int]) -> Sizes:
    """Which jobs of a trace are large.

    Args:
        trace: the jobs; read once.
        quota: nominal quota by resource, in the units of the scheduler.
    """
    least, most = math.inf, 0.0
    for job in trace:
        if size := _share(job, quota):
            least, most = min(least, size), max(most, size)
    step = (most / least) ** (1 / 3)
    return Sizes(quota, least * step, most / step) if step > 1 else Sizes()


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

    def __init__(self, jobs: Iterable[TraceJob]) -> None:
        self.demand: dict[ObjectKey, Demand] = {}
        self.awaited: set[ObjectKey] = set()
        self.first: float | None = None
        self.last: float | None = None
        self.count = 0
        self._folder = tempfile.TemporaryDirectory(prefix="kueuelib-trace-")
        self._files: list[Path] = []
        self._rest: list[TraceJob] = []
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

    def _note(self, job: TraceJob) -> None:
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

    def __iter__(self) -> Iterator[TraceJob]:
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


def _order(job: TraceJob) -> float:
    return job.arrival


def _stored(path: Path) -> Iterator[TraceJob]:
    with path.open("rb") as file:
        while True:
            try:
                batch = pickle.load(file)  # noqa: S301 - written by this process, in its own folder
            except EOFError:
                return
            yield from batch
