"""Days of a busy cluster in virtual time: `python tests/soak/soak.py --days 30` prints a table.

Two managers queue the Jobs of users on a few nodes. Jobs arrive, are edited and deleted; queues
come and go; nodes fail; a leader is upgraded or killed; the API server loses its history. Each day
is judged when it ends: what is kept must not grow with what has passed, counters have to count what
was stored, and the laws about the memory of managers hold.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import attrs

from kueuelib.embedded.cluster.contract import RUN_SECONDS, SIMULATED
from kueuelib.errors import AlreadyExists, Conflict, Invalid, NotFound
from kueuelib.testing.storm.bundled import BundledManager
from kueuelib.testing.storm.environment import CONFIGURATION
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.inside.leaks import parts_in
from kueuelib.testing.storm.laws.reading import admitted, finished, holds, reserving
from kueuelib.testing.storm.world import World

COLLECT = gc.collect  # a world replaces it in the module
HOUR = 3600.0
KEPT = 600.0
"""Seconds for which finished Workloads are kept."""
JOBS, PODS, NODES = "jobs.batch", "pods", "nodes"
QUEUE = "kueue.x-k8s.io/queue-name"
WORKLOADS = "workloads.kueue.x-k8s.io"
CLUSTER_QUEUES = "clusterqueues.kueue.x-k8s.io"
LOCAL_QUEUES = "localqueues.kueue.x-k8s.io"
NAMESPACE = "default"
SETTINGS = {
    **CONFIGURATION,
    "leaderElection": {  # a day has 20 times as many renewals with the usual 15 seconds
        "leaderElect": True,
        "leaseDuration": "300s",
        "renewDeadline": "200s",
        "retryPeriod": "60s",
    },
    "objectRetentionPolicies": {"workloads": {"afterFinished": f"{KEPT:g}s"}},
}
COUNTED = {
    "kueue_quota_reserved_workloads_total": reserving,
    "kueue_admitted_workloads_total": admitted,
    "kueue_evicted_workloads_total": lambda obj: holds(obj, "Evicted"),
    "kueue_finished_workloads_total": finished,
}
"""What each counter counts: a Workload of which this becomes true."""
FAULTS = ("kueuelib_orphaned_assumptions_total", "kueuelib_orphaned_evictions_total")
"""Counters that stay zero."""


@attrs.frozen
class Day:
    """What is kept when a day ends.

    Attributes:
        number: of the day, from 1.
        finished: Workloads that have finished since the beginning.
        objects: stored objects of each resource.
        series: series of metrics, of each manager.
        parts: objects and containers in the memory of each manager.
        entries: entries of all its containers.
        blocks: allocated blocks of the whole process, which also has the API server.
        memory: bytes of the whole process.
        wrong: sentences about laws that were broken.
    """

    number: int
    finished: int
    objects: dict[str, int]
    series: dict[str, int]
    parts: dict[str, int]
    entries: dict[str, int]
    blocks: int
    memory: int
    wrong: list[str]


class Soak:
    """One cluster for many days.

    Args:
        jobs: how many arrive in an hour.
        seed: of everything.
    """

    def __init__(self, jobs: int = 12, seed: int = 1) -> None:
        self.world = World(seed, program=BundledManager(SETTINGS))
        self.counters: Counter[str] = Counter()
        self._jobs = jobs
        self._chance = random.Random(seed)
        self._became: Counter[str] = Counter()
        self._read: dict[int, Counter[str]] = {}
        self._hour = 0

    async def days(self, count: int, hours: int = 24) -> AsyncIterator[Day]:
        """Let days pass, and say what is kept after each.

        Args:
            count: of days.
            hours: of each.
        """
        world = self.world
        await world.boot("manager-1", "manager-2")
        world.listeners.append(self._note)
        for resource, obj in _first_objects():
            await world.user().create(resource, obj)
        for number in range(1, count + 1):
            for _ in range(hours):
                await self._play_hour()
                COLLECT()
            yield self._judge(number)

    # ---- an hour

    async def _play_hour(self) -> None:
        hour, self._hour = self._hour, self._hour + 1
        world, end = self.world, self.world.now + HOUR
        acts = [
            (HOUR * number / self._jobs, self._submit(hour, number)) for number in range(self._jobs)
        ]
        acts.append((HOUR * 0.1, self._remove_old()))
        acts.append((HOUR * 0.35, self._edit()))
        acts.append((HOUR * 0.6, self._resize(hour)))
        if hour % 4 == 0:
            acts.append((HOUR * 0.4, self._passing_queue(hour)))
        if hour % 3 == 1:
            acts.append((HOUR * 0.5, self._node_fails(hour)))
        if hour % 6 == 2:
            acts.append((HOUR * 0.7, self._replace_leader(killed=hour % 12 == 8)))
        if hour % 24 == 1:
            acts.append((HOUR * 0.8, world.restart_server(history=False)))
        begun = world.now
        tasks = [asyncio.ensure_future(_at(begun + at, act, world)) for at, act in acts]
        await asyncio.gather(*tasks)
        await world.sleep(max(end - world.now, 0.0))

    async def _submit(self, hour: int, number: int) -> None:
        name = f"job-{hour}-{number}"
        labels = {QUEUE: self._chance.choice(("team-a", "team-b"))}
        if self._chance.random() < 0.3:
            labels["kueue.x-k8s.io/priority-class"] = "high"
        if self._chance.random() < 0.2:
            labels["kueue.x-k8s.io/max-exec-time-seconds"] = "600"
        await self.world.user().create(JOBS, _job(name, labels, self._chance.uniform(60, 1500)))

    async def _remove_old(self) -> None:
        """Users delete what is older than an hour, whether it has ended or not."""
        for job in self.world.objects(JOBS):
            hour = int(job["metadata"]["name"].split("-")[1])
            if hour < self._hour - 2 and job["metadata"]["name"].startswith("job-"):
                await self._try("delete", JOBS, NAMESPACE, job["metadata"]["name"])

    async def _edit(self) -> None:
        for job in self.world.objects(JOBS):
            if job["spec"].get("suspend"):
                note = {"spec": {"template": {"metadata": {"annotations": {"note": "edited"}}}}}
                await self._try("patch", JOBS, NAMESPACE, job["metadata"]["name"], note)

    async def _resize(self, hour: int) -> None:
        spec = _cluster_queue("queue-a", 4 + hour % 3)["spec"]
        body = {"spec": {"resourceGroups": spec["resourceGroups"]}}
        await self._try("patch", CLUSTER_QUEUES, "", "queue-a", body)

    async def _passing_queue(self, hour: int) -> None:
        """A queue that lives for a quarter of an hour, with one Job."""
        name, user = f"passing-{hour}", self.world.user()
        await user.create(CLUSTER_QUEUES, _cluster_queue(name, 1))
        await user.create(LOCAL_QUEUES, _local_queue(name, name))
        await user.create(JOBS, _job(f"passing-{hour}", {QUEUE: name}, 120.0))
        await self.world.sleep(HOUR / 4)
        await self._try("delete", JOBS, NAMESPACE, f"passing-{hour}")
        await self._try("delete", LOCAL_QUEUES, NAMESPACE, name)
        await self._try("delete", CLUSTER_QUEUES, "", name)

    async def _node_fails(self, hour: int) -> None:
        """A node is gone for five minutes, with all its pods."""
        name = f"node-{hour % 3}"
        await self._try("delete", NODES, "", name)
        await self.world.sleep(300.0)
        await self._try("create", NODES, _node(name))

    async def _replace_leader(self, *, killed: bool) -> None:
        world = self.world
        (lease,) = (
            one
            for one in world.objects("leases.coordination.k8s.io")
            if "kueue" in one["metadata"]["name"]
        )
        name = str(lease["spec"]["holderIdentity"]).partition("_")[0]
        if name not in world.managers:
            return  # nobody leads at this moment
        self._count(name)
        if killed:
            world.kill(name)
        else:
            await world.stop_manager(name)
        self._count(name)
        await world.sleep(60.0)
        await world.start_manager(name)

    async def _try(self, verb: str, *args: Any) -> None:
        try:
            await getattr(self.world.user(), verb)(*args)
        except (NotFound, Conflict, AlreadyExists, Invalid):
            return  # it is gone, or runs already

    # ---- the end of a day

    def _note(self, commit: Commit) -> None:
        if commit.resource != WORKLOADS or commit.new is None:
            return
        if not commit.new["spec"]["queueName"].startswith("team"):
            return  # its queue goes, and all series of that queue with it
        for counter, became in COUNTED.items():
            self._became[counter] += became(commit.new) and not became(commit.old)

    def _count(self, name: str) -> None:
        """Take in the counters of a process."""
        for telemetry in self.world.managers[name].process.telemetries:
            now: Counter[str] = Counter()
            for metric in telemetry.registry.collect():
                for sample in metric.samples:
                    passing = sample.labels.get("cluster_queue", "").startswith("passing")
                    if sample.name.endswith("_total") and not passing:
                        now[sample.name] += int(sample.value)
            self._read[id(telemetry)] = now

    def _judge(self, number: int) -> Day:
        world = self.world
        wrong = [f"an error was not handled: {text}" for text in world.problems]
        for name in world.managers:
            self._count(name)
        self.counters = Counter()
        for counts in self._read.values():
            self.counters.update(counts)
        for counter in COUNTED:
            if self.counters[counter] != self._became[counter]:
                has = self.counters[counter]
                wrong.append(f"{counter} is {has}, but it happened {self._became[counter]} times")
        wrong += [f"{name} is {self.counters[name]}" for name in FAULTS if self.counters[name]]
        wrong += [str(one) for one in world.inside() if one.law in ("no-leaks", "metrics-match")]
        world.history.clear()
        world.revisions.clear()
        world.forget_ended()
        COLLECT()
        parts, entries, series = {}, {}, {}
        for name, one in world.managers.items():
            seen = list(parts_in(one.process.root))
            parts[name] = len(seen)
            entries[name] = sum(len(part.what) for part in seen if hasattr(part.what, "__len__"))
            series[name] = sum(
                len(metric.samples) for metric in one.process.telemetries[-1].registry.collect()
            )
        return Day(
            number,
            self._became["kueue_finished_workloads_total"],
            dict(sorted(_stored(world))),
            series,
            parts,
            entries,
            sys.getallocatedblocks(),
            _memory(),
            wrong,
        )


def _stored(world: World) -> Iterator[tuple[str, int]]:
    for resource in (JOBS, PODS, WORKLOADS, "events", "leases.coordination.k8s.io", "secrets"):
        yield resource, len(world.objects(resource))


def _memory() -> int:
    """The resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def _at(when: float, act: Any, world: World) -> None:
    await world.sleep(max(when - world.now, 0.0))
    await act


