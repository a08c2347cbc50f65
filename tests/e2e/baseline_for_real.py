"""Plays upstream's benchmark for real and simulated; prints both as JSON: `baseline_for_real.py`.

For real means: the embedded API server, its Job controller and its kubelets, and the whole manager,
with a client that creates batch Jobs. They live on a clock of their own, so that a busy machine
does not change what happens.

It is simulated twice: by itself, and once more with the instants at which jobs came, left and ended
for real. What is decided then is the same, so who loses a race is all that the first one lacks.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import attrs

from kueuelib.api.meta import Obj, ObjectKey, is_true
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.embedded import writing
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.simulator import driver
from kueuelib.simulator.cluster import cluster_of
from kueuelib.simulator.driver import Driver
from kueuelib.simulator.job_lifecycles import JobLifecycles, Timing
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.parsing import Faults
from kueuelib.simulator.readers.made_up import read_generator
from kueuelib.simulator.readers.source import TraceSource
from kueuelib.simulator.trace import TraceJob
from kueuelib.testing.storm.bundled import BundledManager
from kueuelib.testing.storm.environment import CONFIGURATION
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.world import World

GENERATOR = """\
cohorts:
- className: cohort
  count: 1
  queuesSets:
  - className: cq
    count: 3
    nominalQuota: 20
    borrowingLimit: 100
    reclaimWithinCohort: Any
    withinClusterQueue: LowerPriority
    workloadsSets:
    - {count: 21, creationIntervalMs: 100, workloads: [
        {className: small, runtimeMs: 200, priority: 50, request: 1}]}
    - {count: 6, creationIntervalMs: 500, workloads: [
        {className: medium, runtimeMs: 500, priority: 100, request: 5}]}
    - {count: 3, creationIntervalMs: 1200, workloads: [
        {className: large, runtimeMs: 1000, priority: 200, request: 20}]}
