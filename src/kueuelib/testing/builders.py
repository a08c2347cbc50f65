"""Queueing objects in one call each, for tests and simulations.

Every builder returns the typed object that the codec would make from YAML. Amounts are texts or
numbers as in a manifest: `{"cpu": "500m", "memory": "1Gi"}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kueuelib.api.codec import decode
from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from kueuelib.api.meta import Obj, format_time
from kueuelib.api.models import without_models

Amount = str | int
Quota = Amount | Mapping[str, Amount]
"""A nominal quota, or `{"nominal": ..., "borrowing": ..., "lending": ...}`."""


def _object(kind: str, metadata: Mapping[str, Any], **parts: Any) -> Obj:
    return {
        "apiVersion": f"{KUEUE}/{V1BETA2}",
        "kind": kind,
        "metadata": dict(metadata),
        **without_models(parts),
    }


def _quota(resource: str, quota: Quota) -> Obj:
    if not isinstance(quota, Mapping):
        return {"name": resource, "nominalQuota": str(quota)}
    raw: Obj = {"name": resource, "nominalQuota": str(quota["nominal"])}
    for key, field in (("borrowing", "borrowingLimit"), ("lending", "lendingLimit")):
        if key in quota:
            raw[field] = str(quota[key])
    return raw


def _resource_groups(groups: Iterable[Mapping[str, Mapping[str, Quota]]]) -> list[Obj]:
    return [
        {
            "coveredResources": list(dict.fromkeys(r for quotas in group.values() for r in quotas)),
            "flavors": [
                {"name": flavor, "resources": [_quota(r, quota) for r, quota in quotas.items()]}
                for flavor, quotas in group.items()
            ],
        }
        for group in groups
    ]


def make_cluster_queue(
    name: str,
    *groups: Mapping[str, Mapping[str, Quota]],
    cohort: str = "",
    selector: Mapping[str, Any] | None = None,
    checks: Sequence[str | Mapping[str, Any]] = (),
    **spec: Any,
) -> ClusterQueue:
    """A ClusterQueue.

    Args:
        name: its name.
        groups: one mapping per resource group: flavor to resource to quota, in the order of the
            trial.
        cohort: its cohort.
        selector: its namespace selector; None selects every namespace.
        checks: its admission checks, by name or with `onFlavors`.
        spec: further fields of the spec, spelled as in YAML.
    """
    raw: Obj = {"namespaceSelector": {} if selector is None else dict(selector)}
    raw["resourceGroups"] = _resource_groups(groups)
    if cohort:
        raw["cohortName"] = cohort
    if checks:
        rules = [{"name": rule} if isinstance(rule, str) else dict(rule) for rule in checks]
        raw["admissionChecksStrategy"] = {"admissionChecks": rules}
    return decode(ClusterQueue, _object("ClusterQueue", {"name": name}, spec={**raw, **spec}))


def make_cohort(
    name: str,
    *groups: Mapping[str, Mapping[str, Quota]],
    parent: str = "",
    weight: Amount | float | None = None,
) -> Cohort:
    """A Cohort.

    Args:
        name: its name.
        groups: one mapping per resource group: flavor to resource to quota.
        parent: the cohort above; empty for none.
        weight: its weight in fair sharing; None leaves it out.
    """
    spec: Obj = {"resourceGroups": _resource_groups(groups)}
    if parent:
        spec["parentName"] = parent
    if weight is not None:
        spec["fairSharing"] = {"weight": str(weight)}
    return decode(Cohort, _object("Cohort", {"name": name}, spec=spec))


def make_local_queue(
    name: str, cluster_queue: str, namespace: str = "ns", **spec: Any
) -> LocalQueue:
    """A LocalQueue."""
    meta = {"name": name, "namespace": namespace}
    raw = {"clusterQueue": cluster_queue, **spec}
    return decode(LocalQueue, _object("LocalQueue", meta, spec=raw))


def make_flavor(
    name: str,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, Any]] = (),
    tolerations: Iterable[Mapping[str, Any]] = (),
    **spec: Any,
) -> ResourceFlavor:
    """A ResourceFlavor."""
    spec |= {
        "nodeLabels": dict(labels or {}),
        "nodeTaints": [dict(taint) for taint in taints],
        "tolerations": [dict(toleration) for toleration in tolerations],
    }
    return decode(ResourceFlavor, _object("ResourceFlavor", {"name": name}, spec=spec))


def make_check(name: str, *, active: bool = True, **spec: Any) -> AdmissionCheck:
    """An AdmissionCheck, active or not."""
    status = "True" if active else "False"
    condition = {"type": "Active", "status": status, "reason": "Active", "message": ""}
    condition["lastTransitionTime"] = format_time(0)
    raw = {"controllerName": "example.com/check", **spec}
    obj = _object("AdmissionCheck", {"name": name}, spec=raw, status={"conditions": [condition]})
    return decode(AdmissionCheck, obj)


def make_pod_set(
    requests: Mapping[str, Amount] | None = None,
    name: str = "main",
    count: int = 1,
    min_count: int | None = None,
    **pod: Any,
) -> Obj:
    """A raw pod set with one container.

    Args:
        requests: of the container.
        name: the pod set.
        count: the number of pods.
        min_count: the fewest pods worth starting.
        pod: fields of the pod spec, spelled as in YAML; `containers` replaces the container. Models
            of kubernetes_asyncio may be among the values.
    """
    amounts = {resource: str(amount) for resource, amount in (requests or {}).items()}
    container = {"name": "c", "image": "registry.example/c:1", "resources": {"requests": amounts}}
    pod_set: Obj = {"name": name, "count": count}
    pod_set["template"] = {"spec": without_models({"containers": [container], **pod})}
    if min_count is not None:
        pod_set["minCount"] = min_count
    return pod_set


def make_workload(
    name: str,
    queue: str,
    requests: Mapping[str, Amount] | None = None,
    *,
    namespace: str = "ns",
    priority: int = 0,
    created: float = 0,
    count: int = 1,
    pod_sets: Sequence[Obj] | None = None,
    conditions: Sequence[Obj] = (),
    status: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Workload:
    """A Workload; its name is its UID too.

    Args:
        name: its name.
        queue: its LocalQueue.
        requests: of one pod of the only pod set; unused with `pod_sets`.
        namespace: its namespace.
        priority: its priority.
        created: its creation, in seconds since the epoch.
        count: the number of pods of the only pod set.
        pod_sets: pod sets made with `make_pod_set`.
        conditions: conditions made with `make_condition`.
        status: further fields of the status, spelled as in YAML.
        labels: its labels.
        spec: further fields of the spec, spelled as in YAML.
    """
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "labels": dict(labels or {}),
        "creationTimestamp": format_time(created),
    }
    raw: Obj = {"queueName": queue, "priority": priority}
    raw["podSets"] = list(pod_sets or [make_pod_set(requests, count=count)])
    state = {"conditions": list(conditions), **(status or {})}
    return decode(Workload, _object("Workload", meta, spec={**raw, **spec}, status=state))


def make_condition(type: str, status: bool = True, reason: str = "Test", at: float = 0) -> Obj:
    """A raw condition that changed `at` a time in seconds since the epoch."""
    return {
        "type": type,
        "status": "True" if status else "False",
        "reason": reason,
        "message": "",
        "lastTransitionTime": format_time(at),
    }


def make_assignment(
    usage: Mapping[str, Amount],
    flavors: str | Mapping[str, str],
    name: str = "main",
    count: int | None = 1,
) -> Obj:
    """A raw pod set assignment.

    Args:
        usage: the amounts for all pods together.
        flavors: one flavor for all resources, or the flavor of each.
        name: the pod set.
        count: the number of pods.
    """
    chosen = dict.fromkeys(usage, flavors) if isinstance(flavors, str) else dict(flavors)
    assignment: Obj = {"name": name, "flavors": chosen}
    assignment["resourceUsage"] = {resource: str(amount) for resource, amount in usage.items()}
    if count is not None:
        assignment["count"] = count
    return assignment
