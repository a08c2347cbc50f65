"""The first half of a cycle: which heads can be considered, and what they would get (4.1, 4.2).

Every head is nominated against the same snapshot, which is left as it was. A head whose quota is in
use gets victims as well, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api import conditions, names
from kueuelib.scheduler.amounts import PODS
from kueuelib.scheduler.blockers import Mode, Together
from kueuelib.scheduler.flavors import Assignment, assign
from kueuelib.scheduler.ordering import EntryOrder, entry_order
from kueuelib.scheduler.partial import can_shrink, search
from kueuelib.scheduler.pending import Requeue
from kueuelib.scheduler.plan import Head, Wait
from kueuelib.scheduler.preemption.candidates import Preemptor
from kueuelib.scheduler.preemption.search import Search, find_victims
from kueuelib.scheduler.preemption.victims import Victim
from kueuelib.scheduler.reasons import (
    ChecksFailed,
    ClusterQueueInactive,
    ClusterQueueMissing,
    NamespaceMismatch,
    NamespaceUnknown,
    Reason,
)
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.workload_info import WorkloadInfo


@attrs.frozen(eq=False)
class Proposal:
    """What a head would get.

    Attributes:
        assignment: the flavors.
        victims: who has to leave first, empty when nobody has to, or when it would not help.
        together: why it would not help, where each pair of flavor and resource could be freed.
    """

    assignment: Assignment
    victims: tuple[Victim, ...] = ()
    together: Together | None = None


@attrs.frozen(eq=False)
class Entry:
    """A nominated head.

    Attributes:
        head: the head.
        queue: its ClusterQueue.
        proposal: what it would get.
        order: its turn.
    """

    head: Head
    queue: FrozenQueue
    proposal: Proposal
    order: EntryOrder


def nominate(snapshot: Snapshot, head: Head, settings: Settings) -> Entry | Wait:
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
    proposal = propose(snapshot, queue, head, settings)
    order = entry_order(
        _level(head, proposal),
        info.order,
        head.cluster_queue,
        priority_first=settings.priority_sorting,
    )
    return Entry(head, queue, proposal, order)


def propose(
    snapshot: Snapshot,
    queue: FrozenQueue,
    head: Head,
    settings: Settings,
    only: Mapping[str, Mapping[str, str]] | None = None,
) -> Proposal:
    """What a head would get for all its pods, or for as many as possible if it allows that (1.8).

    All pods with victims are preferred to fewer pods without.

    Args:
        snapshot: the state; not changed.
        queue: the ClusterQueue of the head.
        head: the head.
        settings: the administrator's choices.
        only: the flavors of an earlier proposal in the same cycle, to which this one is bound; the
            search for flavors then begins with the first one.
    """
    info = head.info
    fungible = settings.flavor_fungibility
    progress = head.progress if fungible and only is None else ()
    preemptor = Preemptor(queue, info.priority, info.order.queued_at)

    def try_with(counts: tuple[int, ...] | None) -> Proposal:
        found = assign(snapshot, queue, info, counts, progress, fungible=fungible, only=only)
        if found.mode in (Mode.NO_FIT, Mode.FIT):
            return Proposal(found)
        needed = found.usage
        if not settings.preempt_for_pods:
            needed = {pair: needed[pair] for pair in needed if pair.resource != PODS}
        sought = find_victims(snapshot, preemptor, found.contested, needed)
        hopeful = not sought.victims and found.mode in (Mode.PREEMPT, Mode.RECLAIM)
        return Proposal(found, sought.victims, _together(sought) if hopeful else None)

    def attempt(counts: tuple[int, ...]) -> Proposal | None:
        found = try_with(counts)
        return found if _is_possible(found) else None

    def within_nominal(counts: tuple[int, ...]) -> Proposal | None:
        found = try_with(counts)
        return (
            found if found.assignment.mode is Mode.FIT and not found.assignment.borrowing else None
        )

    full = try_with(None)
    promise = head.promise if only is None else None
    if promise is not None and full.assignment.mode is not Mode.FIT and _goes_round(head):
        # The others left for these flavors: nobody has to leave for different ones as well.
        kept = assign(
            snapshot, queue, info, promise.counts, fungible=fungible, only=promise.flavors
        )
        if kept.mode is Mode.FIT:
            return Proposal(kept)
    if promise is not None and promise.fewer and full.assignment.borrowing and _was_preempted(info):
        # Borrowing for all pods made it a victim before; what room was made for does not.
        return search(info.pod_sets, within_nominal) or full
    if _is_possible(full) or not settings.partial_admission or not can_shrink(info.pod_sets):
        return full
    return search(info.pod_sets, attempt) or full


def _level(head: Head, proposal: Proposal) -> int:
    """How much a head borrows, as far as its turn is concerned; -1 for the very first ones.

    Room was made for a preemptor. That all of its pods fit now, by borrowing, must not put it
    behind those who left: they would take the room back, and be preempted again. And who lost such
    room before, or was a victim itself, comes before everybody else, or it would make room for
    others again and again.
    """
    fits = proposal.assignment.mode is Mode.FIT
    if head.promise is None:
        return proposal.assignment.borrowing
    if fits and _goes_round(head):
        return -1
    return 0 if fits and head.promise.fewer else proposal.assignment.borrowing


def _goes_round(head: Head) -> bool:
    """Whether a preemptor may be one of those who make room for each other for ever."""
    return head.outrun or _was_preempted(head.info)


def _was_preempted(info: WorkloadInfo) -> bool:
    """Whether it was a victim at any time; the condition stays, also when it gets quota again."""
    return conditions.find(info.workload.status.conditions, names.PREEMPTED) is not None


def _together(found: Search) -> Together:
    lacks = tuple(sorted((pair.flavor, pair.resource, lack) for pair, lack in found.lacks.items()))
    return Together(found.candidates, found.named, found.borrowing, lacks)


def _is_possible(proposal: Proposal) -> bool:
    return proposal.assignment.mode is Mode.FIT or bool(proposal.victims)


def _refuse(head: Head, reason: Reason, requeue: Requeue, *, transient: bool = False) -> Wait:
    info = head.info
    return Wait(
        info.key, info.uid, info.workload, head.cluster_queue, reason, requeue, transient=transient
    )
