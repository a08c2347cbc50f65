"""The first half of a cycle: nominates heads, with flavors and victims (4.1, 4.2).

Every head is nominated against the same snapshot, which is not changed. If its quota is in use, a
head also gets victims, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from kueuelib.scheduler.decide.cycle_values import Head, Wait
from kueuelib.scheduler.decide.flavors import assign
from kueuelib.scheduler.decide.offers import Proposal
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.preemption.search import find_once
from kueuelib.scheduler.decide.preemption.victims import Preemptor, SearchResult, Victim
from kueuelib.scheduler.flavor_reasons import FIT, NO_CANDIDATES, NO_FIT, Together
from kueuelib.scheduler.object_reasons import (
    ChecksFailed,
    ClusterQueueInactive,
    ClusterQueueMissing,
    NamespaceMismatch,
    NamespaceUnknown,
)
from kueuelib.scheduler.ordering import EntryOrder
from kueuelib.scheduler.pending.tries import Requeue, TriedFlavors
from kueuelib.scheduler.pending.workload_info import PodSetNeeds
from kueuelib.scheduler.policy import Asking
from kueuelib.scheduler.quota.amounts import PODS
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.reasons import Reason
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.topology.demand import layers_of
from kueuelib.scheduler.topology.pod_sets import place_all
from kueuelib.scheduler.values import changed, value

# ---- partial admission: the largest pod counts that fit, between minCount and count --------------

T = TypeVar("T")


def can_shrink(pod_sets: tuple[PodSetNeeds, ...]) -> bool:
    """Whether any pod set may start with fewer pods than it still needs."""
    return any(pod_set.slack for pod_set in pod_sets)


def search(
    pod_sets: tuple[PodSetNeeds, ...], attempt: Callable[[tuple[int, ...]], T | None]
) -> T | None:
    """The result of the smallest reduction that works, found by bisection.

    All pod sets shrink in proportion to what they can spare. Counts start from the pods that still
    need quota, so reclaimable pods are not asked for again.

    Args:
        pod_sets: the pod sets of the workload.
        attempt: tries given counts; None if they do not fit. It is assumed to be monotone: if more
            pods fit, fewer fit as well.
    """
    slack = [pod_set.slack for pod_set in pod_sets]
    spread = sum(slack)
    low, high = 0, spread + 1
    best: tuple[int, T] | None = None
    while low < high:
        middle = (low + high) // 2
        counts = tuple(
            pod_set.count - spare * middle // spread
            for pod_set, spare in zip(pod_sets, slack, strict=True)
        )
        result = attempt(counts)
        if result is None:
            low = middle + 1
        else:
            best, high = (middle, result), middle
    return best[1] if best is not None and best[0] == low else None


# --------------------------------------------------------------------------------------------------

INSISTS_AFTER = 3
"""After this many preemptions without an outside change of quota, a workload insists on the
room.
"""

MOST_PREEMPTIONS = 5
"""The maximum number of such preemptions; then it waits for an outside change of quota."""


@value
class Entry:
    """A nominated head.

    Attributes:
        head: the head.
        queue: its ClusterQueue.
        proposal: its proposal.
        order: its turn.
    """

    head: Head
    queue: FrozenQueue
    proposal: Proposal
    order: EntryOrder

    @property
    def insists(self) -> bool:
        """Whether it precedes all heads that do not insist, regardless of borrowing."""
        return self.order[0] < 0


def nominate(snapshot: Snapshot, head: Head, settings: Settings, judge: Judge) -> Entry | Wait:
    """Checks a head and assigns flavors; a `Wait` if it cannot be considered (4.1)."""
    queue = checked(snapshot, head)
    if isinstance(queue, Wait):
        return queue
    proposal = propose(snapshot, queue, head, settings, judge)
    level = -1 if proposal.mode is FIT and insists(head) else proposal.borrowing
    return Entry(head, queue, proposal, turn_of(head, level, settings))


def turn_of(head: Head, level: int, settings: Settings) -> EntryOrder:
    """The turn of a head that borrows up to a level of the tree."""
    priority, queued_at, uid = head.info.order
    if not settings.priority_sorting:
        priority = 0
    return level, priority, queued_at, head.cluster_queue, uid


def without_victims(snapshot: Snapshot, entry: Entry, settings: Settings) -> Entry | None:
    """The same head in a state in which it may fit in other flavors; None if it does not fit."""
    info, queue = entry.head.info, entry.queue
    preemptor = Preemptor(queue, info.priority, info.order.queued_at, settings.fair_sharing)
    proposal = assign(snapshot, preemptor, info, fungible=settings.flavor_fungibility)
    if proposal.mode is not FIT:
        return None
    return changed(entry, proposal=proposal, order=(proposal.borrowing, *entry.order[1:]))


def checked(snapshot: Snapshot, head: Head) -> FrozenQueue | Wait:
    """The ClusterQueue of a head; a `Wait` if it cannot be considered there."""
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
    return queue


def redeem(
    snapshot: Snapshot, queue: FrozenQueue, head: Head, settings: Settings
) -> Proposal | None:
    """The proposal for a preemptor that fits now without further victims; None if it does not.

    It gets the flavors that it was promised, or others if something that may help happened.
    """
    info, promise, fungible = head.info, head.promise, settings.flavor_fungibility
    assert promise is not None, "it was promised its room"
    if snapshot.fits(queue, promise.usage):
        kept = fitted(snapshot, queue, head, settings, promise.counts, promise.flavors)
        if kept.mode is FIT:
            return kept
    preemptor = Preemptor(queue, info.priority, info.order.queued_at, settings.fair_sharing)
    if head.helped and queue.spec.most_flavors > 1:
        other = assign(snapshot, preemptor, info, fungible=fungible)
        if other.mode is FIT:
            return other
    return None


def fitted(
    snapshot: Snapshot,
    queue: FrozenQueue,
    head: Head,
    settings: Settings,
    counts: tuple[int, ...],
    flavors: Mapping[str, Mapping[str, str]],
) -> Proposal:
    """The proposal for a head in flavors that were chosen before, without victims."""
    info = head.info
    preemptor = Preemptor(queue, info.priority, info.order.queued_at, settings.fair_sharing)
    return assign(
        snapshot, preemptor, info, counts, fungible=settings.flavor_fungibility, only=flavors
    )


def propose(
    snapshot: Snapshot,
    queue: FrozenQueue,
    head: Head,
    settings: Settings,
    judge: Judge,
    only: Mapping[str, Mapping[str, str]] | None = None,
) -> Proposal:
    """The proposal for all pods of a head, or for as many as possible if it allows that (1.8).

    All pods with victims are preferred to fewer pods without victims.

    Args:
        snapshot: the state; not changed.
        queue: the ClusterQueue of the head.
        head: the head.
        settings: the administrator's choices.
        judge: asks the preemption policy.
        only: the flavors of an earlier proposal in the same cycle, which this one must use; the
            search then begins with the first flavor.
    """
    info = head.info
    fungible, fair_sharing = settings.flavor_fungibility, settings.fair_sharing
    progress = head.progress if fungible and only is None else ()
    guard = judge.guard(asking_of(head)) if judge.leaves_out else None
    preemptor = Preemptor(queue, info.priority, info.order.queued_at, fair_sharing, guard)
    if head.promise is not None and only is None and insists(head):
        counts, flavors = head.promise.counts, head.promise.flavors
        kept = assign(snapshot, preemptor, info, counts, fungible=fungible, only=flavors)
        if kept.mode is FIT:
            return kept
    proposal = assign(snapshot, preemptor, info, None, progress, fungible=fungible, only=only)
    if proposal.mode is not FIT:
        proposal = with_victims(proposal, snapshot, preemptor, head, settings)
        shrinks = settings.partial_admission and not _is_possible(proposal)
        if shrinks and can_shrink(info.pod_sets):
            fewer = _for_fewer_pods(snapshot, preemptor, head, settings, progress, only)
            proposal = fewer or proposal
    if guard is None:
        return proposal
    return changed(proposal, protected=guard.protected, unevictable=guard.unevictable)


def with_victims(
    proposal: Proposal, snapshot: Snapshot, preemptor: Preemptor, head: Head, settings: Settings
) -> Proposal:
    """A proposal with the workloads that must leave for it."""
    if proposal.mode is FIT or proposal.mode is NO_FIT or gave_up(head):
        return proposal
    needed = proposal.usage
    if not settings.preempt_for_pods:
        needed = {pair: needed[pair] for pair in needed if pair.resource != PODS}
    members = proposal.members
    sought = find_once(snapshot, preemptor, proposal.contested, needed, members)
    if members and sought.victims:
        proposal = _without(snapshot, sought.victims, proposal)
    hopeful = not sought.victims and proposal.mode is not NO_CANDIDATES
    together = _together(sought) if hopeful else None
    return changed(proposal, victims=sought.victims, together=together)


def _without(snapshot: Snapshot, victims: Iterable[Victim], proposal: Proposal) -> Proposal:
    """A proposal with the places that its pods get once the victims have left."""
    mark = snapshot.mark()
    for victim in victims:
        snapshot.take_out(victim.holder)
    places = place_all(snapshot.leaves, proposal.members)
    snapshot.undo(mark)
    return proposal if isinstance(places, tuple) else proposal.placed(places)


def _for_fewer_pods(
    snapshot: Snapshot,
    preemptor: Preemptor,
    head: Head,
    settings: Settings,
    progress: TriedFlavors,
    only: Mapping[str, Mapping[str, str]] | None,
) -> Proposal | None:
    """The proposal for as many pods as possible; None if not even the fewest fit."""
    info, fungible = head.info, settings.flavor_fungibility

    def attempt(counts: tuple[int, ...]) -> Proposal | None:
        counts = tuple(map(_in_whole_slices, info.pod_sets, counts))
        fewer = assign(snapshot, preemptor, info, counts, progress, fungible=fungible, only=only)
        proposal = with_victims(fewer, snapshot, preemptor, head, settings)
        return proposal if _is_possible(proposal) else None

    return search(info.pod_sets, attempt)


def _in_whole_slices(pod_set: PodSetNeeds, count: int) -> int:
    """A count that slices divide (KEP-2724): not above the given one, unless too few were left."""
    layers = layers_of(pod_set.topology)
    if not layers or pod_set.min_count is None or layers[0].size <= 0:
        return count
    size = layers[0].size
    return max(count // size, -(-pod_set.min_count // size)) * size


def asking_of(head: Head) -> Asking:
    """A head in the form that the preemption policy receives."""
    return Asking(head.cluster_queue, head.info.local_queue, head.info.priority)


def insists(head: Head) -> bool:
    """Whether a preemptor gets the room that others left before all heads that do not insist.

    The first time, all compete for the room. A workload that has to preempt again without an
    outside change would otherwise alternate forever with those that take the room.
    """
    return head.promise is not None and head.preempted >= INSISTS_AFTER


def gave_up(head: Head) -> bool:
    """True if the head used up its preemption attempts."""
    return head.preempted >= MOST_PREEMPTIONS


def _together(result: SearchResult) -> Together:
    lacks = tuple(sorted((pair.flavor, pair.resource, lack) for pair, lack in result.lacks.items()))
    return Together(result.candidates, result.named, result.borrowing, lacks, result.spared)


def _is_possible(proposal: Proposal) -> bool:
    return proposal.mode is FIT or bool(proposal.victims)


def _refuse(head: Head, reason: Reason, requeue: Requeue, *, transient: bool = False) -> Wait:
    info = head.info
    return Wait(
        info.key,
        info.uid,
        info.workload,
        head.cluster_queue,
        reason,
        requeue,
        transient=transient,
        pod_sets=info.pod_sets,
    )
