"""`kueuelib demo --run`: pods that really run, as local processes, and a preemption."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import anyio

import kueuelib
from kueuelib import Progress
from kueuelib.api.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
)
from kueuelib.api.meta import Obj, Resource
from kueuelib.cli.demo.story import NAMESPACE
from kueuelib.node.node import LOCAL, TAINT
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.testing.processes import LocalCluster, Processes, start_node

QUEUE, ARRAY, URGENT = "team", "array", "urgent"
CPUS, INDEXES = 2, 4
STEP = 10_000
MOST_SECONDS = 120.0
COUNT_PRIMES = f"""
import os, time
first = int(os.environ["JOB_COMPLETION_INDEX"]) * {STEP}
count = 0
for number in range(max(first, 2), first + {STEP}):
    count += all(number % each for each in range(2, int(number ** 0.5) + 1))
    if number % {STEP // 20} == 0:
        time.sleep(0.1)
print(count)
"""
PRIMES = 4203
"""Below 40,000: what the parts of the array find together."""


def objects() -> Iterator[tuple[Resource, Obj]]:
    """Namespace, priorities, and a queue for the CPUs of a node whose pods are local processes."""
    yield NAMESPACES, NAMESPACES.new(NAMESPACE)
    for name, value in (("low", 1), ("high", 100)):
        yield WORKLOAD_PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES.new(name, value=value)
    placed = {
        "nodeLabels": {LOCAL: "true"},
        "nodeTaints": [dict(TAINT)],
        "tolerations": [{"key": LOCAL, "operator": "Exists"}],
    }
    yield RESOURCE_FLAVORS, RESOURCE_FLAVORS.new("local", spec=placed)
    quota = {"name": "local", "resources": [{"name": "cpu", "nominalQuota": str(CPUS)}]}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
    }
    yield CLUSTER_QUEUES, CLUSTER_QUEUES.new(QUEUE, spec=spec)
    yield LOCAL_QUEUES, LOCAL_QUEUES.new(QUEUE, NAMESPACE, spec={"clusterQueue": QUEUE})


def job(name: str, indexes: int, script: str) -> Obj:
    """An indexed Job of Python scripts, two at a time, each with a CPU."""
    container = {
        "name": "main",
        "image": "python",
        "command": ["python", "-c", script],
        "resources": {"requests": {"cpu": "1"}},
    }
    spec = {
        "completionMode": "Indexed",
        "completions": indexes,
        "parallelism": CPUS,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return JOBS.new(name, NAMESPACE, spec=spec)


async def play(folder: Path, say: Callable[[str], None]) -> list[str]:
    """Runs it.

    Args:
        folder: for log files.
        say: receives each line of what happens.

    Returns:
        What was expected but did not happen; empty if all is well.

    Raises:
        ProcessError: a process did not start; the node refuses to run as root.
    """
    with Processes(folder) as processes:
        cluster = LocalCluster(processes)
        say("starting the API server, the manager, and a node that runs pods as processes ...")
        await anyio.to_thread.run_sync(cluster.start)
        images = {"python": sys.prefix}
        start = partial(start_node, processes, cluster.kubeconfig, images, "--cpu", str(CPUS))
        await anyio.to_thread.run_sync(start)
        async with await connect(cluster.kubeconfig) as client:
            for resource, obj in objects():
                await client.create(resource, obj)
            with anyio.fail_after(MOST_SECONDS):
                return await _preempt(client, say)


async def _preempt(client: Client, say: Callable[[str], None]) -> list[str]:
    """The array runs, the urgent Job takes its place, and the array ends after it."""
    begin = time.monotonic()
    last: dict[str, Progress] = {}
    running = anyio.Event()

    async def follow(name: str, indexes: int, script: str, priority: str) -> None:
        handle = await kueuelib.submit(
            job(name, indexes, script), queue=QUEUE, priority_class=priority, client=client
        )
        said = ""
        async for progress in kueuelib.watch(handle, client=client):
            last[name] = progress
            if progress.text != said:
                said = progress.text
                say(f"{time.monotonic() - begin:5.1f} s  {name}: {said}")
            if progress.state is kueuelib.State.RUNNING:
                running.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, ARRAY, INDEXES, COUNT_PRIMES, "low")
        await running.wait()
        tasks.start_soon(follow, URGENT, CPUS, "print('at once')", "high")
    counts = [count async for count in _counts(client)]
    say(f"the array counted {' + '.join(map(str, counts))} = {sum(counts):,} primes")
    wrong = [
        f"{name} ended as {last[name].state}"
        for name in (ARRAY, URGENT)
        if last[name].state is not kueuelib.State.FINISHED
    ]
    if last[ARRAY].evicted is None:
        wrong.append(f"{ARRAY} was never preempted")
    if sum(counts) != PRIMES:
        wrong.append(f"{ARRAY} counted {sum(counts):,} primes instead of {PRIMES:,}")
    return wrong


async def _counts(client: Client) -> AsyncIterator[int]:
    """What the pods of the array have printed."""
    pods = client.list_all(PODS, NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={ARRAY}")
    async for pod in pods:
        if (pod.get("status") or {}).get("phase") == "Succeeded":
            path = PODS.path(NAMESPACE, pod["metadata"]["name"], "log")
            yield int(await client.request("GET", path))
