"""What goes into a scheduling cycle and what comes out of it (spec/scheduling 4)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.kueue import Admission, PodSetRequest, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import quantity_of
from kueuelib.scheduler.decide.preemption.guard import PolicyFault
from kueuelib.scheduler.decide.preemption.history import NOTHING, Past
from kueuelib.scheduler.decide.preemption.victims import Preemption
from kueuelib.scheduler.pending.item import Progress, Promise, Requeue
from kueuelib.scheduler.pending.workload_info import PodSetNeeds, WorkloadInfo
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.snapshot import Frozen
from kueuelib.scheduler.reasons import Reason, condition_reason, render
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.scheduler.values import record, value


@value
class Head:
    """The first workload of a ClusterQueue.

    Attributes:
        info: what it asks for.
        cluster_queue: the queue.
        namespace_labels: the labels of its namespace, None when the namespace is not known.
        progress: the flavors that earlier attempts tried already.
        promise: what others were preempted for before; None if no preemption happened.
        preempted: how often it made others leave since quota moved from outside.
    """

    info: WorkloadInfo
    cluster_queue: str
    namespace_labels: Mapping[str, str] | None
    progress: Progress = ()
    promise: Promise | None = None
    preempted: int = 0


@value
class CycleInput:
    """Everything that a cycle depends on.

    Attributes:
        heads: at most one per ClusterQueue, in any order.
        frozen: the state of the cache.
        all_ready: whether the pods of every workload that holds quota are ready.
        settings: the administrator's choices.
        past: past preemptions, as far as the preemption policy needs them.
    """

    heads: tuple[Head, ...]
    frozen: Frozen
    all_ready: bool = True
    settings: Settings = DEFAULTS
    past: Past = NOTHING


@record
class Admit:
    """A workload that gets quota.

    Attributes:
        key: the workload.
        uid: its UID.
        workload: the object that was evaluated.
        cluster_queue: the queue whose quota it gets.
        admission: what to write to its status.
        admitted: whether it is Admitted as well: all checks that its flavors need are Ready.
        required_checks: these checks.
        wait_seconds: how long it waited, since its creation or its last eviction.
        borrowing: how far up the tree it borrows, 0 when it stays within nominal quota.
        usage: what it is charged for, which is what `admission` says.
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
class Wait:
    """A workload that gets no quota in this cycle.

    Attributes:
        key: the workload.
        uid: its UID.
        workload: the object that was evaluated.
        cluster_queue: the queue in which it waits.
        reason: why.
        requeue: where it goes.
        progress: the flavors that were tried.
        skipped: whether it would have fit, had another head not been first.
        promise: what others are preempted for; None without a preemption.
        transient: whether the reason is a passing state of the caches, not worth a status write.
        again: when to try it again though nothing changes, because the preemption policy said so.
        pod_sets: what it asks for.
    """

    key: ObjectKey
    uid: str
    workload: Workload
    cluster_queue: str
    reason: Reason
    requeue: Requeue
    progress: Progress = ()
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
        """What to write about its requests; the pods themselves are not among them."""
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


@attrs.frozen
class Plan:
    """What a cycle decided.

    Attributes:
        admissions: the workloads that get quota, in the order of the decisions.
        waits: the workloads that don't, those without a nomination last. All of them are queued
            again, those that are parked as well.
        order: the nominated heads in the order in which they were decided.
        preemptions: the waiting workloads for which others have to leave, in the order of the
            decisions; no Workload is a victim twice.
        faults: where the preemption policy failed.
        skipped_preemptions: by ClusterQueue, how many heads lost what they wanted to preempt for to
            heads before them.
        recomputations: by ClusterQueue and result, how many heads chose victims again, because
            heads before them took theirs.
    """

    admissions: tuple[Admit, ...]
    waits: tuple[Wait, ...]
    order: tuple[ObjectKey, ...]
    preemptions: tuple[Preemption, ...] = ()
    faults: tuple[PolicyFault, ...] = ()
    skipped_preemptions: Mapping[str, int] = attrs.field(factory=dict, eq=False)
    recomputations: Mapping[tuple[str, str], int] = attrs.field(factory=dict, eq=False)
