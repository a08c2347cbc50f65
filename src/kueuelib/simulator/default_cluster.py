"""Queues for a trace without any: one ClusterQueue per queue of its jobs.

All are in one cohort, so each may borrow what the others do not use. Together they own the machines
of the trace. If the trace does not name machines, there are enough for its largest job, and for its
work to take `LOAD` of them on average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.quantity import quantity_of
from kueuelib.simulator.parsing import named
from kueuelib.simulator.trace import Demand, Trace
from kueuelib.simulator.work import CPU

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
