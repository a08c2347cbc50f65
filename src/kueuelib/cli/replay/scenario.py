"""The objects at a time of a recording, as a scenario for `kueuelib.testing.scenarios`.

Scenarios have whole amounts, so CPUs become thousandths. Times become ranks. The decisions are part
of the scenario, so it can be used as a regression test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kueuelib.api import kueue
from kueuelib.api.codec import encode
from kueuelib.api.kueue import Admission, ClusterQueue, Cohort, Workload
from kueuelib.api.meta import Obj, ObjectKey, find, format_micro_time
from kueuelib.api.names import QUOTA_RESERVED
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.workload_state import has_quota, is_admitted, is_evicted
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.facts.workloads import Where
from kueuelib.scheduler.pending.requests import summarize
from kueuelib.scheduler.pending.workload_info import WorkloadInfo, needs_of, order_of, workload_info
from kueuelib.scheduler.quota.amounts import PODS
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.scenario_form import EXCEEDS_QUOTA
from kueuelib.testing.scenarios import run
from kueuelib.testing.topology_scenarios import described_request, shown_domains

CYCLES = 5
"""How many cycles a scenario has."""
_QUEUED = (Where.PENDING, Where.INADMISSIBLE, Where.CLUSTER_QUEUE_INACTIVE)
_NOW = 900_000
"""The time of the recording on the clock of the scenario; the first cycle is later."""


def scenario_of(world: World, at: float) -> tuple[Obj, list[str]]:
    """A scenario, and notes on what it cannot express.

    Args:
        world: the objects.
        at: the time, in seconds since the epoch.
    """
    return _Writer(world, at).result()


class _Writer:
    def __init__(self, world: World, at: float) -> None:
        self._world = world
        self._at = at
        self._left_out: list[str] = []
        counts: dict[str, int] = {}
        for key in world.workloads:
            counts[key.name] = counts.get(key.name, 0) + 1
        self._shared = {name for name, count in counts.items() if count > 1}

    def result(self) -> tuple[Obj, list[str]]:
        world, engine = self._world, self._world.engine(self._at)
        places = self._places()
        admitted, pending = [], []
        for key, workload in world.workloads.items():
            admission = workload.status.admission
            if admission is not None and has_quota(workload):
                admitted.append(self._admitted(workload, admission, places[key]))
                continue
            standing = engine.standing(key)
            if standing.where in _QUEUED:
                pending.append(self._pending(workload, places[key]))
            else:
                why = standing.where.value if standing.reason is None else standing.reason.text
                self._omit(f"Workload {key}, which is not queued ({why})")
        scenario: Obj = {
            "id": f"recorded-{format_micro_time(self._at)}",
            "given": "made from a recording; CPUs are thousandths",
            "cqs": {name: self._queue(queue) for name, queue in world.cluster_queues.items()},
            "cohorts": [self._cohort(cohort) for cohort in world.cohorts.values()],
            "flavors": self._flavors(),
            **self._nodes(),
            "missing_flavors": sorted(self._named_flavors() - set(world.flavors)),
            "namespaces": {name: dict(labels) for name, labels in world.namespaces.items()},
            "admitted": admitted,
            "pending": pending,
            "cycles": CYCLES,
            **self._settings(world.settings),
        }
        for key, local_queue in world.local_queues.items():
            if local_queue.spec.stop_policy != kueue.NONE:
                self._omit(f"the stop of LocalQueue {key}: what waits there is left out")
        return {**scenario, "expect": run(scenario)}, self._left_out

    def _omit(self, text: str) -> None:
        self._left_out.append(text)

    # --- queues

    def _queue(self, cluster_queue: ClusterQueue) -> Obj:
        spec = cluster_queue.spec
        preemption: Obj = {
            "within": spec.preemption.within_cluster_queue,
            "reclaim": spec.preemption.reclaim_within_cohort,
        }
        borrow = spec.preemption.borrow_within_cohort
        if borrow.policy != "Never":
            threshold = borrow.max_priority_threshold
            preemption["bwc"] = {} if threshold is None else {"max": threshold}
        fungible = spec.flavor_fungibility
        queue: Obj = {
            "cohort": spec.cohort_name,
            "groups": self._groups(cluster_queue),
            "strategy": spec.queueing_strategy,
            "stopPolicy": spec.stop_policy,
            "preemption": preemption,
            "fung": {
                "borrow": fungible.when_can_borrow,
                "preempt": fungible.when_can_preempt,
                "preference": fungible.preference,
            },
        }
        selector = spec.namespace_selector
        if selector is not None:
            queue["nsSelector"] = dict(selector.match_labels)
            if selector.match_expressions:
                self._omit(
                    "matchExpressions of the namespaceSelector of "
                    f"ClusterQueue {cluster_queue.name}"
                )
        else:
            self._omit(f"that ClusterQueue {cluster_queue.name} admits no namespace")
        if spec.admission_checks_strategy is not None:
            self._omit(f"the AdmissionChecks of ClusterQueue {cluster_queue.name}")
        if spec.admission_scope is not None:
            self._omit(f"the admissionScope of ClusterQueue {cluster_queue.name}")
        return {**queue, **_weight(cluster_queue)}

    def _cohort(self, cohort: Cohort) -> Obj:
        return {
            "name": cohort.name,
            "parent": cohort.spec.parent_name,
            "groups": self._groups(cohort),
            **_weight(cohort),
        }

    def _groups(self, owner: ClusterQueue | Cohort) -> list[Obj]:
        return [
            {
                flavor.name: {quota.name: _quota(quota) for quota in flavor.resources}
                for flavor in group.flavors
            }
            for group in owner.spec.resource_groups
        ]

    def _named_flavors(self) -> set[str]:
        places: Iterable[ClusterQueue | Cohort] = (
            *self._world.cluster_queues.values(),
            *self._world.cohorts.values(),
        )
        return {
            flavor.name
            for place in places
            for group in place.spec.resource_groups
            for flavor in group.flavors
        }

    def _flavors(self) -> Obj:
        return {
            name: {
                "labels": dict(flavor.spec.node_labels),
                "taints": [_rule(taint) for taint in flavor.spec.node_taints],
                "tol": [_rule(toleration) for toleration in flavor.spec.tolerations],
                **({"topologyName": topology} if (topology := flavor.spec.topology_name) else {}),
            }
            for name, flavor in self._world.flavors.items()
        }

    def _nodes(self) -> Obj:
        """Topologies, nodes, and the pods on them that are outside of the queue."""
        world = self._world
        if not world.topologies:
            return {}
        nodes = [
            {
                "name": node.name,
                "labels": dict(node.labels),
                "alloc": dict(node.capacity),
                "taints": [_rule(taint) for taint in node.taints],
                "ready": node.ready,
                "unschedulable": node.cordoned,
            }
            for node in world.nodes.values()
        ]
        pods = [
            {
                "name": str(key),
                "node": pod.node,
                "req": {name: n for name, n in (pod.request or {}).items() if name != PODS},
            }
            for key, pod in world.foreign_pods.items()
        ]
        levels = {
            name: [level.node_label for level in topology.spec.levels]
            for name, topology in world.topologies.items()
        }
        return {"topologies": levels, "nodes": nodes, "pods": pods}

    def _settings(self, settings: Settings) -> Obj:
        if settings.block_admission:
            self._omit("waitForPodsReady.blockAdmission")
        if settings.past_usage is not None:
            self._omit("admissionFairSharing")
        if settings.resources.ignores_undeclared:
            self._omit("resources.quotaCheckStrategy")
        if settings.preemption != Settings().preemption:
            self._omit(f"the preemption policy {settings.preemption.name}")
        data: Obj = {EXCEEDS_QUOTA: True} if settings.exceeds_quota else {}
        if settings.fair_sharing is not None:
            strategies = list(settings.fair_sharing.strategies)
            data["fairSharing"] = {"enable": True, "preemptionStrategies": strategies}
        return data

    # --- workloads

    def _places(self) -> dict[ObjectKey, int]:
        """The place of every Workload in the order of the queues, which follows from its
        creation.
        """
        timestamp = self._world.settings.queue_timestamp
        by_age = sorted(
            self._world.workloads.values(),
            key=lambda each: (
                order_of(each, timestamp).queued_at,
                self._world.home_of(each),
                each.uid,
            ),
        )
        return {each.key: place for place, each in enumerate(by_age)}

    def _name(self, key: ObjectKey) -> str:
        return f"{key.namespace}.{key.name}" if key.name in self._shared else key.name

    def _workload(self, workload: Workload, cluster_queue: str, place: int) -> Obj:
        return {
            "name": self._name(workload.key),
            "cq": cluster_queue,
            "ns": workload.namespace,
            "prio": workload.spec.priority or 0,
            "created": place,
        }

    def _pending(self, workload: Workload, place: int) -> Obj:
        data = self._workload(workload, self._world.home_of(workload), place)
        if workload.status.admission_checks:
            self._omit(f"the check states of Workload {workload.key}")
        return {**data, "podsets": list(self._pod_sets(workload))}

    def _admitted(self, workload: Workload, admission: Admission, place: int) -> Obj:
        data = self._workload(workload, admission.cluster_queue, place)
        reserved = find(workload.status.conditions, QUOTA_RESERVED)
        assert reserved is not None, "it holds quota"
        assigned = {one.name: one for one in admission.pod_set_assignments}
        sets = []
        for one in self._pod_sets(workload):
            given = assigned.get(one["name"])
            if given is not None:
                one["flv"] = dict(given.flavors)
                if given.count is not None:
                    one["assigned"] = given.count
                placed = given.topology_assignment
                if placed is not None:
                    one["assignment"] = shown_domains(placed)
            sets.append(one)
        data |= {"t": _at(reserved.last_transition_time, self._at), "podsets": sets}
        if not is_admitted(workload):
            data["reserved_only"] = True
        if is_evicted(workload):
            data["evicted"] = True
        return data

    def _pod_sets(self, workload: Workload) -> Iterator[Obj]:
        reclaimed = {one.name: one.count for one in workload.status.reclaimable_pods}
        for one in self._info(workload).pod_sets:
            spec = one.spec.template.spec
            if spec.affinity is not None:
                self._omit(f"the node affinity of Workload {workload.key}")
            pod_set: Obj = {
                "name": one.name,
                "req": {name: amount for name, amount in one.per_pod.items() if name != PODS},
                "count": one.spec.count,
                "sel": dict(spec.node_selector),
                "tol": [_rule(toleration) for toleration in spec.tolerations],
            }
            if one.spec.topology_request is not None:
                pod_set["topology"] = described_request(one.spec.topology_request)
            if one.min_count is not None:
                pod_set["min"] = one.min_count
            if reclaimed.get(one.name):
                pod_set["reclaimed"] = reclaimed[one.name]
            yield pod_set

    def _info(self, workload: Workload) -> WorkloadInfo:
        limits = summarize(
            limit_range
            for key, limit_range in self._world.limit_ranges.items()
            if key.namespace == workload.namespace
        )
        rules = self._world.settings.resources
        needs = needs_of(workload, limits, self._world.runtime_classes, rules)
        return workload_info(workload, needs)


def _at(instant: float, now: float) -> int:
    return max(0, int(instant - now) + _NOW)


def _quota(quota: Any) -> str:
    amounts: Sequence[Quantity | None] = (
        quota.nominal_quota,
        quota.borrowing_limit,
        quota.lending_limit,
    )
    texts = ["-" if one is None else str(amount_of(quota.name, one)) for one in amounts]
    return "/".join(texts)


def _weight(owner: ClusterQueue | Cohort) -> Obj:
    sharing = owner.spec.fair_sharing
    return {} if sharing is None else {"fairSharing": {"weight": str(sharing.weight)}}


def _rule(rule: Any) -> Obj:
    return {key: value for key, value in encode(rule).items() if key != "timeAdded"}
