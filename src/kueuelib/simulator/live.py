"""A job between its arrival and its end, and what a simulation reports of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import attrs
import orjson

from kueuelib.api.codec import decode
from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj, ObjectKey, ObjectMeta, format_time
from kueuelib.api.workload import WorkloadSpec, WorkloadStatus
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.simulator.cluster import ClusterSetup
from kueuelib.simulator.trace import PodShape, TraceJob


@attrs.define(eq=False)
class Live:
    """A job that has arrived and not ended.

    Attributes:
        job: its line of the trace.
        raw: its Workload as the API server would have it.
        workload: the same as a typed value.
        arrived: when it was submitted.
        given: whether it arrived with quota, so that its wait is unknown.
        turn: how often it was started or stopped; events planned for an earlier turn are void.
        started: since when it has been running; None if it is not.
        first_start: the time of its first start.
        rate: the part of its pods that run, and so the speed of its work.
        saved: seconds of its run time that need not be repeated.
        lost: seconds of work that had to be repeated.
        preemptions: how often it made room for others.
        stopping: whether it was evicted and still holds quota.
        holds: whether it holds quota.
        asked: the checks that were called since it got quota.
        usage: the quota that it holds, or held last.
        cluster_queue: where it holds quota, or held it last.
        key: of its Workload.
    """

    job: TraceJob
    raw: Obj
    workload: Workload
    arrived: float
    given: bool = False
    turn: int = 0
    started: float | None = None
    first_start: float | None = None
    rate: float = 1.0
    saved: float = 0.0
    lost: float = 0.0
    preemptions: int = 0
    stopping: bool = False
    holds: bool = False
    asked: set[str] = attrs.field(factory=set)
    usage: Amounts = attrs.field(factory=dict)
    cluster_queue: str = ""
    key: ObjectKey = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.key = self.workload.key

    def set_raw(self, raw: Obj) -> None:
        """Sets a new state of the Workload."""
        status = decode(WorkloadStatus, raw["status"])
        spec = self.workload.spec
        if raw["spec"] is not self.raw["spec"]:
            spec = decode(WorkloadSpec, raw["spec"])
        self.raw = raw
        self.workload = Workload(metadata=self.workload.metadata, spec=spec, status=status)

    def start(self, now: float) -> float:
        """Begins to run; returns the seconds until it is done."""
        self.turn += 1
        self.started = now
        if self.first_start is None:
            self.first_start = now
        self.rate = self._rate()
        return (self.job.run_seconds - self.saved) / self.rate

    def stop(self, now: float) -> None:
        """Stops before it is done: unsaved work is lost."""
        self.turn += 1
        if self.started is None:
            return
        worked = (now - self.started) * self.rate
        every = self.job.checkpoint_seconds
        kept = 0.0
        if every:
            # Work counts from its beginning, so that a later turn saves at the same points.
            kept = max(0.0, (self.saved + worked) // every * every - self.saved)
        self.saved += kept
        self.lost += worked - kept
        self.started = None

    def _rate(self) -> float:
        """The smallest running part of the pods of any pod set."""
        admission = self.workload.status.admission
        counts = (
            {} if admission is None else {a.name: a.count for a in admission.pod_set_assignments}
        )
        parts = [
            running / shape.count
            for shape in self.job.pod_sets
            if shape.count and (running := counts.get(shape.name)) is not None
        ]
        return min(parts, default=1.0) or 1.0


def arriving(job: TraceJob, number: int, now: float) -> Live:
    """The `Live` of an arriving job.

    Args:
        job: the job.
        number: its place in the order of arrivals, for equal times.
        now: the time of its creation.

    Raises:
        InvalidObject: the job brings a Workload that cannot be read.
    """
    meta: Obj = {"name": job.name, "namespace": job.namespace, "uid": f"{number:012d}"}
    meta |= {"creationTimestamp": format_time(now), "generation": 1}
    if job.workload:
        given = orjson.loads(job.workload)
        raw = {"status": {}, **given, "metadata": {**meta, **given["metadata"]}}
        return Live(job, raw, decode(Workload, raw), now, saved=job.ran_seconds)
    raw_spec, spec = _specs(job.pod_sets, job.queue, job.priority, job.limit_seconds)
    raw = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, "metadata": meta}
    raw |= {"spec": raw_spec, "status": {}}
    typed = ObjectMeta(
        name=job.name,
        namespace=job.namespace,
        uid=meta["uid"],
        creation_timestamp=float(int(now)),
        generation=1,
    )
    return Live(job, raw, Workload(typed, spec, WorkloadStatus()), now)


@lru_cache(maxsize=4096)
def _specs(
    pod_sets: tuple[PodShape, ...], queue: str, priority: int, limit_seconds: int | None
) -> tuple[Obj, WorkloadSpec]:
    """The spec of a Workload, raw and typed; jobs that ask for the same share it."""
    raw: Obj = {"queueName": queue, "priority": priority}
    raw["podSets"] = [shape.raw() for shape in pod_sets]
    if limit_seconds is not None:
        raw["maximumExecutionTimeSeconds"] = limit_seconds
    return raw, decode(WorkloadSpec, raw)


# ---- what a simulation reports while it runs -----------------------------------------------------


class Listener:
    """Hears of everything that happens; a subclass takes what it needs.

    All instants are seconds on the trace's clock, and never go back.
    """

    def arrived(self, live: Live, now: float) -> None:
        """A job was submitted."""

    def reserved(self, live: Live, admit: Admit | None, now: float) -> None:
        """A job got quota: `live.usage` in `live.cluster_queue`.

        `admit` is the decision; None for a job that had its quota before the simulation began.
        """

    def started(self, live: Live, now: float) -> None:
        """A job was admitted, and runs."""

    def preempted(self, live: Live, preemption: PendingPreemption, now: float) -> None:
        """A job has to leave so that another one gets quota."""

    def released(self, live: Live, now: float) -> None:
        """A job gives back `live.usage`: it ended, or was stopped and waits again."""

    def ended(self, live: Live, end: str, now: float) -> None:
        """A job is over; `end` says how."""

    def cluster_changed(self, cluster: ClusterSetup, now: float) -> None:
        """The queues and flavors are others from now on."""

    def rested(self, now: float, until: float) -> None:
        """Nothing is left to do at `now`; nothing happens before `until`."""


class Audience(Listener):
    """Several listeners as one: each hears what it takes, in their order."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        members = tuple(listeners)
        for name, nothing in vars(Listener).items():
            if not name.startswith("_"):
                hear = [getattr(one, name) for one in members]
                takers = [one for one in hear if getattr(one, "__func__", None) is not nothing]
                setattr(self, name, partial(_call_each, takers))


def _call_each(takers: Iterable[Callable[..., None]], *what: Any) -> None:
    for take in takers:
        take(*what)
