"""Turns a world of facts into the simulator's input: the cluster, and jobs with their quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson

from kueuelib.api import conditions, names
from kueuelib.api.codec import encode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import Obj
from kueuelib.scheduler.explain.world import World
from kueuelib.simulator.cluster import Cluster
from kueuelib.simulator.work import Job, PodShape


def objects_of(world: World) -> Iterator[Obj]:
    """Everything but the Workloads of a world, as raw objects."""
    for name, labels in world.namespaces.items():
        meta: Obj = {"name": name, "labels": dict(labels)}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    tables: tuple[Mapping[Any, Any], ...] = (
        world.limit_ranges,
        world.runtime_classes,
        world.flavors,
        world.checks,
        world.cohorts,
        world.cluster_queues,
        world.local_queues,
    )
    for table in tables:
        yield from map(encode, table.values())


def cluster_in(world: World) -> Cluster:
    """The cluster of a world; its checks are as active as in the world."""
    return Cluster(
        attrs.evolve(world, workloads={}),
        {name: encode(queue) for name, queue in world.cluster_queues.items()},
        {key: encode(local_queue) for key, local_queue in world.local_queues.items()},
        {name: encode(check) for name, check in world.checks.items()},
    )


def job_of(workload: Workload, arrival: float, run_seconds: float, ran_seconds: float = 0.0) -> Job:
    """A job that brings its Workload, with the quota that it holds.

    Args:
        workload: the object.
        arrival: when it arrives in the simulation.
        run_seconds: its total run time.
        ran_seconds: how long it has run on arrival.
    """
    raw = encode(workload)
    shapes = tuple(
        PodShape(pod_set.count, (), pod_set.name, pod_set.min_count)
        for pod_set in workload.spec.pod_sets
    )
    return Job(
        name=workload.name,
        arrival=arrival,
        run_seconds=run_seconds,
        pod_sets=shapes,
        queue=workload.spec.queue_name,
        namespace=workload.namespace,
        priority=workload.spec.priority or 0,
        workload=orjson.dumps(raw),
        ran_seconds=ran_seconds,
    )


def run_time(workload: Workload) -> float | None:
    """How long the last run of a finished Workload took; None if it never ran or has not
    finished.
    """
    ended = conditions.since(workload.status.conditions, names.FINISHED)
    since = conditions.since(workload.status.conditions, names.ADMITTED)
    return None if ended is None or since is None else max(0.0, ended - since)