def _first_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "resourceflavors.kueue.x-k8s.io", _kueue("ResourceFlavor", "default", {})
    priority = _kueue("WorkloadPriorityClass", "high", None)
    yield "workloadpriorityclasses.kueue.x-k8s.io", {**priority, "value": 100}
    for letter in "ab":
        yield CLUSTER_QUEUES, _cluster_queue(f"queue-{letter}", 5)
        yield LOCAL_QUEUES, _local_queue(f"team-{letter}", f"queue-{letter}")
    for number in range(3):
        yield NODES, _node(f"node-{number}")


def _kueue(kind: str, name: str, spec: Any, namespace: str = "") -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta}
    return obj if spec is None else {**obj, "spec": spec}


def _cluster_queue(name: str, quota: int) -> dict[str, Any]:
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(quota)}]}
    spec = {
        "namespaceSelector": {},
        "cohortName": "all",
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
    }
    return _kueue("ClusterQueue", name, spec)


def _local_queue(name: str, queue: str) -> dict[str, Any]:
    return _kueue("LocalQueue", name, {"clusterQueue": queue}, NAMESPACE)


def _node(name: str) -> dict[str, Any]:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    labels = {SIMULATED: "true"}
    meta = {"name": name, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "status": {"capacity": room, "allocatable": room},
    }


def _job(name: str, labels: dict[str, str], seconds: float) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": {RUN_SECONDS: f"{seconds:.0f}"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"template": template, "suspend": True, "backoffLimit": 6},
    }


def main() -> int:
    """Let days pass; ends with 1 if a law is broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours", type=int, default=24, help="of a day")
    parser.add_argument("--jobs", type=int, default=12, help="in an hour")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    soak = Soak(asked.jobs, asked.seed)
    return int(soak.world.run(_shown(soak, asked.days, asked.hours)))


async def _shown(soak: Soak, days: int, hours: int) -> bool:
    """Print each day, and the counters at the end; return whether a law was broken."""
    wrong = False
    async for day in soak.days(days, hours):
        wrong = wrong or bool(day.wrong)
        sys.stdout.write(json.dumps(attrs.asdict(day)) + "\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps(dict(sorted(soak.counters.items()))) + "\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
