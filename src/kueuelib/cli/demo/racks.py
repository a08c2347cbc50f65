"""The last act of `kueuelib demo`: a Job that needs a rack waits until one is free (KEP-2724).

It is played on the cluster of the other acts, to which two racks of nodes are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import aclosing

import anyio

import kueuelib
from kueuelib.api.kinds import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
)
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.api.workload import HOST
from kueuelib.cli.demo.story import NAMESPACE
from kueuelib.embedded.cluster.contract import RACK, SIMULATED
from kueuelib.embedded.cluster.nodes import RACK_CAPACITY, nodes_in_racks
from kueuelib.runtime.client import Client

QUEUE, BATCH, TRAIN = "racks", "batch", "train"
PODS_OF_JOBS = {BATCH: 5, TRAIN: 4}
"""A rack has room for four: after BATCH, no rack is free for all pods of TRAIN."""
MOST_SECONDS = 120.0
REQUIRED = {"kueue.x-k8s.io/podset-required-topology": RACK}


def objects() -> Iterator[tuple[Resource, Obj]]:
    """Two racks of two nodes, and a queue for them, whose quota is not what is scarce."""
    for node in nodes_in_racks("2x2"):
        yield NODES, node
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    yield TOPOLOGIES, TOPOLOGIES.new(QUEUE, spec={"levels": levels})
    placed = {"nodeLabels": {SIMULATED: "true"}, "topologyName": QUEUE}
    yield RESOURCE_FLAVORS, RESOURCE_FLAVORS.new(QUEUE, spec=placed)
    quota = {"name": "cpu", "nominalQuota": str(8 * int(RACK_CAPACITY["cpu"]))}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": QUEUE, "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield CLUSTER_QUEUES, CLUSTER_QUEUES.new(QUEUE, spec=spec)
    yield LOCAL_QUEUES, LOCAL_QUEUES.new(QUEUE, NAMESPACE, spec={"clusterQueue": QUEUE})


def job(name: str) -> Obj:
    """A Job of pods of half a node each, which run until they are deleted."""
    container = {
        "name": "main",
        "image": "registry.example/work:1",
        "resources": {"requests": {"cpu": str(int(RACK_CAPACITY["cpu"]) // 2)}},
    }
    pods = PODS_OF_JOBS[name]
    spec = {
        "parallelism": pods,
        "completions": pods,
        "template": {
            "metadata": {"annotations": REQUIRED if name == TRAIN else {}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        },
    }
    return JOBS.new(name, NAMESPACE, spec=spec)


async def play(client: Client, say: Callable[[str], None]) -> list[str]:
    """Plays it.

    Args:
        client: of the cluster, with the manager.
        say: receives each line of what happens.

    Returns:
        What was expected but did not happen; empty if all is well.
    """
    for resource, obj in objects():
        await client.create(resource, obj)
    nodes: list[str] = []
    with anyio.move_on_after(MOST_SECONDS):
        say(f"2 racks, each with room for 4 pods; Job {BATCH} has {PODS_OF_JOBS[BATCH]} pods")
        await _run(client, BATCH, say)
        say(f"Job {TRAIN} has {PODS_OF_JOBS[TRAIN]} pods, which need one rack")
        nodes = await _run(client, TRAIN, say)
    racks = {name.partition("-node-")[0] for name in nodes}
    if len(racks) != 1:
        return [f"{TRAIN} ran on {', '.join(nodes) or 'no nodes'} instead of in one rack"]
    say(f"{TRAIN} runs in {racks.pop()}, on {' and '.join(nodes)}")
    return []


async def _run(client: Client, name: str, say: Callable[[str], None]) -> list[str]:
    """Submits a Job and waits until it runs, for which the other one makes room if it has to wait
    for a rack.

    Returns:
        The names of the nodes on which its pods run.
    """
    handle = await kueuelib.submit(job(name), queue=QUEUE, client=client)
    said = ""
    async with aclosing(kueuelib.watch(handle, client=client)) as moments:
        async for progress in moments:
            if progress.text != said:
                said = progress.text
                say(f"{name}: {said}")
                if "has room for" in progress.why.message:
                    say(f"{BATCH} is deleted")
                    key = ObjectKey(NAMESPACE, BATCH)
                    await client.delete(JOBS, key, propagation="Background")
            if progress.state is kueuelib.State.RUNNING:
                break
    label, nodes = f"batch.kubernetes.io/job-name={name}", list[str]()
    while len(nodes) < PODS_OF_JOBS[name]:
        pods = [pod async for pod in client.list_all(PODS, NAMESPACE, label_selector=label)]
        nodes = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]
        await anyio.sleep(0.05)
    return sorted(set(nodes))
