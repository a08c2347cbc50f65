"""One scheduling cycle as a pure function: from heads and a snapshot to a plan.

1. What leaves counts as gone, and the room that preemptors were promised as used. Those that fit
    already hold it.
2. Every head is nominated against the same snapshot: it is checked and gets flavors; if their quota
    is in use, it gets victims.
3. The nominated heads are sorted; with fair sharing, again after each of them.
4. In that order, each one is admitted if it still fits, or its victims have to leave.
5. The preemptors that held room are admitted, unless a head that comes before them took it.

Nothing is remembered between calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload_state import passed, passed_all, waits_since
from kueuelib.scheduler.decide.cycle_values import (
    Admit,
    CycleInput,
    Head,
    Plan,
    Wait,
)
from kueuelib.scheduler.decide.kept_room import KeptQuota, Promises
from kueuelib.scheduler.decide.nomination import (
    Entry,
    asking_of,
    gave_up,
    nominate,
    propose,
)
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.preemption.victims import (
    PendingPreemption,
    Victim,
    home_of,
)
from kueuelib.scheduler.decide.second_pass import SecondPasses
from kueuelib.scheduler.flavor_reasons import FIT, NO_FIT
from kueuelib.scheduler.ordering import EntryOrder
from kueuelib.scheduler.pending.tries import Promise, Requeue, TriedFlavors
from kueuelib.scheduler.policy import PolicyError
from kueuelib.scheduler.quota.amounts import (
    NO_LIMITS,
    Amounts,
    Charge,
    FlavorResource,
    leaves_of,
)
from kueuelib.scheduler.quota.node import NO_SHARE, Bracket, QuotaNode, Share, borrowed, weigh
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.reasons import (
    FitsAfterPreemptions,
    NoFlavors,
    NoLongerFits,
    PodsNotReady,
    Preempting,
    Reason,
)
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.values import changed

__all__ = [
    "Admit",
    "CycleInput",
    "Head",
    "Plan",
    "Wait",
    "decide",
    "decide_on",
    "decide_step_by_step",
]


# ---- when quota is reserved before its victims leave (KEP-993, AfterCheckPassedOrOnDemand) -------
# Victims of such a reservation keep their quota until its checks have passed, and perhaps for good.
# So it must not count on room that a preemptor waits for: that one would not fit beside the
# reservation and its victims, and more would have to leave before any check has passed.


def comes_later(snapshot: Snapshot, entry: Entry) -> bool:
    """Whether a check has to pass or to ask before the victims of a head leave.

    A check asks for one reservation, and the head has none: what is left of a request is about an
    earlier one.
    """
    if not entry.queue.spec.checks:
        return False
    usage = entry.proposal.usage
    required = entry.queue.spec.checks_for(pair.flavor for pair in usage)
    late = snapshot.late_checks.intersection(required)
    return not passed(entry.head.info.workload, late)


def takes_room(snapshot: Snapshot, entry: Entry, preemptors: Iterable[Head | Wait]) -> bool:
    """Whether any of these preemptors waits for quota that a head of its tree asks for as well."""
    nodes, usage = snapshot.nodes, entry.proposal.usage
    root = nodes[entry.queue.spec.name].root.key
    return any(
        nodes[one.cluster_queue].root.key == root
        and any(amount and usage.get(pair) for pair, amount in one.promise.usage.items())
        for one in preemptors
        if one.promise is not None
    )


# ---- a head that gets quota, in the form of the plan ---------------------------------------------


def admission_of(entry: Entry, now: float) -> Admit:
    """The quota that a head gets with its proposal.

    Args:
        entry: the head.
        now: seconds since the epoch.
    """
    info, proposal = entry.head.info, entry.proposal
    workload = info.workload
    spec = entry.queue.spec
    required = spec.checks_for(pair.flavor for pair in proposal.usage) if spec.checks else ()
    since = waits_since(workload)
    waited = 0.0 if since is None else now - since
    return Admit(
        info.key,
        info.uid,
        workload,
        entry.head.cluster_queue,
        proposal.placed_admission if proposal.places else proposal.admission,
        passed_all(workload, required) and not proposal.delayed,
        required,
        waited if waited > 0 else 0.0,
        proposal.borrowing,
        proposal.usage,
    )


def _keys(victims: Iterable[Victim]) -> set[ObjectKey]:
    return {victim.key for victim in victims}


# ---- the second half of a cycle: nominated heads are decided one after the other -----------------
# The snapshot follows the decisions: the quota of a head is charged, and its victims are gone for
# later heads. So several heads of a cohort may preempt in one cycle. As soon as there is more room
# in a tree than at the nomination, because of victims or a broken promise, the heads there that
# have victims are nominated again in their turn: they choose others or fewer, or fit once the
# victims of others have left, and wait for that. Nothing is admitted into room that victims have
# not left yet, unless the administrator allows quota to be exceeded until then.
#
# Without parallel preemptors this is done as in Kueue, only for heads whose victims are taken
# already, and in the same flavors.

NEW_TARGETS: Final = "new_targets"
DEFERRED_FIT: Final = "deferred_fit"
SKIPPED: Final = "skipped"


class AdmissionPass:
    """The nominated heads, one after the other.

    Args:
        snapshot: the state; changed by every turn.
        cycle: the cycle.
        now: seconds since the epoch.
        judge: asks the preemption policy.

    Attributes:
        admissions: the workloads that got quota.
        waits: the workloads that did not.
        preemptions: the workloads for which others must leave.
        skipped_preemptions: by ClusterQueue, the heads whose preemption was thwarted by earlier
            heads.
        recomputations: by ClusterQueue and result (one of the three below), how often a head chose
            again because its victims were taken.
        shown: the state with the decisions so far, and with all victims of this cycle still in
            place; only kept with fair sharing, which orders the heads by it.
        promises: the room of preemptors that wait already.
        expected: the nominated heads that did so before, and have not had their turn.
        nominate: nominates a head in the state after the decisions so far.
    """

    def __init__(self, snapshot: Snapshot, cycle: CycleInput, now: float, judge: Judge) -> None:
        self._snapshot = snapshot
        self._owners = KeptQuota(snapshot, cycle.wanted) if cycle.wanted else None
        self.promises = Promises(
            snapshot, cycle.frozen, cycle.promised, cycle.leaving, cycle.settings, self._owners
        )
        self.shown = Snapshot(cycle.frozen)
        self._settings = cycle.settings
        self._all_ready = cycle.all_ready
        self._now = now
        self._judge = judge
        self.expected: dict[ObjectKey, Head] = {}
        self._may_exceed = cycle.settings.exceeds_quota and not cycle.leaving
        self._victims: dict[ObjectKey, Victim] = {}
        self._roomier: set[str] = set()
        self.admissions: list[Admit] = []
        self.waits: list[Wait] = []
        self.preemptions: list[PendingPreemption] = []
        self.skipped_preemptions: Counter[str] = Counter()
        self.recomputations: Counter[tuple[str, str]] = Counter()
        self._beside = bool(cycle.leaving or cycle.promised)
        self.nominate: Callable[[Head], Entry | Wait] = partial(
            nominate, snapshot, settings=cycle.settings, judge=judge
        )
        if self._beside:
            self.nominate = partial(self.promises.nominate, judge=judge)
            self._all_ready = self.promises.hold_ready(all_ready=cycle.all_ready)
            self.promises.show(self.shown)

    def take(self, entry: Entry) -> None:
        """Decides one head."""
        self.expected.pop(entry.head.info.key, None)
        taken: list[ObjectKey] = []
        again = moved = False
        if entry.proposal.victims:
            taken = sorted(self._victims.keys() & {victim.key for victim in entry.proposal.victims})
            again = bool(taken) or self._has_more_room(entry) or self._is_refused(entry)
            if again:
                entry = self._look_again(entry)
        if self._beside:
            self.promises.lift(entry.head, borrows=bool(entry.proposal.borrowing))
        if self._owners is not None and entry.proposal.borrowing:
            entry = self._owners.beside(entry, self._settings, self._judge)
        if entry.proposal.members and not again and self._lost_places(entry):
            had = entry.proposal.mode is FIT or entry.proposal.victims
            entry = self._place_again(entry)
            again = moved = bool(had) and self._settings.parallel_preemptors
        proposal = entry.proposal
        if proposal.borrowing and self.promises.standing:
            self.promises.keep_from_borrower(entry.head)
        victims = proposal.victims
        if proposal.mode is not FIT and not victims:
            if taken:
                self.skipped_preemptions[entry.head.cluster_queue] += 1
            # what took its places may be gone in the next cycle
            self._blocked(entry, Requeue.FAILED_AFTER_NOMINATION if moved else Requeue.GENERIC)
        elif again and self._fits_after_others(entry, taken):
            self._follow(entry, taken or sorted(self._leaving_near(entry)))
        elif victims and comes_later(self._snapshot, entry) and self._room_is_awaited(entry):
            self._blocked(entry, Requeue.PENDING_PREEMPTION)
        elif (victims and self._victims.keys() & _keys(victims)) or not self._fits(entry):
            if victims:
                self.skipped_preemptions[entry.head.cluster_queue] += 1
            self._wait(
                entry,
                NoLongerFits(entry.queue.spec.cohort),
                Requeue.FAILED_AFTER_NOMINATION,
                proposal.progress,
                skipped=True,
            )
        elif victims and comes_later(self._snapshot, entry):
            self._reserve_early(entry)
        elif victims:
            self._preempt(entry)
        elif self._settings.block_admission and not self._all_ready:
            self._wait(entry, PodsNotReady(), Requeue.FAILED_AFTER_NOMINATION, skipped=True)
        elif (self._victims or self.promises.leaving) and self._needs_room_of_victims(entry):
            self._follow(entry, sorted(self._leaving_near(entry)))
        else:
            self._all_ready = False
            self._admit(entry)
        if taken:
            self.recomputations[entry.head.cluster_queue, self._result(entry)] += 1
        if self._beside:
            self.promises.put_down()

    def give(self, queue: FrozenQueue, amounts: Amounts) -> None:
        """Charges what somebody got besides the heads."""
        self._snapshot.add(queue, amounts)
        self.promises.present.given.append((queue, amounts))

    def take_again(self, entry: Entry) -> None:
        """Decides a Workload that holds quota, but for whose pods there are no places now.

        It reserves room in leaves only.
        """
        proposal = entry.proposal
        leaves = Charge({}, leaves_of(proposal.usage))
        gone = self._snapshot.gone  # victims of others, and in parallel all that leave
        victims = tuple(one for one in proposal.victims if one.key not in gone)
        entry = changed(entry, proposal=changed(proposal, usage=leaves, victims=victims))
        if victims and len(victims) == len(proposal.victims) and self._fits(entry):
            self._preempt(entry)
        elif proposal.victims:
            reason = NoLongerFits(entry.queue.spec.cohort)
            self._wait(entry, reason, Requeue.FAILED_AFTER_NOMINATION, skipped=True)
        else:
            self._blocked(entry)

    def _result(self, entry: Entry) -> str:
        """The result of a head that chose again."""
        if entry.proposal.mode is FIT:
            return DEFERRED_FIT
        victims = {victim.key for victim in entry.proposal.victims}
        return NEW_TARGETS if victims and victims <= self._victims.keys() else SKIPPED

    def _has_more_room(self, entry: Entry) -> bool:
        """Whether its tree has more room than at the nomination; Kueue does not look."""
        if not self._settings.parallel_preemptors:
            return False
        root = self._snapshot.nodes[entry.queue.spec.name].root.key
        return root in self._roomier or root in self.promises.roomier

    def _look_again(self, entry: Entry) -> Entry:
        """A head with victims, nominated again now that those of others are gone."""
        if self._settings.parallel_preemptors:
            outcome = self.nominate(entry.head)
            assert isinstance(outcome, Entry), "it was nominated before"
            return outcome
        only = entry.proposal.flavors
        proposal = propose(
            self._snapshot, entry.queue, entry.head, self._settings, self._judge, only
        )
        return Entry(entry.head, entry.queue, proposal, entry.order)

    def _lost_places(self, entry: Entry) -> bool:
        """Whether a head has quota, but earlier heads took the places of its pods."""
        proposal, snapshot = entry.proposal, self._snapshot
        if proposal.mode is NO_FIT:
            return False
        mark = snapshot.mark()
        for victim in proposal.victims:
            if victim.key not in snapshot.gone:
                snapshot.take_out(victim.holder)
        lost = snapshot.lacks_places(entry.queue, proposal.usage)
        snapshot.undo(mark)
        return lost

    def _place_again(self, entry: Entry) -> Entry:
        """A head that lost its places, nominated again.

        In Kueue, the victims of others are still there for that.
        """
        if self._settings.parallel_preemptors:
            return self._look_again(entry)
        mark = self._snapshot.mark()
        for victim in self._victims.values():
            self._snapshot.put_back(victim.holder)
        nominated = self._look_again(entry)
        self._snapshot.undo(mark)
        return nominated

    def _is_refused(self, entry: Entry) -> bool:
        """Whether the preemption policy refuses a victim, given those of earlier heads."""
        guard = self._judge.guard(asking_of(entry.head)) if self._judge.taken else None
        if guard is None:
            return False
        guard.begin()
        try:
            for victim in entry.proposal.victims:
                if guard.refuses(victim.holder):
                    return True
                guard.take(victim.holder)
        except PolicyError:
            return True  # noted by the guard, and looked at again with Kueue's own policy
        return False

    def _fits(self, entry: Entry) -> bool:
        """Whether a head fits without its own victims and those of others.

        If it does, its own victims count as gone from now on.
        """
        snapshot, proposal = self._snapshot, entry.proposal
        if not proposal.victims:
            return snapshot.fits(entry.queue, proposal.usage)
        mark = snapshot.mark()
        for victim in proposal.victims:
            snapshot.take_out(victim.holder)
        fits = snapshot.fits(entry.queue, proposal.usage)
        if not fits:
            snapshot.undo(mark)
        return fits

    def _fits_after_others(self, entry: Entry, taken: list[ObjectKey]) -> bool:
        """Whether a head that was looked at again needs no victims but the room of others'.

        In Kueue that follows if they took its own.
        """
        if entry.proposal.mode is not FIT or not self._fits(entry):
            return False
        as_in_kueue = bool(taken) and not self._settings.parallel_preemptors
        return as_in_kueue or not self._is_free(entry)

    def _needs_room_of_victims(self, entry: Entry) -> bool:
        """Whether a head that fits waits until victims have left."""
        return not (self._may_exceed or self._is_free(entry))

    def _is_free(self, entry: Entry) -> bool:
        """Whether a head fits beside everybody who holds quota, those that leave as well."""
        return self.promises.present.fits(entry.queue, entry.proposal.usage)

    def _room_is_awaited(self, entry: Entry) -> bool:
        """Whether preemptors wait for the room in which a head would assume its victims gone."""
        before = (*(kept.head for kept in self.promises.standing), *self.expected.values())
        return takes_room(self._snapshot, entry, (*before, *self.waits))

    def _reserve_early(self, entry: Entry) -> None:
        """Reserves quota on the assumption that the victims will have left when it is needed.

        Until then they keep their quota, and all of it counts.
        """
        for victim in entry.proposal.victims:
            self._snapshot.put_back(victim.holder)
        if self._settings.block_admission and not self._all_ready:
            self._wait(entry, PodsNotReady(), Requeue.FAILED_AFTER_NOMINATION, skipped=True)
        else:
            self._all_ready = False
            self._admit(entry)

    def _claim(self, entry: Entry) -> None:
        """Assigns the victims of a head, which are gone already, to it alone."""
        victims = entry.proposal.victims
        for victim in victims:
            self._victims[victim.key] = victim
            self._judge.take(victim.holder)
        self._roomier.add(self._snapshot.nodes[entry.queue.spec.name].root.key)

    def _charge(self, entry: Entry, amounts: Amounts) -> None:
        self._snapshot.add(entry.queue, amounts)
        if self._settings.fair_sharing is not None:
            self.shown.add(entry.queue, amounts)

    def _admit(self, entry: Entry) -> None:
        self._charge(entry, entry.proposal.usage)
        self.promises.present.given.append((entry.queue, entry.proposal.usage))
        if self._owners is not None:
            self._owners.admitted(entry.head)
        self.admissions.append(admission_of(entry, self._now))

    def _preempt(self, entry: Entry) -> None:
        info, proposal = entry.head.info, entry.proposal
        victims = proposal.victims
        self._claim(entry)
        self._charge(entry, self._kept_for(entry))
        self.preemptions.append(
            PendingPreemption(
                info.key,
                info.uid,
                info.workload,
                entry.head.cluster_queue,
                self._snapshot.places({entry.head.cluster_queue, *map(home_of, victims)}),
                victims,
            )
        )
        blocked = NoFlavors(proposal.blocked, proposal.mode)
        reason = Preempting(blocked, tuple(sorted(victim.key for victim in victims)))
        self._wait(entry, reason, Requeue.PENDING_PREEMPTION, promise=self._promise(entry))

    def _follow(self, entry: Entry, victims: list[ObjectKey]) -> None:
        """A head fits once victims of others have left."""
        if comes_later(self._snapshot, entry) and not self._room_is_awaited(entry):
            self._reserve_early(entry)
        else:
            self._defer(entry, victims)

    def _defer(self, entry: Entry, victims: list[ObjectKey]) -> None:
        """A head that fits waits until victims of others have left."""
        self._charge(entry, entry.proposal.usage)
        reason = FitsAfterPreemptions(tuple(victims))
        self._wait(entry, reason, Requeue.PENDING_PREEMPTION, promise=self._promise(entry))

    def _leaving_near(self, entry: Entry) -> list[ObjectKey]:
        """All that leave in the tree of a head."""
        nodes = self._snapshot.nodes
        root = nodes[entry.queue.spec.name].root.key
        holders = (*(victim.holder for victim in self._victims.values()), *self.promises.leaving)
        return [one.key for one in holders if nodes[one.cluster_queue].root.key == root]

    def _kept_for(self, entry: Entry) -> Amounts:
        """The usage that later heads may not take from a preemptor.

        Without parallel preemptors, heads in other flavors may take its future places, as in Kueue.
        """
        usage = entry.proposal.usage
        if self._settings.parallel_preemptors or not isinstance(usage, Charge):
            return usage
        return Charge(usage, usage.leaves, usage.flavors)

    def _promise(self, entry: Entry) -> Promise:
        """The room that a head gets when others have left."""
        proposal, parallel = entry.proposal, self._settings.parallel_preemptors
        return Promise(proposal.counts, proposal.flavors, proposal.usage, parallel)

    def _blocked(self, entry: Entry, requeue: Requeue = Requeue.GENERIC) -> None:
        self.promises.put_down()
        proposal, queue = entry.proposal, entry.queue
        in_vain = entry.head.preempted if gave_up(entry.head) else 0
        reason = NoFlavors(
            proposal.blocked,
            proposal.mode,
            proposal.together,
            in_vain,
            proposal.protected,
            proposal.unevictable,
            proposal.room,
        )
        if reason.keeps_quota(queue.spec.preemption):
            reserved = self._reserved(entry)
            if self._owners is not None:
                self._owners.withhold(queue, reserved)
            usage = proposal.usage
            kept = Charge(reserved, usage.leaves) if isinstance(usage, Charge) else reserved
            self._charge(entry, kept)
        progress = proposal.progress if requeue is Requeue.GENERIC else ()
        self._wait(entry, reason, requeue, progress)

    def _reserved(self, entry: Entry) -> dict[FlavorResource, int]:
        """The free part of its own quota that a blocked head withholds from later heads (4.3).

        A head that has to borrow withholds as much as it may ever borrow. Victims count as long as
        they hold quota.
        """
        reserved = {}
        proposal, queue = entry.proposal, entry.queue
        for pair, amount in proposal.usage.items():
            limits = queue.spec.limits.get(pair, NO_LIMITS)
            most = limits.ceiling if proposal.borrowing else limits.nominal
            free = amount if most is None else max(0, most - self.shown.usage(queue, pair))
            reserved[pair] = min(amount, free)
        return reserved

    def _wait(
        self,
        entry: Entry,
        reason: Reason,
        requeue: Requeue,
        progress: TriedFlavors = (),
        promise: Promise | None = None,
        *,
        skipped: bool = False,
    ) -> None:
        info = entry.head.info
        wait = Wait(
            info.key,
            info.uid,
            info.workload,
            entry.head.cluster_queue,
            reason,
            requeue,
            progress,
            skipped,
            promise,
            pod_sets=info.pod_sets,
        )
        left_out = entry.proposal.protected or entry.proposal.unevictable
        self.waits.append(changed(wait, again=entry.proposal.again) if left_out else wait)


# ---- the order in which the heads of a cycle are decided, one at a time --------------------------
# Without fair sharing, all are sorted once. With fair sharing, every decision may change the next
# head, so the order is a tournament that continues while heads are decided (KEP-1714, "Admission
# order").


def in_turn(entries: Sequence[Entry], shown: Snapshot, settings: Settings) -> Iterator[Entry]:
    """The nominated heads, one after the other.

    Args:
        entries: the heads, one per ClusterQueue.
        shown: the state after the decisions so far, with victims still in place. It is read again
            after each head, and not changed.
        settings: the administrator's choices.
    """
    by_order = sorted(entries, key=attrgetter("order"))
    if settings.fair_sharing is None:
        return iter(by_order)
    return _tournament(by_order, shown)


def _tournament(entries: Sequence[Entry], shown: Snapshot) -> Iterator[Entry]:
    yield from (entry for entry in entries if entry.insists)
    left = {entry.queue.spec.name: entry for entry in entries if not entry.insists}
    nodes = [shown.nodes[entry.queue.spec.name] for entry in left.values()]
    bracket = Bracket(nodes, lambda node, leaf: _mark(shown, node, left[leaf.name]))
    while (leaf := bracket.best) is not None:
        yield left[leaf.name]
        bracket.drop(leaf)


class _Mark(NamedTuple):
    """The rank of a head among those of sibling nodes.

    Attributes:
        borrows: whether its node would borrow anything that the head asks for.
        share: the share that its node would have.
        order: priority and age.
    """

    borrows: bool
    share: Share
    order: EntryOrder


def _mark(shown: Snapshot, node: QuotaNode, entry: Entry) -> _Mark:
    """The rank of a node with the head that it sends."""
    usage = entry.proposal.usage
    order = (0, *entry.order[1:])
    if node.parent is None:
        return _Mark(borrows=False, share=NO_SHARE, order=order)
    mark = shown.mark()
    shown.add(entry.queue, usage)
    more = borrowed(node, shown.used)
    shown.undo(mark)
    return _Mark(any(usage.get(pair, 0) > 0 for pair in more), weigh(node, more), order)


# --------------------------------------------------------------------------------------------------


def decide(cycle: CycleInput, now: float) -> Plan:
    """Decides one cycle; equal input gives an equal plan.

    Args:
        cycle: the heads and the state.
        now: seconds since the epoch; only waiting times and the preemption policy depend on it.
    """
    return decide_on(Snapshot(cycle.frozen), cycle, now)


def decide_on(snapshot: Snapshot, cycle: CycleInput, now: float) -> Plan:
    """Decides one cycle on a snapshot; the caller must undo the changes in it.

    Args:
        snapshot: the state; changed by every decision.
        cycle: the heads; its frozen state is not read.
        now: seconds since the epoch; only waiting times and the preemption policy depend on it.
    """
    steps = decide_step_by_step(cycle, now, snapshot)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan: Plan = end.value
            return plan


def decide_step_by_step(
    cycle: CycleInput, now: float, snapshot: Snapshot | None = None
) -> Generator[None, None, Plan]:
    """Decides one cycle like `decide`, and pauses before each head is nominated or decided.

    The engine may observe events during a pause: what the cycle sees does not change.

    Args:
        cycle: the heads and the state.
        now: seconds since the epoch; only waiting times and the preemption policy depend on it.
        snapshot: the state to change instead; its caller must undo the changes.
    """
    snapshot = Snapshot(cycle.frozen) if snapshot is None else snapshot
    judge = Judge(cycle.settings.preemption, cycle.past, now)
    turns = AdmissionPass(snapshot, cycle, now, judge)
    again = SecondPasses(turns.promises.present, cycle.settings, turns.give, turns.take_again)
    passes = again.nominate(cycle.second)
    entries: list[Entry] = []
    refused: list[Wait] = []
    for head in sorted(cycle.heads, key=attrgetter("cluster_queue")):
        yield
        outcome = turns.nominate(head)
        if isinstance(outcome, Wait):
            refused.append(outcome)
        else:
            entries.append(outcome)
    turns.expected = {entry.head.info.key: entry.head for entry in entries if entry.head.promise}
    order = [one.info.key for one in again.take_all(passes)]
    for entry in in_turn(entries, turns.shown, cycle.settings):
        yield
        turns.take(entry)
        order.append(entry.head.info.key)
    kept = [admission_of(entry, now) for entry in turns.promises.kept()]
    waits = (*turns.waits, *refused)
    return Plan(
        (*kept, *turns.admissions),
        waits,
        tuple(order),
        tuple(turns.preemptions),
        judge.reported,
        turns.skipped_preemptions,
        turns.recomputations,
        tuple(head.info.key for head in turns.promises.broken),
        tuple(again.placed),
        tuple(again.evictions),
    )
