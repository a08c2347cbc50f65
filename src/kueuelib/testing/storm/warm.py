"""Warms a world up: lazily created values are created before a fork.

Conversions, validation rules and schemas are compiled when they are first needed. A world that has
played a Job from its creation to its end passes them to all its copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.embedded.cluster.contract import RUN_SECONDS
from kueuelib.errors import NotFound

if TYPE_CHECKING:
    from kueuelib.testing.storm.world import World

NAME: Final = "warm-up"
NAMESPACE: Final = "default"
PATIENCE: Final = 120.0
"""Seconds of the world for the Job, and for its removal."""
_FLAVORS: Final = f"resourceflavors.{KUEUE}"
_CLUSTER_QUEUES: Final = f"clusterqueues.{KUEUE}"
_LOCAL_QUEUES: Final = f"localqueues.{KUEUE}"
_WORKLOADS: Final = f"workloads.{KUEUE}"
_JOBS: Final = "jobs.batch"
_PODS: Final = "pods"


async def warm_up(world: World) -> None:
    """Play the life of one Job in a booted world, and remove everything again.

    Events of it stay, and metrics have counted it.

    Raises:
        TimeoutError: the Job did not end, or was not removed completely.
    """
    api = world.user()
    for resource, obj in _objects():
        await api.create(resource, obj)
    await _until(world, "end", lambda: _ended(world))
    places = ((_JOBS, NAMESPACE), (_LOCAL_QUEUES, NAMESPACE), (_CLUSTER_QUEUES, ""), (_FLAVORS, ""))
    for resource, namespace in places:
        try:
            await api.delete(resource, namespace, NAME)
        except NotFound:
            continue
        await _until(world, "go", lambda kind=resource: not world.objects(kind))
    for kind in (_WORKLOADS, _PODS):
        await _until(world, "go", lambda kind=kind: not world.objects(kind))
    await world.quiet(2.0, PATIENCE)


async def _until(world: World, what: str, done: Any) -> None:
    end = world.now + PATIENCE
    while not done():
        if world.now > end:
            raise TimeoutError(f"the world cannot be warmed up: what was made does not {what}")
        await world.sleep(0.1)


def _ended(world: World) -> bool:
    return any(
        condition["type"] == "Complete" and condition["status"] == "True"
        for job in world.objects(_JOBS)
        for condition in job["status"].get("conditions", ())
    )


def _objects() -> list[tuple[str, dict[str, Any]]]:
    version = f"{KUEUE}/{V1BETA2}"
    flavor = {"name": NAME, "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "metadata": {"annotations": {RUN_SECONDS: "1"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    labels = {"kueue.x-k8s.io/queue-name": NAME}
    return [
        (_FLAVORS, _object(version, "ResourceFlavor", {})),
        (
            _CLUSTER_QUEUES,
            _object(version, "ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group]}),
        ),
        (_LOCAL_QUEUES, _object(version, "LocalQueue", {"clusterQueue": NAME}, NAMESPACE)),
        (_JOBS, _object("batch/v1", "Job", {"template": pod}, NAMESPACE, labels)),
    ]


def _object(
    version: str,
    kind: str,
    spec: dict[str, Any],
    namespace: str = "",
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": NAME, "labels": labels or {}}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
