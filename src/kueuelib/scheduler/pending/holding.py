"""The charge of a Workload that holds quota or is assumed to."""

from __future__ import annotations

from kueuelib.api import conditions, names
from kueuelib.api.kueue import Admission, PodSet, PodSetAssignment, Workload
from kueuelib.api.meta import ObjectKey, is_true
from kueuelib.api.quantity import amount_of
from kueuelib.scheduler.ordering import EVICTION
from kueuelib.scheduler.pending.workload_info import WorkloadInfo, order_of, reclaimable_of
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource, in_flavors, rescaled, total_of
from kueuelib.scheduler.quota.holders import Holder


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
    reserved = None if assumed else conditions.find(stated, names.QUOTA_RESERVED)
    confirmed = reserved is not None and reserved.is_true
    said = conditions.find(stated, names.ADMITTED) if confirmed else None
    return Holder(
        key=workload.key,
        uid=workload.metadata.uid,
        cluster_queue=admission.cluster_queue,
        local_queue=ObjectKey(workload.metadata.namespace, workload.spec.queue_name),
        priority=workload.spec.priority or 0,
        order=order_of(workload, timestamp, by_age=by_age),
        usage=charge(workload, admission),
        reserved_at=reserved.last_transition_time if reserved and confirmed else None,
        admitted=said is not None and said.is_true,
        assumed=assumed,
        evicted=not assumed and is_true(workload, names.EVICTED),
        pods_ready=is_true(workload, names.PODS_READY),
        admitted_at=said.last_transition_time if said and said.is_true else None,
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
