"""One scheduling cycle as a pure function: heads and a snapshot in, a plan out (spec/scheduling 4).

1. Every head is nominated against the same snapshot: checked, and given flavors.
2. The nominated heads are sorted.
3. In that order each one is admitted if it still fits what is left, and its usage is added to the
snapshot.

Nothing is remembered between calls. Preemption joins in step 1 (victims of a head whose quota is
in use) and in step 3 (victims taken out of the snapshot before the fit is tested).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.api import conditions, names
from kueuelib.api.kueue import ANY, CHECK_READY, Admission, PodSetAssignment, Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import quantity_of
from kueuelib.scheduler.amounts import NO_LIMITS, FlavorResource
from kueuelib.scheduler.blockers import Mode
from kueuelib.scheduler.flavors import Assignment, assign
from kueuelib.scheduler.ordering import EntryOrder, entry_order
from kueuelib.scheduler.partial import can_shrink, search
from kueuelib.scheduler.pending import Progress, Requeue
from kueuelib.scheduler.reasons import (
    ChecksFailed,
    ClusterQueueInactive,
    ClusterQueueMissing,
    NamespaceMismatch,
    NamespaceUnknown,
    NoFlavors,
    NoLongerFits,
    PodsNotReady,
    Reason,
    condition_reason,
    render,
)
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.scheduler.snapshot import Frozen, FrozenQueue, Snapshot
from kueuelib.scheduler.workload_info import WorkloadInfo


@attrs.frozen(eq=False)
class Head:
    """The first workload of a ClusterQueue.

    Attributes:
        info: what it asks for.
        cluster_queue: the queue.
        namespace_labels: the labels of its namespace, None when the namespace is not known.
        progress: the flavors that earlier attempts tried already.
    """

    info: WorkloadInfo
    cluster_queue: str
    namespace_labels: Mapping[str, str] | None
    progress: Progress = ()


@attrs.frozen(eq=False)
class CycleInput:
    """Everything that a cycle depends on.

    Attributes:
        heads: at most one per ClusterQueue, in any order.
        frozen: the state of the cache.
        all_ready: whether the pods of every workload that holds quota are ready.
        settings: the administrator's choices.
    """

    heads: tuple[Head, ...]
    frozen: Frozen
    all_ready: bool = True
    settings: Settings = DEFAULTS


@attrs.frozen
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
        borrowing: 0 when it stays within nominal quota, 1 when the cohort lends.
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


@attrs.frozen
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
        held_back: whether that other head got nothing itself, but kept its own quota free.
        transient: whether the reason is a passing state of the caches, not worth a status write.
    """

    key: ObjectKey
    uid: str
    workload: Workload
    cluster_queue: str
    reason: Reason
    requeue: Requeue
    progress: Progress = ()
    skipped: bool = False
    held_back: bool = False
    transient: bool = False

    @property
    def message(self) -> str:
        """The message of `QuotaReserved=False` and of the event."""
        return render(self.reason)

    @property
    def condition_reason(self) -> str:
        """The reason of `QuotaReserved=False` and of the event."""
        return condition_reason(self.reason)


@attrs.frozen
class Plan:
    """What a cycle decided.

    Attributes:
        admissions: the workloads that get quota, in the order of the decisions.
        waits: the workloads that don't, those without a nomination last.
        order: the nominated heads in the order in which they were decided.
    """

    admissions: tuple[Admit, ...]
    waits: tuple[Wait, ...]
    order: tuple[ObjectKey, ...]


@attrs.frozen(eq=False)
class _Entry:
    """A nominated head."""

    head: Head
    queue: FrozenQueue
    assignment: Assignment
    order: EntryOrder


def decide(found: CycleInput, now: float) -> Plan:
    """Decides one cycle; equal input gives an equal plan.

    Args:
        found: the heads and the state.
        now: seconds since the epoch; only waiting times depend on it.
    """
    snapshot = Snapshot(found.frozen)
    entries: list[_Entry] = []
    refused: list[Wait] = []
    for head in sorted(found.heads, key=lambda head: head.cluster_queue):
        outcome = nominate(snapshot, head, found.settings)
        if isinstance(outcome, Wait):
            refused.append(outcome)
        else:
            entries.append(outcome)
    entries.sort(key=lambda entry: entry.order)
    turn = _Turns(snapshot, found, now)
    for entry in entries:
        turn.take(entry)
    order = tuple(entry.head.info.key for entry in entries)
    return Plan(tuple(turn.admissions), (*turn.waits, *refused), order)


def nominate(snapshot: Snapshot, head: Head, settings: Settings) -> _Entry | Wait:
    """Checks a head and gives it flavors; a `Wait` when it can't even be considered (4.1)."""
    info, queue = head.info, snapshot.queue(head.cluster_queue)
    if info.failed_checks:
        return _refuse(head, ChecksFailed(info.failed_checks), Requeue.FAILED_CHECKS)
    if queue is None:
        return _refuse(head, ClusterQueueMissing(head.cluster_queue), Requeue.GENERIC)
    if queue.inactive:
        why = ClusterQueueInactive(head.cluster_queue, queue.inactive)
        return _refuse(head, why, Requeue.GENERIC)
    namespace = info.key.namespace
    if head.namespace_labels is None:
        unknown = NamespaceUnknown(namespace)
        return _refuse(head, unknown, Requeue.NAMESPACE_MISMATCH, transient=True)
    if not queue.spec.selector.matches(head.namespace_labels):
        mismatch = NamespaceMismatch(head.cluster_queue, namespace)
        return _refuse(head, mismatch, Requeue.NAMESPACE_MISMATCH)
    if info.invalid is not None:
        return _refuse(head, info.invalid, Requeue.GENERIC)
    assignment = best_assignment(snapshot, queue, head, settings)
    order = entry_order(
        assignment.borrowing,
        info.order,
        head.cluster_queue,
        priority_first=settings.priority_sorting,
    )
    return _Entry(head, queue, assignment, order)


