"""The objects around the jobs: queues, flavors, checks, and overlays of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from kueuelib.api import core, kinds, kueue
from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.meta import Obj, ObjectKey, key_of, labels_of
from kueuelib.api.names import ACTIVE, DEFAULT_NAMESPACE
from kueuelib.api.quantity import quantity_of
from kueuelib.api.struct import Struct
from kueuelib.errors import ConfigError, InvalidObject, InvalidQuantity, InvalidSelector
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.scheduler.topology.nodes import NodeFacts, node_facts
from kueuelib.simulator.parsing import named
from kueuelib.simulator.trace import CPU, Demand, Trace

# ---- queues for a trace without any: one ClusterQueue per queue of its jobs ----------------------
# All are in one cohort, so each may borrow what the others do not use. Together they own the
# machines of the trace. If the trace does not name machines, there are enough for its largest job,
# and for its work to take `LOAD` of them on average.

COHORT = "trace"
FLAVOR = "default"
LOAD = 0.8
"""The average load of the machines, if the trace does not name them."""


def default_cluster(trace: Trace, machines: Mapping[str, int]) -> tuple[Obj, ...]:
    """The objects of a cluster for a trace.

    Args:
        trace: the jobs.
        machines: by resource, the capacity of the machines in the trace; CPUs in whole CPUs.
    """
    total = _machines(trace, machines)
    objects: list[Obj] = [_object("ResourceFlavor", {"name": FLAVOR}, {})]
    parts = _parts(trace, total)
    namespaces = {key.namespace for key in trace.demand}
    for key in sorted(trace.demand):
        name = named(key.name, "default")
        if len(namespaces) > 1:
            name = f"{key.namespace}-{name}"
        objects.append(_cluster_queue(name, parts[key]))
        meta = {"name": key.name, "namespace": key.namespace}
        objects.append(_object("LocalQueue", meta, {"clusterQueue": name}))
    return tuple(objects)


def _machines(trace: Trace, machines: Mapping[str, int]) -> dict[str, int]:
    """The amounts of all resources, in the units of the scheduler."""
    whole = Demand()
    for demand in trace.demand.values():
        for resource, work in demand.work.items():
            whole.work[resource] = whole.work.get(resource, 0.0) + work
            largest = max(whole.largest.get(resource, 0), demand.largest[resource])
            whole.largest[resource] = largest
    seconds = max((trace.last or 0.0) - (trace.first or 0.0), 1.0)
    amounts = {}
    for resource, work in sorted(whole.work.items()):
        unit = 1000 if resource == CPU else 1
        if resource in machines:
            amounts[resource] = machines[resource] * unit
        else:
            enough = math.ceil(work / seconds / LOAD / unit) * unit
            amounts[resource] = max(enough, whole.largest[resource])
    return amounts


def _parts(trace: Trace, total: Mapping[str, int]) -> dict[ObjectKey, dict[str, int]]:
    """The quota of each queue: in proportion to its work, in whole units, without a remainder."""
    parts: dict[ObjectKey, dict[str, int]] = {key: {} for key in sorted(trace.demand)}
    for resource, amount in total.items():
        unit = 1000 if resource == CPU else 1
        work = {key: trace.demand[key].work.get(resource, 0.0) for key in parts}
        sum_ = sum(work.values())
        ideal = {key: amount * w / sum_ if sum_ else amount / len(work) for key, w in work.items()}
        for key, part in ideal.items():
            parts[key][resource] = int(part // unit) * unit
        rest = amount - sum(part[resource] for part in parts.values())
        for key in sorted(parts, key=lambda key: (parts[key][resource] - ideal[key], key)):
            step = min(unit, rest)
            parts[key][resource] += step
            rest -= step
    return parts


def _cluster_queue(name: str, quota: Mapping[str, int]) -> Obj:
    resources = [
        {"name": resource, "nominalQuota": str(quantity_of(resource, amount))}
        for resource, amount in quota.items()
    ]
    group = {
        "coveredResources": list(quota),
        "flavors": [{"name": FLAVOR, "resources": resources}],
    }
    spec = {"cohortName": COHORT, "namespaceSelector": {}, "resourceGroups": [group]}
    return _object("ClusterQueue", {"name": name}, spec)


def _object(kind: str, metadata: Mapping[str, str], spec: Mapping[str, object]) -> Obj:
    meta = dict(metadata)
    return {"apiVersion": f"{KUEUE}/{V1BETA2}", "kind": kind, "metadata": meta, "spec": dict(spec)}


# --------------------------------------------------------------------------------------------------

KINDS = {
    resource.kind: resource
    for resource in (
        kinds.CLUSTER_QUEUES,
        kinds.COHORTS,
        kinds.LOCAL_QUEUES,
        kinds.RESOURCE_FLAVORS,
        kinds.ADMISSION_CHECKS,
        kinds.TOPOLOGIES,
        kinds.NODES,
        kinds.NAMESPACES,
        kinds.LIMIT_RANGES,
        kinds.RUNTIME_CLASSES,
    )
}
"""The kinds that the scheduler reads besides Workloads."""

T = TypeVar("T", bound=Struct)


def kind_and_key(obj: Obj) -> tuple[Any, ...]:
    """The identity of an object: kind and key."""
    return obj.get("kind"), key_in(obj)


def overlaid(
    objects: Iterable[Obj],
    policy: Iterable[Obj],
    identity: Callable[[Obj], tuple[Any, ...]] = kind_and_key,
) -> tuple[Obj, ...]:
    """Objects, each replaced by the one of a policy with the same kind, namespace and name.

    Args:
        objects: raw objects.
        policy: raw objects; those that replace nothing are added.
        identity: equal for two objects that replace each other.
    """
    by_identity = {identity(obj): obj for obj in objects}
    by_identity.update({identity(obj): obj for obj in policy})
    return tuple(by_identity.values())


def key_in(obj: Mapping[str, Any]) -> ObjectKey:
    """The key of a raw object; one without a namespace that needs one is in `default`."""
    key = key_of(obj)
    resource = KINDS.get(obj.get("kind", ""))
    namespaced = resource.namespaced if resource else obj.get("kind") in ("Job", "Workload")
    return ObjectKey((key.namespace or DEFAULT_NAMESPACE) if namespaced else "", key.name)


@attrs.frozen(eq=False)
class ClusterSetup:
    """Everything that stays the same while jobs come and go.

    Attributes:
        world: the facts for the engine, without Workloads.
        cluster_queues: the raw ClusterQueues by name.
        local_queues: the raw LocalQueues by key.
        checks: the raw AdmissionChecks by name.
    """

    world: World
    cluster_queues: Mapping[str, Obj]
    local_queues: Mapping[ObjectKey, Obj]
    checks: Mapping[str, Obj]


def cluster_of(objects: Iterable[Obj], settings: Settings = DEFAULTS) -> ClusterSetup:
    """A cluster made of raw objects; kinds that the scheduler does not read are left out.

    Every AdmissionCheck counts as Active; `--check` says when it answers. Namespaces that only
    LocalQueues name exist without labels.

    Args:
        objects: raw objects, in either version of the API.
        settings: the administrator's choices.

    Raises:
        ConfigError: an object cannot be read; the message names the first one.
    """
    raw: dict[str, list[Obj]] = {kind: [] for kind in KINDS}
    for obj in objects:
        if obj.get("kind") in raw:
            namespace, name = key_in(obj)
            meta = {**obj["metadata"], "name": name}
            if namespace:
                meta["namespace"] = namespace
            raw[obj["kind"]].append({**obj, "metadata": meta})
    queues = [_read(obj, kueue.ClusterQueue) for obj in raw["ClusterQueue"]]
    checks = [_active(_read(obj, kueue.AdmissionCheck)) for obj in raw["AdmissionCheck"]]
    local_queues = [_read(obj, kueue.LocalQueue) for obj in raw["LocalQueue"]]
    namespaces: dict[str, Mapping[str, str]] = {each.namespace: {} for each in local_queues}
    namespaces.update({key_of(obj).name: labels_of(obj) for obj in raw["Namespace"]})
    limit_ranges = [_read(obj, core.LimitRange) for obj in raw["LimitRange"]]
    world = World(
        settings=settings,
        cluster_queues={each.name: each for each in queues},
        cohorts={each.name: each for each in (_read(obj, kueue.Cohort) for obj in raw["Cohort"])},
        local_queues={each.key: each for each in local_queues},
        flavors={
            each.name: each
            for each in (_read(obj, kueue.ResourceFlavor) for obj in raw["ResourceFlavor"])
        },
        topologies={
            each.name: each for each in (_read(obj, kueue.Topology) for obj in raw["Topology"])
        },
        nodes={each.name: each for each in map(_node, raw["Node"])},
        checks={each.name: each for each in checks},
        namespaces=namespaces,
        limit_ranges={each.key: each for each in limit_ranges},
        runtime_classes={
            each.name: each
            for each in (_read(obj, core.RuntimeClass) for obj in raw["RuntimeClass"])
        },
    )
    return ClusterSetup(
        world,
        {key_of(obj).name: obj for obj in raw["ClusterQueue"]},
        {key_of(obj): obj for obj in raw["LocalQueue"]},
        {key_of(obj).name: obj for obj in raw["AdmissionCheck"]},
    )


def _read(obj: Obj, cls: type[T]) -> T:
    try:
        decoded = decode(cls, obj)
        if isinstance(decoded, kueue.ClusterQueue):
            queue_spec(decoded)
    except (InvalidObject, InvalidSelector) as error:
        subject = f"{obj['kind']} {key_of(obj)}"
        raise ConfigError(subject, str(error), "correct the object") from error
    return decoded


def _node(obj: Obj) -> NodeFacts:
    """What counts of a node; one without conditions is ready."""
    status = obj.get("status") or {}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    try:
        return node_facts({**obj, "status": {**ready, **status}})
    except (InvalidObject, InvalidQuantity) as error:
        raise ConfigError(f"Node {key_of(obj)}", str(error), "correct the object") from error


def _active(check: kueue.AdmissionCheck) -> kueue.AdmissionCheck:
    raw = {"conditions": [{"type": ACTIVE, "status": "True", "reason": ACTIVE, "message": ""}]}
    raw["conditions"][0]["lastTransitionTime"] = "1970-01-01T00:00:00Z"
    return attrs.evolve(check, status=decode(type(check.status), raw))
