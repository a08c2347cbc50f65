"""A Workload in the form that the scheduler uses.

The information is made once per change of the object, of a LimitRange or of a RuntimeClass, and
never changed: queues, cycles and charges use the same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

import attrs

from kueuelib.api import names
from kueuelib.api.core import RuntimeClass
from kueuelib.api.kueue import (
    CHECK_REJECTED,
    CHECK_RETRY,
    Admission,
    PodSet,
    PodSetAssignment,
    Workload,
)
from kueuelib.api.meta import ObjectKey, find, is_true, since
from kueuelib.api.missing_features import (
    CLAIMS,
    MissingFeature,
    asked_by_keys,
    asked_by_pod_set,
    asked_by_topology,
)
from kueuelib.api.nodes import required_node_affinity
from kueuelib.api.quantity import amount_of
from kueuelib.api.workload import TopologyRequest
from kueuelib.api.workload_state import is_evicted
from kueuelib.scheduler.object_reasons import (
    PENDING_EVALUATION,
    REPORTED,
    VERDICTS,
    WAITING_FOR_PREEMPTED,
    FeaturesMissing,
    InvalidResources,
    LimitRangeViolated,
    ResourceProblem,
)
from kueuelib.scheduler.ordering import EVICTION, QueueOrder, queue_order
from kueuelib.scheduler.pending.requests import (
    LimitSummary,
    PodRequest,
    excessive_requests,
    limit_range_violations,
    pod_request,
)
from kueuelib.scheduler.quota.amounts import (
    PODS,
    Amounts,
    FlavorResource,
    Requests,
    in_flavors,
    rescaled,
    total_of,
)
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.resource_rules import AS_REQUESTED, ResourceRules
from kueuelib.scheduler.reasons import Reason, condition_reason, render
from kueuelib.scheduler.values import value

_GO_TO_THE_BACK = (names.REASON_PODS_READY_TIMEOUT, names.REASON_ADMISSION_CHECK)
"""Evictions caused by the workload itself: it loses its place and may have to back off.
"""
_WORKLOAD = "the Workload"

Shape = str
"""Workloads of one ClusterQueue with equal shapes get equal verdicts from equal states."""


@value
class PodSetNeeds:
    """The requests of one pod set.

    Attributes:
        name: its name.
        count: the pods that still need quota: those of the spec without reclaimable ones.
        min_count: the fewest pods that are worth starting, None for all.
        per_pod: the counted requests of one pod.
        spec: the pod set itself, for its selectors and tolerations.
        on_node: what one pod requests of its node, whether quota counts it or not.
        topology: what the pods ask of a topology, if such requests are served (KEP-2724).
    """

    name: str
    count: int
    min_count: int | None
    per_pod: Requests
    spec: PodSet
    on_node: Requests = attrs.field(factory=dict)
    topology: TopologyRequest | None = None

    @property
    def slack(self) -> int:
        """How many of its pods it may start without."""
        return 0 if self.min_count is None else max(0, self.count - self.min_count)

    def requests(self, count: int, *, count_pods: bool) -> Requests:
        """The request of `count` pods, including the resource `pods` if it is counted."""
        if count == 1 and not count_pods:
            return self.per_pod
        requests = {resource: amount * count for resource, amount in self.per_pod.items()}
        return {**requests, PODS: count} if count_pods else requests


@value
class WorkloadInfo:
    """A pending Workload.

    Attributes:
        workload: the object.
        local_queue: the LocalQueue that it names.
        priority: its priority.
        order: its place in its ClusterQueue.
        pod_sets: its requests.
        invalid: why it cannot be admitted with any quota, or None.
        not_before: the end of its back-off in seconds since the epoch, or None.
        failed_checks: its checks in state Retry or Rejected.
        shape: everything that its verdict depends on besides the state of its ClusterQueue.
        key: namespace and name.
        uid: the UID of the Workload.
    """

    workload: Workload
    local_queue: ObjectKey
    priority: int
    order: QueueOrder
    pod_sets: tuple[PodSetNeeds, ...]
    invalid: Reason | None
    not_before: float | None
    failed_checks: tuple[str, ...]
    shape: Shape
    key: ObjectKey
    uid: str

    def least(self) -> dict[str, int]:
        """Per resource, the smallest request of any pod set, with the fewest pods that it
        accepts.
        """
        least: dict[str, int] = {}
        for pod_set in self.pod_sets:
            fewest = (
                pod_set.count
                if pod_set.min_count is None
                else min(pod_set.count, pod_set.min_count)
            )
            for resource, amount in pod_set.requests(fewest, count_pods=True).items():
                least[resource] = min(amount, least.get(resource, amount))
        return least

    def asks_the_same(self, other: WorkloadInfo) -> bool:
        """Whether a new state of the object gets the same verdict.

        Labels, other conditions and messages don't matter; spec, defaults, reclaimable pods, its
        place in the queue, eviction, back-off and check states do.
        """
        mine, new = self.workload, other.workload
        return (
            self.order == other.order  # with the UID
            and mine.spec == new.spec
            and mine.status.reclaimable_pods == new.status.reclaimable_pods
            and self.not_before == other.not_before
            and self.invalid == other.invalid
            and _states(mine) == _states(new)
            and _eviction(mine) == _eviction(new)
            and all(
                a.per_pod == b.per_pod for a, b in zip(self.pod_sets, other.pod_sets, strict=True)
            )
        )


def _states(workload: Workload) -> list[tuple[str, str]]:
    return [(check.name, check.state) for check in workload.status.admission_checks]


def _eviction(workload: Workload) -> tuple[str, str, float] | None:
    condition = find(workload.status.conditions, names.EVICTED)
    return (
        (condition.status, condition.reason, condition.last_transition_time) if condition else None
    )


@value
class Needs:
    """What a Workload asks for.

    Attributes:
        pod_sets: as in `WorkloadInfo`.
        invalid: why its requests cannot be admitted with any quota, or None.
        shape: as in `WorkloadInfo`.
        asked: the requests of its pod sets for features that are missing.
    """

    pod_sets: tuple[PodSetNeeds, ...]
    invalid: Reason | None
    shape: Shape
    asked: tuple[MissingFeature, ...] = ()


def needs_of(
    workload: Workload,
    limits: LimitSummary,
    runtime_classes: Mapping[str, RuntimeClass],
    rules: ResourceRules = AS_REQUESTED,
    *,
    places_pods: bool = True,
) -> Needs:
    """What a Workload asks for: depends on its pod sets, reclaimable pods and priority only.

    Args:
        workload: the object.
        limits: the LimitRanges of its namespace.
        runtime_classes: the RuntimeClasses that exist, by name.
        rules: for counting resources.
        places_pods: whether requests for a topology are served.
    """
    reclaimable = reclaimable_of(workload)
    excessive: list[ResourceProblem] = []
    outside: list[ResourceProblem] = []
    asked: list[MissingFeature] = []
    pod_sets = []
    for pod_set in workload.spec.pod_sets:
        request = _request(pod_set, limits, runtime_classes)
        excessive += excessive_requests(pod_set.name, request, limits)
        outside += limit_range_violations(pod_set.name, request, limits)
        asked += _asked(pod_set, rules, places_pods=places_pods)
        count = max(0, pod_set.count - reclaimable.get(pod_set.name, 0))
        per_pod = rules.counted(request.per_pod)
        on_node = per_pod if rules is AS_REQUESTED else AS_REQUESTED.counted(request.per_pod)
        topology = pod_set.topology_request if places_pods else None
        pod_sets.append(
            PodSetNeeds(pod_set.name, count, pod_set.min_count, per_pod, pod_set, on_node, topology)
        )
    invalid: Reason | None = None
    if excessive:
        invalid = InvalidResources(tuple(excessive))
    elif outside:
        invalid = LimitRangeViolated(tuple(outside))
    return Needs(tuple(pod_sets), invalid, _shape(workload, pod_sets), tuple(asked))


def asked_by(
    workload: Workload, rules: ResourceRules = AS_REQUESTED, *, places_pods: bool = True
) -> tuple[MissingFeature, ...]:
    """The requests of a Workload for features that are missing.

    Args:
        workload: the object.
        rules: for counting resources.
        places_pods: whether requests for a topology are served.
    """
    asked = [*_asked_by_metadata(workload)]
    for pod_set in workload.spec.pod_sets:
        asked += _asked(pod_set, rules, places_pods=places_pods)
    return tuple(asked)


def _asked_by_metadata(workload: Workload) -> Iterator[MissingFeature]:
    meta = workload.metadata
    return asked_by_keys(_WORKLOAD, meta.labels, meta.annotations)


def _asked(pod_set: PodSet, rules: ResourceRules, *, places_pods: bool) -> Iterator[MissingFeature]:
    """The requests of a pod set for features that are missing."""
    meta, claims = pod_set.template.metadata, pod_set.template.spec.extra.get(CLAIMS)
    yield from asked_by_pod_set(
        pod_set.name, meta.labels, meta.annotations, claims, admits_claims=rules.admits_claims
    )
    if not places_pods:
        yield from asked_by_topology(pod_set.name, pod_set.topology_request)


def workload_info(
    workload: Workload, needs: Needs, *, timestamp: str = EVICTION, by_age: bool = False
) -> WorkloadInfo:
    """The scheduler's form of a pending Workload.

    Args:
        workload: the object.
        needs: what it asks for.
        timestamp: the setting `requeuingStrategy.timestamp`, Eviction or Creation.
        by_age: whether only age decides between the heads of a cohort.
    """
    key = workload.key
    checks = workload.status.admission_checks
    invalid, shape = needs.invalid, needs.shape
    asked = (*_asked_by_metadata(workload), *needs.asked)
    if asked:
        invalid, shape = FeaturesMissing(asked), f"{shape} {asked}"
    return WorkloadInfo(
        workload,
        ObjectKey(key.namespace, workload.spec.queue_name),
        workload.spec.priority or 0,
        order_of(workload, timestamp, by_age=by_age),
        needs.pod_sets,
        invalid,
        _not_before(workload),
        tuple([one.name for one in checks if one.state in (CHECK_RETRY, CHECK_REJECTED)]),
        shape,
        key,
        workload.metadata.uid,
    )


def _shape(workload: Workload, pod_sets: list[PodSetNeeds]) -> Shape:
    """A text of everything that affects the choice of flavors, including the priority, for
    preemption.
    """
    parts: list[object] = [workload.spec.priority or 0]
    for pod_set in pod_sets:
        spec = pod_set.spec.template.spec
        parts += (
            pod_set.name,
            pod_set.count,
            pod_set.min_count,
            sorted(pod_set.per_pod.items()),
            sorted(spec.node_selector.items()),
            spec.tolerations,
            required_node_affinity(spec),
        )
        if pod_set.topology is not None:
            parts += (pod_set.topology, sorted(pod_set.on_node.items()))
    return sha256(repr(parts).encode()).hexdigest()


def _request(
    pod_set: PodSet, limits: LimitSummary, runtime_classes: Mapping[str, RuntimeClass]
) -> PodRequest:
    spec = pod_set.template.spec
    return pod_request(spec, limits, runtime_classes.get(spec.runtime_class_name))


def reclaimable_of(workload: Workload) -> dict[str, int]:
    """How many pods of each pod set no longer need quota."""
    return {entry.name: max(0, entry.count) for entry in workload.status.reclaimable_pods}


def order_of(workload: Workload, timestamp: str = EVICTION, *, by_age: bool = False) -> QueueOrder:
    """The place of a Workload in its ClusterQueue.

    Its creation decides its place, unless it was evicted because its pods were not ready in time or
    because of a check, and the setting is Eviction.

    If only age decides between the heads of a cohort, a workload preempted by a borrower is queued
    behind it. Otherwise the older one would borrow and be preempted again, forever.
    """
    created = workload.metadata.creation_timestamp
    queued_at = 0.0 if created is None else created
    if timestamp == EVICTION:
        evicted = find(workload.status.conditions, names.EVICTED)
        if evicted and evicted.is_true and evicted.reason in _GO_TO_THE_BACK:
            queued_at = evicted.last_transition_time
    if by_age:
        lost = find(workload.status.conditions, names.PREEMPTED)
        if lost and lost.is_true and lost.reason == names.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING:
            queued_at = lost.last_transition_time + 0.001
    return queue_order(workload.spec.priority or 0, queued_at, workload.metadata.uid)


def _not_before(workload: Workload) -> float | None:
    """The end of the back-off; it counts only while the eviction that caused it lasts (3.7)."""
    state = workload.status.requeue_state
    if state is None or state.requeue_at is None:
        return None
    evicted = find(workload.status.conditions, names.EVICTED)
    if evicted is None or not evicted.is_true:
        return None
    return state.requeue_at if evicted.reason in _GO_TO_THE_BACK else None


# --- what its conditions say


def waits_for_victims(workload: Workload) -> bool:
    """Whether it waits for others that it preempted to leave, as its condition says."""
    condition = find(workload.status.conditions, names.QUOTA_RESERVED)
    waits = condition is not None and condition.reason == WAITING_FOR_PREEMPTED
    return waits and has_verdict(workload)


def has_verdict(workload: Workload) -> bool:
    """Whether its condition is the result of a try, and its spec has not changed since."""
    condition = find(workload.status.conditions, names.QUOTA_RESERVED)
    if condition is None or condition.is_true or condition.reason not in VERDICTS:
        return False
    return condition.observed_generation in (None, workload.metadata.generation)


def is_outdated(workload: Workload, reason: Reason, *, tried: bool) -> bool:
    """Whether its condition contradicts the verdict, because it was stored late.

    Args:
        workload: one without quota.
        reason: the verdict.
        tried: False if it waits for its turn, so that naming the head is also correct.
    """
    condition = find(workload.status.conditions, names.QUOTA_RESERVED)
    if condition is None or condition.is_true or condition.reason not in REPORTED:
        return False
    if condition.reason == PENDING_EVALUATION and not tried:
        return False
    if condition.observed_generation not in (None, workload.metadata.generation):
        return True
    return (condition.reason, condition.message) != (condition_reason(reason), render(reason))


def missing_pods(workload: Workload) -> str:
    """What its condition says about the pods without which it stays out of its queue; empty if it
    lacks none.
    """
    requeued = find(workload.status.conditions, names.REQUEUED)
    if requeued is None or requeued.is_true or requeued.reason != names.REASON_PODS_MISSING:
        return ""
    return requeued.message or "The workload waits for its pods"


def gates_of(workload: Workload) -> tuple[str, ...]:
    """The gates that keep it out of its queue."""
    return names.admission_gates(workload.metadata.annotations)


# ---- the charge of a Workload that holds quota or is assumed to ----------------------------------


def charge(workload: Workload, admission: Admission) -> dict[FlavorResource, int]:
    """The charge of a Workload with an admission.

    For each pod set, the number of charged pods is the smaller of the admitted pods and of those
    that are not reclaimable yet.
    """
    specs = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    reclaimable = reclaimable_of(workload)
    parts = [
        _assigned(assignment, specs.get(assignment.name), reclaimable.get(assignment.name, 0))
        for assignment in admission.pod_set_assignments
    ]
    return parts[0] if len(parts) == 1 else total_of(parts)


def _assigned(
    assignment: PodSetAssignment, spec: PodSet | None, reclaimable: int
) -> dict[FlavorResource, int]:
    total = {name: max(0, amount_of(name, q)) for name, q in assignment.resource_usage.items()}
    declared = spec.count if spec is not None else assignment.count or 0
    assigned = declared if assignment.count is None else assignment.count
    target = min(assigned, max(0, declared - reclaimable))
    if target != assigned:
        total = rescaled(total, assigned, target)
    return in_flavors(total, assignment.flavors)


def holder_of(
    workload: Workload,
    admission: Admission,
    *,
    assumed: bool,
    timestamp: str = EVICTION,
    by_age: bool = False,
) -> Holder:
    """The charge of a Workload that holds quota or is assumed to.

    Args:
        workload: the object.
        admission: the quota that it holds.
        assumed: whether the API server has yet to confirm it.
        timestamp: the setting `requeuingStrategy.timestamp`.
        by_age: whether only age decides between the heads of a cohort.
    """
    stated = workload.status.conditions
    reserved_at = None if assumed else since(stated, names.QUOTA_RESERVED)
    admitted_at = None if reserved_at is None else since(stated, names.ADMITTED)
    return Holder(
        key=workload.key,
        uid=workload.metadata.uid,
        cluster_queue=admission.cluster_queue,
        local_queue=ObjectKey(workload.metadata.namespace, workload.spec.queue_name),
        priority=workload.spec.priority or 0,
        order=order_of(workload, timestamp, by_age=by_age),
        usage=charge(workload, admission),
        reserved_at=reserved_at,
        admitted=admitted_at is not None,
        assumed=assumed,
        evicted=not assumed and is_evicted(workload),
        pods_ready=is_true(workload, names.PODS_READY),
        admitted_at=admitted_at,
        labels=workload.metadata.labels,
    )


def assumed_holder(
    info: WorkloadInfo, cluster_queue: str, usage: Amounts, *, admitted: bool
) -> Holder:
    """The charge of a pending Workload that is assumed to hold quota from now on.

    Args:
        info: the Workload.
        cluster_queue: its ClusterQueue.
        usage: its charge.
        admitted: whether all its checks have passed.
    """
    workload = info.workload
    reserved_at = admitted_at = None
    assumed, evicted = True, False
    return Holder(
        info.key,
        info.uid,
        cluster_queue,
        info.local_queue,
        info.priority,
        info.order,
        usage,
        reserved_at,
        admitted,
        assumed,
        evicted,
        is_true(workload, names.PODS_READY),
        admitted_at,
        workload.metadata.labels,
    )