def best_assignment(
    snapshot: Snapshot, queue: FrozenQueue, head: Head, settings: Settings
) -> Assignment:
    """The assignment for all pods, or for as many as fit if the workload allows that (1.8)."""

    def try_with(counts: tuple[int, ...] | None) -> Assignment:
        fungible = settings.flavor_fungibility
        progress = head.progress if fungible else ()
        return assign(snapshot, queue, head.info, counts, progress, fungible=fungible)

    full = try_with(None)
    pod_sets = head.info.pod_sets
    if full.mode is Mode.FIT or not settings.partial_admission or not can_shrink(pod_sets):
        return full

    def attempt(counts: tuple[int, ...]) -> Assignment | None:
        found = try_with(counts)
        return found if found.mode is Mode.FIT else None

    return search(pod_sets, attempt) or full


def _refuse(head: Head, reason: Reason, requeue: Requeue, *, transient: bool = False) -> Wait:
    info = head.info
    return Wait(
        info.key, info.uid, info.workload, head.cluster_queue, reason, requeue, transient=transient
    )


class _Turns:
    """The nominated heads, one after the other, on a snapshot that follows the decisions (4.3)."""

    def __init__(self, snapshot: Snapshot, found: CycleInput, now: float) -> None:
        self._snapshot = snapshot
        self._blocking = found.settings.block_admission
        self._all_ready = found.all_ready
        self._now = now
        self._kept: list[tuple[FrozenQueue, Mapping[FlavorResource, int]]] = []
        self.admissions: list[Admit] = []
        self.waits: list[Wait] = []

    def take(self, entry: _Entry) -> None:
        """Decides one head."""
        assignment, queue = entry.assignment, entry.queue
        if assignment.mode is not Mode.FIT:
            self._blocked(entry)
        elif not self._snapshot.fits(queue, assignment.usage):
            self.waits.append(
                _wait(
                    entry,
                    NoLongerFits(queue.spec.cohort),
                    Requeue.FAILED_AFTER_NOMINATION,
                    progress=assignment.progress,
                    skipped=True,
                    held_back=self._is_held_back(entry),
                )
            )
        elif self._blocking and not self._all_ready:
            why = Requeue.FAILED_AFTER_NOMINATION
            self.waits.append(_wait(entry, PodsNotReady(), why, skipped=True))
        else:
            self._snapshot.add(queue, assignment.usage)
            self._all_ready = False
            self.admissions.append(_admit(entry, self._now))

    def _blocked(self, entry: _Entry) -> None:
        assignment, queue = entry.assignment, entry.queue
        reason = NoFlavors(assignment.blocked, assignment.mode)
        if reason.needs_preemption and queue.spec.preemption.reclaim_within_cohort != ANY:
            kept = _reserved(self._snapshot, entry)
            self._snapshot.add(queue, kept)
            self._kept.append((queue, kept))
        self.waits.append(_wait(entry, reason, Requeue.GENERIC, progress=assignment.progress))

    def _is_held_back(self, entry: _Entry) -> bool:
        mark = self._snapshot.mark()
        for queue, kept in self._kept:
            self._snapshot.remove(queue, kept)
        held_back = self._snapshot.fits(entry.queue, entry.assignment.usage)
        self._snapshot.undo(mark)
        return held_back


def _wait(entry: _Entry, reason: Reason, requeue: Requeue, **details: Any) -> Wait:
    info = entry.head.info
    return Wait(
        info.key,
        info.uid,
        info.workload,
        entry.head.cluster_queue,
        reason,
        requeue,
        **details,
    )


def _reserved(snapshot: Snapshot, entry: _Entry) -> dict[FlavorResource, int]:
    """What a blocked head keeps from the heads behind it: what is free of its own quota (4.3).

    A head that has to borrow keeps as much as it may ever borrow.
    """
    reserved = {}
    for pair, amount in entry.assignment.usage.items():
        limits = entry.queue.spec.limits.get(pair, NO_LIMITS)
        most = limits.ceiling if entry.assignment.borrowing else limits.nominal
        free = amount if most is None else max(0, most - snapshot.usage(entry.queue, pair))
        reserved[pair] = min(amount, free)
    return reserved


def _admit(entry: _Entry, now: float) -> Admit:
    info, assignment = entry.head.info, entry.assignment
    workload = info.workload
    flavors = frozenset(pair.flavor for pair in assignment.usage)
    required = entry.queue.spec.checks_for(flavors)
    ready = {check.name for check in workload.status.admission_checks if check.state == CHECK_READY}
    admission = Admission(
        cluster_queue=entry.head.cluster_queue,
        pod_set_assignments=tuple(
            PodSetAssignment(
                name=choice.name,
                flavors=choice.flavors,
                resource_usage={
                    resource: quantity_of(resource, amount)
                    for resource, amount in choice.requests.items()
                },
                count=choice.count,
            )
            for choice in assignment.choices
        ),
    )
    return Admit(
        key=info.key,
        uid=info.uid,
        workload=workload,
        cluster_queue=entry.head.cluster_queue,
        admission=admission,
        admitted=ready.issuperset(required),
        required_checks=required,
        wait_seconds=max(0.0, now - _queued_since(workload, now)),
        borrowing=assignment.borrowing,
    )


def _queued_since(workload: Workload, now: float) -> float:
    evicted = conditions.find(workload.status.conditions, names.EVICTED)
    if evicted is not None:
        return evicted.last_transition_time
    created = workload.metadata.creation_timestamp
    return now if created is None else created