"""
"""Upstream's classes, intervals and quotas: one of its 5 cohorts with half of the queues, and 30 of
the 500 Workloads in each."""
SCALE = 500.0
"""Seconds for one second of the benchmark: against them what the cluster takes is nothing."""
JITTER = 0.1
"""Arrivals and run times differ by up to so much. Without it many events have the same time, and
milliseconds decide which one is first."""
SEED = 1
"""Of the seeds 1, 5, 6, 8 and 10, two play without a race (1 and 10). With the others a creation
meets a release within the milliseconds that a cluster takes, and their order decides."""
STOP_SECONDS = 30.0
"""Pods of evicted Jobs run on for so long: the grace period that Kubernetes gives them."""
SETTINGS = {**CONFIGURATION, "quotaReleaseStrategy": "OnTerminal"}
"""Quota is free when these pods are gone."""
SETTLE = 10.0
LIMIT = 20_000.0
WORKLOADS = "workloads.kueue.x-k8s.io"
PRIORITIES = "workloadpriorityclasses.kueue.x-k8s.io"
KUEUE = "kueue.x-k8s.io/v1beta2"
PLURALS = {
    "ResourceFlavor": "resourceflavors.kueue.x-k8s.io",
    "ClusterQueue": "clusterqueues.kueue.x-k8s.io",
    "LocalQueue": "localqueues.kueue.x-k8s.io",
}


@attrs.define
class Seen:
    """What happened, in seconds since the beginning.

    Attributes:
        admissions: times and jobs as `NAMESPACE/NAME`, each as often as it got quota.
        first: when each was admitted for the first time.
        created: when each got its Workload.
        gone: when each was stopped or had ended, so that its quota was free.
    """

    admissions: list[tuple[float, str]] = attrs.field(factory=list)
    first: dict[str, float] = attrs.field(factory=dict)
    created: dict[str, float] = attrs.field(factory=dict)
    gone: dict[str, list[float]] = attrs.field(factory=lambda: defaultdict(list))

    def admit(self, job: str, now: float) -> None:
        """A job got quota."""
        self.admissions.append((now, job))
        self.first.setdefault(job, now)


def work() -> tuple[list[Obj], list[TraceJob]]:
    """The queues, and the jobs in the order of their arrivals."""
    source, chance = TraceSource(), Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generator.yaml"
        path.write_text(GENERATOR)
        jobs = [
            attrs.evolve(
                job,
                arrival=round(job.arrival * SCALE * chance.uniform(1 - JITTER, 1 + JITTER), 3),
                run_seconds=round(job.run_seconds * SCALE * chance.uniform(1 - JITTER, 1 + JITTER)),
            )
            for job in read_generator(path, Faults(strict=True), source)
        ]
    return source.objects, sorted(jobs, key=lambda job: job.arrival)


# --- simulated


class Watching(Listener):
    """Takes the admissions of a simulation."""

    def __init__(self) -> None:
        self.seen = Seen()

    def reserved(self, live: Live, admit: Admit | None, now: float) -> None:
        """It got quota."""
        self.seen.admit(str(live.key), now)


def simulated(objects: list[Obj], jobs: list[TraceJob]) -> Seen:
    """What the simulator makes of the work."""
    watching = Watching()
    cluster = cluster_of(objects, engine_settings(parse_configuration(SETTINGS, "storm")))
    Driver(cluster, [watching], timing=Timing(STOP_SECONDS)).run(jobs)
    return watching.seen


def simulated_again(objects: list[Obj], jobs: list[TraceJob], happened: Seen) -> Seen:
    """The same with the instants of the real run, so that races end as they did."""

    class Told(JobLifecycles):
        def _later(self, at: float, live: Live, act: Callable[[Live], None]) -> None:
            # A turn begins with a start, ends with a stop, and nothing else is planned.
            gone = happened.gone[str(live.key)]
            super()._later(gone[(live.turn - 1) // 2], live, act)

    driver.JobLifecycles = Told  # type: ignore[misc]
    coming = (
        attrs.evolve(job, arrival=happened.created[f"{job.namespace}/{job.name}"]) for job in jobs
    )
    return simulated(objects, sorted(coming, key=lambda job: job.arrival))


# --- for real


def manifest(job: TraceJob) -> Obj:
    """The Job that a user would create."""
    (shape,) = job.pod_sets
    requests = dict(shape.requests)
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    labels = {
        "kueue.x-k8s.io/queue-name": job.queue,
        "kueue.x-k8s.io/priority-class": f"p{job.priority}",
    }
    template = {
        "metadata": {"annotations": {"kueuelib.dev/run-seconds": str(job.run_seconds)}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name, "namespace": job.namespace, "labels": labels},
        "spec": {"suspend": True, "template": template},
    }


class Cluster:
    """Sees every write that the server accepts."""

    def __init__(self, world: World, jobs: int) -> None:
        self.world = world
        self.seen = Seen()
        self.begun = 0.0
        self.left = jobs
        self.over = asyncio.Event()
        world.listeners.append(self.committed)

    def committed(self, commit: Commit) -> None:
        """Takes admissions and ends."""
        new, old = commit.new, commit.old
        if commit.resource != WORKLOADS or new is None:
            return
        name = f"{commit.namespace}/{new['metadata']['ownerReferences'][0]['name']}"
        now = self.world.now - self.begun
        has, had = (one is not None and is_true(one, "QuotaReserved") for one in (new, old))
        ends = is_true(new, "Finished") and not (old and is_true(old, "Finished"))
        self.seen.created.setdefault(name, now)
        if has and not had:
            self.seen.admit(name, now)
        if ends or (had and not has):
            self.seen.gone[name].append(now)
        if ends:
            self.left -= 1
            if not self.left:
                self.over.set()


async def real(world: World, objects: list[Obj], jobs: list[TraceJob]) -> Seen:
    """What becomes of the work in a cluster."""
    user = world.user()
    for name in sorted({job.namespace for job in jobs}):
        meta: dict[str, Any] = {"name": name}
        await user.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    for value in sorted({job.priority for job in jobs}):
        meta = {"name": f"p{value}"}
        made = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": meta}
        await user.create(PRIORITIES, {**made, "value": value})
    for obj in objects:
        await user.create(PLURALS[obj["kind"]], obj)
    # Objects have whole seconds; they have to begin when those of the simulation do.
    await world.sleep(SETTLE + 1.0 - world.loop.wall() % 1.0)
    cluster = Cluster(world, len(jobs))
    cluster.begun = world.now
    for job in jobs:
        await world.sleep(cluster.begun + job.arrival - world.now)
        await user.create("jobs.batch", manifest(job))
    async with asyncio.timeout(LIMIT):
        await cluster.over.wait()
    return cluster.seen


def count_uids() -> None:
    """UIDs decide between equals: let those of the server ascend, as the simulator's do."""
    numbers = itertools.count(1)
    writing.uuid = SimpleNamespace(uuid4=lambda: UUID(int=next(numbers)))  # type: ignore[attr-defined]


def main() -> None:
    """Plays both."""
    count_uids()
    objects, jobs = work()
    forecast = simulated(objects, jobs)
    world = World(program=BundledManager(SETTINGS))
    world.run(world.boot())
    happened = world.run(real(world, objects, jobs))
    assert not world.problems, world.problems
    assert not world.endings, world.endings
    arrivals = {str(ObjectKey(job.namespace, job.name)): job.arrival for job in jobs}
    answer = {
        "arrivals": arrivals,
        "simulated": attrs.asdict(forecast),
        "real": attrs.asdict(happened),
        "again": attrs.asdict(simulated_again(objects, jobs, happened)),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
