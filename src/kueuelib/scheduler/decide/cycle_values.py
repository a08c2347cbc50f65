"""The input and output of a scheduling cycle."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.kueue import Admission, PodSetRequest, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import quantity_of
from kueuelib.api.struct import frozen
from kueuelib.scheduler.decide.preemption.guard import NOTHING, Past, PolicyFault
from kueuelib.scheduler.decide.preemption.victims import PendingPreemption
from kueuelib.scheduler.pending.tries import Promise, Requeue, TriedFlavors
from kueuelib.scheduler.pending.workload_info import PodSetNeeds, WorkloadInfo
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.snapshot import Frozen
from kueuelib.scheduler.reasons import Reason, condition_reason, render
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.scheduler.values import record, value


@value
class Head:
    """The first workload of a ClusterQueue.

    Attributes:
        info: its computed form.
        cluster_queue: the queue.
        namespace_labels: the labels of its namespace, None when the namespace is not known.
        progress: the flavors that earlier attempts tried already.
        promise: the room for which others were preempted before; None if none were.
        preempted: how often it preempted others since the last outside change of quota.
        helped: whether something else that may help happened since it was promised its room.
    """

    info: WorkloadInfo
    cluster_queue: str
    namespace_labels: Mapping[str, str] | None
    progress: TriedFlavors = ()
    promise: Promise | None = None
    preempted: int = 0
    helped: bool = False


@value
class SecondPass:
    """A Workload that holds quota, and lacks places for its pods (KEP-2724).

    Attributes:
        info: its computed form.
        holder: its charge.
    """

    info: WorkloadInfo
    holder: Holder

    @property
    def head(self) -> Head:
        """The same as a head of its ClusterQueue."""
        return Head(self.info, self.holder.cluster_queue, None)


@value
class CycleInput:
    """Everything that a cycle depends on.

    Attributes:
        heads: at most one per ClusterQueue, in any order.
        frozen: the state of the cache.
        all_ready: whether the pods of every workload that holds quota are ready.
        settings: the administrator's choices.
        past: past preemptions that the preemption policy needs.
        promised: the preemptors that wait, in any order.
        leaving: the Workloads near the heads that are being evicted and still hold quota, if they
            count as gone.
        wanted: what waiting Workloads want of the nominal quota of their ClusterQueue, if that is
            protected.
        second: the Workloads that need a second pass.
    """

    heads: tuple[Head, ...]
    frozen: Frozen
    all_ready: bool = True
    settings: Settings = DEFAULTS
    past: Past = NOTHING
    promised: tuple[Head, ...] = ()
    leaving: tuple[Holder, ...] = ()
    wanted: Mapping[str, Mapping[FlavorResource, int]] = attrs.field(factory=dict)
    second: tuple[SecondPass, ...] = ()


@record
class Admit:
    """A workload that gets quota.

    Attributes:
        key: the workload.
        uid: its UID.
        workload: the object that was evaluated.
        cluster_queue: the queue whose quota it gets.
        admission: for its status.
        admitted: whether it is also Admitted, because all checks that its flavors need are Ready.
        required_checks: these checks.
        wait_seconds: how long it waited, since its creation or its last requeue.
        borrowing: how far up the tree it borrows; 0 within nominal quota.
        usage: its charge, equal to `admission`.
    """

    key: ObjectKey
    uid: str
    workload: Workload
    cluster_queue: str
    admission: Admission
    admitted: bool
    required_checks: tuple[str, ...]
    wait_seconds: float
    borrowing: int
    usage: Amounts


@record
class NewPlaces:
    """New places for the pods of a Workload that holds quota (KEP-2724).

    Attributes:
        key: the Workload.
        uid: its UID.
        workload: the object that was evaluated.
        cluster_queue: the queue whose quota it holds.
        admission: for its status; only the places differ from the present one.
        usage: its charge: the quota of before, and the new places.
    """

    key: ObjectKey
    uid: str
    workload: Workload
    cluster_queue: str
    admission: Admission
    usage: Amounts


@frozen
class NodeEviction:
    """A Workload that is evicted, because no other node can take the pods of a failed one.

    Attributes:
        key: the Workload.
        uid: its UID.
        message: of the condition `Evicted`.
        why: why its pods found no places.
    """

    key: ObjectKey
    uid: str
    message: str
    why: str


@record
class Wait:
    """A workload that gets no quota in this cycle.

    Attributes:
        key: the workload.
        uid: its UID.
        workload: the object that was evaluated.
        cluster_queue: the queue in which it waits.
        reason: why.
        requeue: decides where it goes.
        progress: the flavors that were tried.
        skipped: whether it would have fit without an earlier head.
        promise: the room for which others are preempted; None without a preemption.
        transient: whether the reason is a temporary state of the caches, not worth a status write.
        again: when to retry it even if nothing changes, because candidates that were left out
            may be chosen then.
        pod_sets: its requests.
    """

    key: ObjectKey
    uid: str
    workload: Workload
    cluster_queue: str
    reason: Reason
    requeue: Requeue
    progress: TriedFlavors = ()
    skipped: bool = False
    promise: Promise | None = None
    transient: bool = False
    again: float | None = None
    pod_sets: tuple[PodSetNeeds, ...] = attrs.field(default=(), eq=False)

    @property
    def message(self) -> str:
        """The message of `QuotaReserved=False` and of the event."""
        return render(self.reason)

    @property
    def condition_reason(self) -> str:
        """The reason of `QuotaReserved=False` and of the event."""
        return condition_reason(self.reason)

    @property
    def resource_requests(self) -> tuple[PodSetRequest, ...]:
        """Its requests for the status, without the resource `pods`."""
        return tuple(
            PodSetRequest(
                pod_set.name,
                {
                    name: quantity_of(name, amount)
                    for name, amount in pod_set.requests(pod_set.count, count_pods=False).items()
                },
            )
            for pod_set in self.pod_sets
        )


@frozen
class Plan:
    """The decisions of a cycle.

    Attributes:
        admissions: the workloads that get quota, in the order of the decisions.
        waits: the workloads that don't, those without a nomination last. All of them are queued
            again, those that are parked as well.
        order: the nominated heads in the order they were decided.
        preemptions: the waiting workloads for which others have to leave, in the order of the
            decisions. No Workload is a victim twice.
        faults: failures of the preemption policy.
        skipped_preemptions: by ClusterQueue, how many heads lost their intended room to earlier
            heads.
        recomputations: by ClusterQueue and result, how many heads chose victims again because
            earlier heads took theirs.
        broken: the Workloads that no longer have the room they were promised.
        placed: the Workloads with new places after a second pass.
        evictions: those that found none for the pods of a failed node.
    """

    admissions: tuple[Admit, ...]
    waits: tuple[Wait, ...]
    order: tuple[ObjectKey, ...]
    preemptions: tuple[PendingPreemption, ...] = ()
    faults: tuple[PolicyFault, ...] = ()
    skipped_preemptions: Mapping[str, int] = attrs.field(factory=dict, eq=False)
    recomputations: Mapping[tuple[str, str], int] = attrs.field(factory=dict, eq=False)
    broken: tuple[ObjectKey, ...] = ()
    placed: tuple[NewPlaces, ...] = ()
    evictions: tuple[NodeEviction, ...] = ()
