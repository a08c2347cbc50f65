"""Reads what a decision depends on from a cluster, and nothing else: GET and LIST, no watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import attrs

from kueuelib.api import core, kinds, kueue
from kueuelib.api.codec import decode
from kueuelib.api.meta import Obj, Resource, key_of, labels_of
from kueuelib.app.wiring import queueing_version
from kueuelib.errors import (
    ApiError,
    Forbidden,
    InvalidObject,
    InvalidSelector,
    KueuelibError,
    NotFound,
    TransportError,
)
from kueuelib.jobs.priority import PriorityClasses
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.settings import DEFAULTS, Settings

QUEUEING = (
    kinds.CLUSTER_QUEUES,
    kinds.COHORTS,
    kinds.LOCAL_QUEUES,
    kinds.RESOURCE_FLAVORS,
    kinds.ADMISSION_CHECKS,
    kinds.WORKLOADS,
    kinds.WORKLOAD_PRIORITY_CLASSES,
)
AROUND = (
    kinds.NAMESPACES,
    kinds.LIMIT_RANGES,
    kinds.RUNTIME_CLASSES,
    kinds.PRIORITY_CLASSES,
)
NEEDED = (kinds.CLUSTER_QUEUES, kinds.LOCAL_QUEUES, kinds.RESOURCE_FLAVORS, kinds.WORKLOADS)
"""What no answer can do without."""


@attrs.frozen
class Cluster:
    """What was read.

    Attributes:
        world: the facts that decisions depend on.
        workloads: the raw Workloads.
        classes: the raw priority classes.
        notes: what could not be read and is left out, for people.
    """

    world: World
    workloads: tuple[Obj, ...]
    classes: PriorityClasses
    notes: tuple[str, ...]


async def read_cluster(client: Client, namespace: str, settings: Settings = DEFAULTS) -> Cluster:
    """Lists the queues, flavors, checks, Workloads and what requests depend on.

    Args:
        client: whose cluster.
        namespace: of the object in question; it is looked up alone where namespaces may not be
            listed.
        settings: what the manager's configuration says about decisions.

    Raises:
        ConfigError: the cluster serves no queueing API.
        Forbidden: queues, flavors or Workloads may not be listed.
    """
    version = await queueing_version(client)
    found: dict[str, list[Obj]] = {}
    errors: list[KueuelibError] = []
    notes: list[str] = []

    async def read(resource: Resource) -> None:
        asked = resource.at(version) if resource in QUEUEING else resource
        try:
            found[resource.kind] = [obj async for obj in client.list_all(asked)]
        except (ApiError, TransportError) as error:
            if resource in NEEDED or not isinstance(error, Forbidden | NotFound):
                errors.append(error)
                return
            found[resource.kind] = []
            if resource is kinds.NAMESPACES:
                # A world without the namespace would blame it for everything.
                found[resource.kind] = [{"metadata": {"name": namespace, "labels": {}}}]
            if resource is kinds.COHORTS and isinstance(error, NotFound):
                return  # a cluster may do without the kind
            notes.append(f"{resource.plural} were not read and count as absent: {error}")

    async with anyio.create_task_group() as group:
        for resource in (*QUEUEING, *AROUND):
            group.start_soon(read, resource)
    if errors:
        raise min(errors, key=str)
    reader = _Reader(notes)
    world = World(
        settings=settings,
        cluster_queues={
            one.name: one
            for one in reader.all(found["ClusterQueue"], kueue.ClusterQueue, queue_spec)
        },
        cohorts={one.name: one for one in reader.all(found["Cohort"], kueue.Cohort)},
        local_queues={one.key: one for one in reader.all(found["LocalQueue"], kueue.LocalQueue)},
        flavors={
            one.name: one for one in reader.all(found["ResourceFlavor"], kueue.ResourceFlavor)
        },
        checks={one.name: one for one in reader.all(found["AdmissionCheck"], kueue.AdmissionCheck)},
        namespaces={obj["metadata"]["name"]: labels_of(obj) for obj in found["Namespace"]},
        workloads={one.key: one for one in reader.all(found["Workload"], kueue.Workload)},
        limit_ranges={one.key: one for one in reader.all(found["LimitRange"], core.LimitRange)},
        runtime_classes={
            one.name: one for one in reader.all(found["RuntimeClass"], core.RuntimeClass)
        },
    )
    classes = PriorityClasses(
        workload={obj["metadata"]["name"]: obj for obj in found["WorkloadPriorityClass"]},
        pod={obj["metadata"]["name"]: obj for obj in found["PriorityClass"]},
    )
    return Cluster(world, tuple(found["Workload"]), classes, tuple(sorted(notes)))


class _Reader:
    """Turns raw objects into values; what cannot be read is left out and noted."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def all(
        self, raw: list[Obj], cls: type[Any], check: Callable[[Any], object] | None = None
    ) -> list[Any]:
        found = []
        for obj in raw:
            try:
                value = decode(cls, obj)
                if check is not None:
                    check(value)
            except (InvalidObject, InvalidSelector) as error:
                subject = f"{obj.get('kind', cls.__name__)} {key_of(obj)}"
                self._notes.append(f"{subject} cannot be read and is left out: {error}")
            else:
                found.append(value)
        return found
