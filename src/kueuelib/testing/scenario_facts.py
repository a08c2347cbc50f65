"""The initial facts of a scenario, in the form that an engine observes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kueuelib.api.kueue import Cohort, Workload
from kueuelib.api.meta import Obj
from kueuelib.api.names import ADMITTED, EVICTED, QUOTA_RESERVED
from kueuelib.scheduler import events
from kueuelib.scheduler.settings import BOTH_STRATEGIES, FairSharing, Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)
from kueuelib.testing.scenario_form import EXCEEDS_QUOTA

_POLICIES = {"within": "withinClusterQueue", "reclaim": "reclaimWithinCohort"}
_FUNGIBILITY = {"borrow": "whenCanBorrow", "preempt": "whenCanPreempt", "preference": "preference"}
_MAY_STOP = ("Borrow", "Preempt")


def settings_of(scenario: Mapping[str, Any]) -> Settings:
    """The administrator's choices in a scenario; Kueue, whose decisions these are, lets those
    behind a preemptor wait.
    """
    gates = scenario.get("gates", {})
    return Settings(
        parallel_preemptors=False,
        flavor_fungibility=gates.get("FlavorFungibility", True),
        partial_admission=gates.get("PartialAdmission", True),
        priority_sorting=gates.get("PrioritySortingWithinCohort", True),
        exceeds_quota=scenario.get(EXCEEDS_QUOTA, False),
        fair_sharing=_fair_sharing(scenario.get("fairSharing", {})),
    )


def facts(scenario: Mapping[str, Any]) -> Iterator[events.Event]:
    """The facts of a scenario before its first cycle.

    Args:
        scenario: its description, which `check` has accepted.
    """
    for name, labels in {"default": {}, **scenario.get("namespaces", {})}.items():
        yield events.NamespaceSet(name, labels)
    flavors: dict[str, Any] = {
        name: {}
        for queue in scenario["cqs"].values()
        for group in queue["groups"]
        for name in group
    }
    flavors.update(scenario.get("flavors", {}))
    for name, description in flavors.items():
        if name not in scenario.get("missing_flavors", ()):
            taints = [_taint(taint) for taint in description.get("taints", ())]
            flavor = make_flavor(
                name, description.get("labels"), taints, description.get("tol", ())
            )
            yield events.FlavorSet(flavor)
    for name, queue in scenario["cqs"].items():
        yield events.ClusterQueueSet(_cluster_queue(name, queue))
    for cohort in scenario.get("cohorts", ()):
        yield events.CohortChanged(_cohort(cohort))
    workloads = [*scenario.get("admitted", ()), *scenario.get("pending", ())]
    for namespace, name in sorted({(namespace_of(one), one["cq"]) for one in workloads}):
        yield events.LocalQueueSet(make_local_queue(name, name, namespace))
    for one in scenario.get("admitted", ()):
        yield events.WorkloadSet(_admitted(one))
    for one in scenario.get("pending", ()):
        if "arrive" not in one:
            yield events.WorkloadSet(pending(one))


def namespace_of(workload: Mapping[str, Any]) -> str:
    """The namespace of a described workload."""
    namespace: str = workload.get("ns", "default")
    return namespace


def _fair_sharing(sharing: Mapping[str, Any]) -> FairSharing | None:
    if not sharing.get("enable"):
        return None
    return FairSharing(tuple(sharing.get("preemptionStrategies", BOTH_STRATEGIES)))


def _taint(taint: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(taint, str):
        key, value, effect, _ = taint.strip("{}").split(" ")
        return {"key": key, "value": value, "effect": effect}
    return taint


def _cluster_queue(name: str, queue: Mapping[str, Any]) -> Any:
    spec: Obj = {"queueingStrategy": queue.get("strategy", "BestEffortFIFO")}
    policies = queue.get("preemption", {})
    preemption: Obj = {_POLICIES[key]: policies[key] for key in _POLICIES if key in policies}
    if "bwc" in policies:
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        if (policies["bwc"] or {}).get("max") is not None:
            preemption["borrowWithinCohort"]["maxPriorityThreshold"] = policies["bwc"]["max"]
    spec["preemption"] = preemption
    spec["flavorFungibility"] = {
        _FUNGIBILITY[key]: "MayStopSearch" if value in _MAY_STOP else value
        for key, value in queue.get("fung", {}).items()
    }
    spec["stopPolicy"] = queue.get("stopPolicy", "None" if queue.get("active", True) else "Hold")
    if "fairSharing" in queue:
        spec["fairSharing"] = {key: str(value) for key, value in queue["fairSharing"].items()}
    selector = queue.get("nsSelector")
    return make_cluster_queue(
        name,
        *_groups(queue),
        cohort=queue.get("cohort", ""),
        selector=None if selector is None else {"matchLabels": selector},
        **spec,
    )


def _cohort(cohort: Mapping[str, Any]) -> Cohort:
    weight = cohort.get("fairSharing", {}).get("weight")
    groups = _groups(cohort)
    return make_cohort(cohort["name"], *groups, parent=cohort.get("parent", ""), weight=weight)


def _groups(owner: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The resource groups of a ClusterQueue or cohort, in the form of the builders."""
    for group in owner.get("groups", ()):
        yield {
            flavor: {resource: _quota(quota) for resource, quota in quotas.items()}
            for flavor, quotas in group.items()
        }


def _quota(quota: int | str) -> Mapping[str, str]:
    parts = zip(("nominal", "borrowing", "lending"), str(quota).split("/"), strict=False)
    return {key: text for key, text in parts if text != "-"}


def pod_sets(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The descriptions of the pod sets of a described workload."""
    return list(
        workload.get("podsets") or [{"req": workload["req"], "flv": workload.get("flv", {})}]
    )


def _workload(workload: Mapping[str, Any], conditions: list[Obj], **status: Any) -> Workload:
    sets, reclaimable = [], []
    for one in pod_sets(workload):
        name = one.get("name", "main")
        pod: Obj = {"nodeSelector": one.get("sel", {}), "tolerations": list(one.get("tol", ()))}
        sets.append(make_pod_set(one["req"], name, one.get("count", 1), one.get("min"), **pod))
        if one.get("reclaimed"):
            reclaimable.append({"name": name, "count": one["reclaimed"]})
    return make_workload(
        workload["name"],
        workload["cq"],
        namespace=namespace_of(workload),
        priority=workload.get("prio", 0),
        created=workload.get("created", 0),
        pod_sets=sets,
        conditions=conditions,
        status={"reclaimablePods": reclaimable, **status},
    )


def pending(workload: Mapping[str, Any]) -> Workload:
    """A described waiting workload."""
    return _workload(workload, [])


def _admitted(workload: Mapping[str, Any]) -> Workload:
    at = workload.get("t", 0)
    conditions = [make_condition(QUOTA_RESERVED, reason="QuotaReserved", at=at)]
    if not workload.get("reserved_only"):
        conditions.append(make_condition(ADMITTED, reason="Admitted", at=at))
    if workload.get("evicted"):
        conditions.append(make_condition(EVICTED, reason="Preempted", at=at))
    assignments = []
    for one in pod_sets(workload):
        count = one.get("assigned", one.get("count", 1))
        usage = {resource: amount * count for resource, amount in one["req"].items()}
        flavors = one.get("flv") or workload.get("flv", {})
        if not isinstance(flavors, str) and "pods" in flavors:
            usage["pods"] = count
        assignments.append(make_assignment(usage, flavors, one.get("name", "main"), count))
    admission = {"clusterQueue": workload["cq"], "podSetAssignments": assignments}
    return _workload(workload, conditions, admission=admission)
