"""Room that is kept in a cycle: for preemptors whose victims leave, and for owners.

A preemptor is decided once. From then on until it is admitted, every cycle sees a state in which
all that leaves is gone and the request of the preemptor is charged. So the next heads fit beside
it, or choose victims of their own. A promise stands as long as it fits in that state. Which
preemptor has which victims does not matter and is not remembered.

A promise is charged under one rule, at the beginning of a cycle, in other flavors, and after a head
took some of its room: it fits, and if it borrows, it leaves owners what they wait for
(`kueuelib.scheduler.decide.kept_room`).

A preemptor yields to the heads that come before it: those of its ClusterQueue that have an earlier
place there, and, if it borrows, those of other ClusterQueues that do not, until it insists. Such a
head is decided as if the preemptor had no promise. An earlier place by past usage alone (KEP-4136)
does not count: the preemptor might preempt that head as soon as it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle_values import Head, Wait
from kueuelib.scheduler.decide.nomination import (
    Entry,
    checked,
    fitted,
    insists,
    nominate,
    propose,
    redeem,
    turn_of,
    without_victims,
)
from kueuelib.scheduler.decide.offers import Offers, Proposal, offers_for
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.preemption.victims import Path, Victim
from kueuelib.scheduler.flavor_reasons import FIT, NO_FIT
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import NO_LIMITS, Amounts, FlavorResource
from kueuelib.scheduler.quota.decay import UNUSED, Value
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.queue_spec import Flavor, QueueSpec
from kueuelib.scheduler.quota.snapshot import Frozen, FrozenQueue, Snapshot
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.values import changed

# ---- the present state in a cycle, in which all that leaves still holds quota --------------------
# Heads are decided in a state without it, but get quota only if they fit in this one as well. Room
# that is only waited for does not count here. As long as nobody leaves, every head that fits also
# fits here, so this state is not looked at.


class Present:
    """The present state, with what the heads of a cycle got.

    Args:
        frozen: the state before the cycle.

    Attributes:
        given: what heads got since the state was last looked at.
    """

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen
        self._snapshot: Snapshot | None = None
        self.given: list[tuple[FrozenQueue, Amounts]] = []

    def take_back(self, queue: FrozenQueue, usage: Amounts) -> None:
        """Takes back what a head got."""
        self.snapshot.remove(queue, usage)

    def fits(self, queue: FrozenQueue, usage: Amounts) -> bool:
        """Whether a request fits."""
        return self.snapshot.fits(queue, usage)

    @property
    def snapshot(self) -> Snapshot:
        """The state."""
        if self._snapshot is None:
            self._snapshot = Snapshot(self._frozen)
        for queue, usage in self.given:
            self._snapshot.add(queue, usage)
        self.given.clear()
        return self._snapshot


# ---- the nominal quota that is kept for its owners while they wait (KEP-83, "Test Plan") ---------
# If the administrator protects nominal quota, no new Workload borrows what waiting Workloads of its
# owner need, parked ones included. So every charge that borrows has to leave them enough: heads are
# asked in their turn, and promises whenever they are charged
# (`kueuelib.scheduler.decide.kept_room`).
#
# Quota is kept only for Workloads whose whole request fits the nominal quota of their ClusterQueue,
# in every flavor that they could get. It is kept as well for those that may reclaim it: an inactive
# ClusterQueue and a preemption policy can refuse that.


def wanted_by_owners(
    spec: QueueSpec, flavors: Mapping[str, Flavor], waiting: Iterable[tuple[WorkloadInfo, int]]
) -> dict[FlavorResource, int]:
    """What waiting Workloads want of the nominal quota of their ClusterQueue.

    Args:
        spec: the ClusterQueue.
        flavors: the ResourceFlavors that exist.
        waiting: one Workload of each shape, and how many there are.
    """
    wanted: dict[FlavorResource, int] = {}
    if not spec.cohort:
        return wanted
    for info, count in waiting:
        for pair, amount in owned(spec, offers_for(spec, flavors, info)).items():
            wanted[pair] = wanted.get(pair, 0) + count * amount
    return wanted


def owned(spec: QueueSpec, offers: Offers) -> dict[FlavorResource, int]:
    """What a request may take of nominal quota, in all flavors; empty if it does not fit there."""
    taken: dict[FlavorResource, int] = {}
    possible: dict[FlavorResource, int] = {}
    for pod_set in offers.pod_sets:
        for group in pod_set.groups:
            fits = False
            for offer in group.offers:
                if offer.mismatch is None and _fits(spec, dict(offer.charges), taken):
                    for pair, amount in offer.charges:
                        possible[pair] = possible.get(pair, 0) + amount
                        if not fits:
                            taken[pair] = taken.get(pair, 0) + amount
                    fits = True
            if not fits:
                return {}
    return possible


def _fits(spec: QueueSpec, charges: Amounts, taken: Amounts) -> bool:
    limits = spec.limits
    return all(
        taken.get(pair, 0) + amount <= limits.get(pair, NO_LIMITS).nominal
        for pair, amount in charges.items()
    )


class KeptQuota:
    """The nominal quota that is kept in one cycle.

    Args:
        snapshot: the state after the decisions so far.
        wanted: what the waiting Workloads of each ClusterQueue want of its nominal quota.
    """

    def __init__(
        self, snapshot: Snapshot, wanted: Mapping[str, Mapping[FlavorResource, int]]
    ) -> None:
        self._snapshot = snapshot
        self._wanted = {name: dict(amounts) for name, amounts in wanted.items() if amounts}
        self._withheld: list[tuple[FrozenQueue, Amounts]] = []

    def admitted(self, head: Head) -> None:
        """A waiting Workload got quota."""
        self._want(head, -1)

    def wait_again(self, head: Head) -> None:
        """A Workload lost the room that it was promised."""
        self._want(head, 1)

    def _want(self, head: Head, count: int) -> None:
        queue, flavors = self._snapshot.queue(head.cluster_queue), self._snapshot.flavors
        if queue is not None:
            more = wanted_by_owners(queue.spec, flavors, [(head.info, count)])
            wanted = self._wanted.setdefault(head.cluster_queue, {})
            for pair, amount in more.items():
                wanted[pair] = wanted.get(pair, 0) + amount

    def withhold(self, queue: FrozenQueue, amounts: Amounts) -> None:
        """A blocked head withholds quota in this cycle.

        This does not count here, because the verdict on a borrower may last longer.
        """
        self._withheld.append((queue, amounts))

    def beside(self, entry: Entry, settings: Settings, judge: Judge) -> Entry:
        """A head that borrows, with a proposal that leaves owners what they wait for."""
        if entry.proposal.mode is not FIT and not entry.proposal.victims:
            return entry
        snapshot, mark = self._snapshot, self._snapshot.mark()
        for victim in entry.proposal.victims:
            if victim.key not in snapshot.gone:
                snapshot.take_out(victim.holder)
        enough = self.get_enough(entry.queue, entry.proposal.usage)
        snapshot.undo(mark)
        if enough:
            return entry
        self._keep_from(entry.queue)
        other = propose(snapshot, entry.queue, entry.head, settings, judge)
        snapshot.undo(mark)
        if other.mode is not FIT and other.mode is not NO_FIT:
            other = self._if_it_borrows_nothing(entry, other, settings)
            snapshot.undo(mark)
        return changed(entry, proposal=other)

    def _if_it_borrows_nothing(self, entry: Entry, kept: Proposal, settings: Settings) -> Proposal:
        """A proposal that does not fit beside what is kept, without the victims that it needs only
        if it borrows: nothing is kept from a head that does not. The caller undoes the changes.
        """
        snapshot, queue, usage = self._snapshot, entry.queue, kept.usage
        reclaims = any(one.path is Path.IN_COHORT_RECLAMATION for one in kept.victims)
        for victim in kept.victims:
            snapshot.take_out(victim.holder)
        needed: list[Victim] = []
        for victim in reversed(kept.victims):
            snapshot.put_back(victim.holder)
            if not self._may_have(queue, usage, borrow=not reclaims):
                snapshot.take_out(victim.holder)
                needed.append(victim)
        if not self._may_have(queue, usage, borrow=True):
            return kept
        fit = fitted(snapshot, queue, entry.head, settings, kept.counts, kept.flavors)
        if not needed:
            return fit
        return changed(kept, victims=tuple(reversed(needed)), borrowing=fit.borrowing)

    def _may_have(self, queue: FrozenQueue, usage: Amounts, *, borrow: bool) -> bool:
        """Whether a request fits, and leaves owners what they wait for if it may borrow."""
        if borrows(self._snapshot, queue, usage) and not (borrow and self.get_enough(queue, usage)):
            return False
        return self._snapshot.fits(queue, usage)

    def get_enough(self, queue: FrozenQueue, usage: Amounts) -> bool:
        """Whether a request that borrows leaves owners what they wait for."""
        snapshot, mark = self._snapshot, self._snapshot.mark()
        self._keep_from(queue)
        fits = snapshot.fits(queue, usage)
        snapshot.undo(mark)
        return fits

    def _keep_from(self, borrower: FrozenQueue) -> None:
        """Charges what is kept; the caller undoes it."""
        snapshot, its_own = self._snapshot, borrower.spec.name
        for queue, amounts in self._withheld:
            snapshot.remove(queue, amounts)
        for name in sorted(self._wanted):
            owner = snapshot.queue(name)
            if owner is None or owner.inactive or name == its_own:
                continue
            kept = {
                pair: max(0, min(amount, _unused(snapshot, owner, pair)))
                for pair, amount in self._wanted[name].items()
            }
            snapshot.add(owner, kept)


def borrows(snapshot: Snapshot, queue: FrozenQueue, usage: Amounts) -> bool:
    """Whether a ClusterQueue exceeds its nominal quota with a request."""
    return any(
        amount and snapshot.usage(queue, pair) + amount > snapshot.limits(queue, pair).nominal
        for pair, amount in usage.items()
    )


def _unused(snapshot: Snapshot, queue: FrozenQueue, pair: FlavorResource) -> int:
    return snapshot.limits(queue, pair).nominal - snapshot.usage(queue, pair)


# --------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class PromisedRoom:
    """The room of one preemptor.

    Attributes:
        head: the preemptor.
        queue: its ClusterQueue.
        usage: its charge.
        borrows: whether its ClusterQueue has to borrow for it.
        ready: its admission, if it fits while everybody who leaves still holds quota.
    """

    head: Head
    queue: FrozenQueue
    usage: Amounts
    borrows: bool
    ready: Entry | None = None

    @property
    def yields(self) -> bool:
        """Whether it yields to heads of other ClusterQueues that do not borrow."""
        return self.borrows and not insists(self.head)


class Promises:
    """The preemptors that wait, and the Workloads that leave.

    Args:
        snapshot: the state in which heads are decided; changed.
        frozen: the present state.
        promised: the preemptors.
        leaving: those that leave and still hold quota.
        settings: the administrator's choices.
        owners: keeps nominal quota for others; None if nobody waits for it.

    Attributes:
        present: the state in which they still hold it.
        leaving: these; none of them is in the snapshot.
        standing: the promises that hold, in the order of a cycle, and those that borrow last.
        broken: the preemptors that have to be nominated again.
        roomier: the roots of trees in which heads broke promises.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        frozen: Frozen,
        promised: Collection[Head],
        leaving: Iterable[Holder],
        settings: Settings,
        owners: KeptQuota | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._owners = owners
        self.present = Present(frozen)
        self._shown: Snapshot | None = None
        self._lifted: list[PromisedRoom] = []
        self._mark = 0
        self.leaving: list[Holder] = []
        self.standing: list[PromisedRoom] = []
        self.broken: list[Head] = []
        self.roomier: set[str] = set()
        for holder in leaving:
            if holder.key not in snapshot.gone:
                snapshot.take_out(holder)
                self.leaving.append(holder)
        if promised:
            self._charge_all(promised)

    def _charge_all(self, promised: Collection[Head]) -> None:
        """Charges the promises that hold; those that have to borrow come last."""
        borrowers = []
        for head in self._in_order(promised):
            queue = checked(self._snapshot, head)
            assert head.promise is not None, "it was promised room"
            if isinstance(queue, Wait):
                self._break(head)
                continue
            kept = PromisedRoom(head, queue, head.promise.usage, borrows=False)
            kept.borrows = borrows(self._snapshot, kept.queue, kept.usage)
            if kept.borrows:
                borrowers.append(kept)
            else:
                self._charge(kept)
        for kept in borrowers:
            self._charge(kept)

    def _in_order(self, promised: Collection[Head]) -> Iterator[Head]:
        """The preemptors in the order in which cycles would decide them as heads."""
        lines: dict[str, list[Head]] = {}
        for head in sorted(promised, key=self._place):
            lines.setdefault(head.cluster_queue, []).append(head)
        return merge(*lines.values(), key=lambda head: turn_of(head, 0, self._settings))

    def _place(self, head: Head) -> tuple[Value, QueueOrder, ObjectKey]:
        """The place of a Workload in its ClusterQueue."""
        queue, usage = self._snapshot.queue(head.cluster_queue), UNUSED
        if queue is not None and queue.spec.by_usage:
            usage = self._snapshot.past_usage(head.info.local_queue)
        return usage, head.info.order, head.info.key

    def _charge(self, kept: PromisedRoom) -> None:
        """Charges a promise if it may be."""
        if self._may_stand(kept):
            self._snapshot.add(kept.queue, kept.usage)
            self.standing.append(kept)
        else:
            self._break(kept.head)

    def _may_stand(self, kept: PromisedRoom) -> bool:
        """Whether a promise fits, and leaves owners what they wait for if it borrows."""
        kept.borrows = borrows(self._snapshot, kept.queue, kept.usage)
        return self._snapshot.fits(kept.queue, kept.usage) and (
            not kept.borrows
            or self._owners is None
            or self._owners.get_enough(kept.queue, kept.usage)
        )

    def _break(self, head: Head) -> None:
        self.broken.append(head)
        if self._owners is not None:
            self._owners.wait_again(head)

    def show(self, shown: Snapshot) -> None:
        """Makes the same changes in the state that shows victims in place."""
        self._shown = shown
        for holder in self.leaving:
            shown.take_out(holder)
        for kept in self.standing:
            shown.add(kept.queue, kept.usage)

    # --- those that fit already

    def hold_ready(self, *, all_ready: bool) -> bool:
        """Holds room for the preemptors that fit beside all that leaves.

        Args:
            all_ready: whether the pods of everybody with quota are ready.

        Returns:
            Whether they still are.
        """
        for kept in self.standing:
            if self._settings.block_admission and not all_ready:
                break
            proposal = redeem(self.present.snapshot, kept.queue, kept.head, self._settings)
            if proposal is None:
                continue
            promised = kept.usage
            self._snapshot.remove(kept.queue, promised)
            kept.usage = proposal.usage
            if self._may_stand(kept):
                kept.ready = Entry(
                    kept.head,
                    kept.queue,
                    proposal,
                    turn_of(kept.head, proposal.borrowing, self._settings),
                )
                self.present.given.append((kept.queue, kept.usage))
                all_ready = False
            else:
                kept.usage = promised
                kept.borrows = borrows(self._snapshot, kept.queue, kept.usage)
            self._snapshot.add(kept.queue, kept.usage)
        return all_ready

    def kept(self) -> list[Entry]:
        """Those for which room is still held."""
        return [kept.ready for kept in self.standing if kept.ready is not None]

    def _forget(self, kept: PromisedRoom) -> None:
        self.standing.remove(kept)
        if self._shown is not None:
            self._shown.remove(kept.queue, kept.usage)
        self._break(kept.head)
        self.roomier.add(self._snapshot.nodes[kept.queue.spec.name].root.key)

    # --- heads

    def nominate(self, head: Head, judge: Judge) -> Entry | Wait:
        """Nominates a head beside the promises that do not yield to it.

        What fits now, in any flavor, comes before what has to wait until others have left.
        """
        for borrowing in (False, True):
            elsewhere = self.lift(head, borrows=borrowing)
            outcome = nominate(self._snapshot, head, self._settings, judge)
            if isinstance(outcome, Entry):
                outcome = self._sooner(outcome)
            self.put_down()
            if isinstance(outcome, Wait) or not (elsewhere and outcome.proposal.borrowing):
                break
        return outcome

    def _sooner(self, entry: Entry) -> Entry:
        """A head that would wait until others have left, in flavors that are free now, if any."""
        queue, proposal = entry.queue, entry.proposal
        if (
            proposal.mode is not FIT
            or queue.spec.most_flavors < 2
            or self.present.fits(queue, proposal.usage)
        ):
            return entry
        mark = self._snapshot.mark()
        for holder in self.leaving:
            self._snapshot.put_back(holder)
        other = without_victims(self._snapshot, entry, self._settings)
        self._snapshot.undo(mark)
        return other or entry

    def lift(self, head: Head, *, borrows: bool) -> bool:
        """Takes back the promises that yield to a head, until `put_down`.

        Returns:
            Whether one of them belongs to another ClusterQueue; none does if the head borrows.
        """
        nodes, place = self._snapshot.nodes, self._place(head)
        root, elsewhere = nodes[head.cluster_queue].root.key, False
        for kept in self.standing:
            name = kept.head.cluster_queue
            if name == head.cluster_queue:
                yields = kept.head.info.order > head.info.order and self._place(kept.head) > place
            else:
                yields = kept.yields and not borrows and nodes[name].root.key == root
                elsewhere = elsewhere or yields
            if yields:
                self._snapshot.remove(kept.queue, kept.usage)
                if kept.ready is not None:
                    self.present.take_back(kept.queue, kept.usage)
                self._lifted.append(kept)
        self._mark = self._snapshot.mark()
        return elsewhere

    def keep_from_borrower(self, head: Head) -> None:
        """Puts those of other ClusterQueues down, because the head borrows after all."""
        lifted, self._lifted = self._lifted, []
        for kept in lifted:
            if kept.head.cluster_queue == head.cluster_queue:
                self._lifted.append(kept)
            else:
                self._charge_again(kept)
        self._mark = self._snapshot.mark()

    def put_down(self) -> None:
        """Renews these promises. If the head took anything, those that may not stand are broken."""
        lifted, self._lifted = self._lifted, []
        taken = self._snapshot.mark() != self._mark
        for kept in lifted:
            if taken and not self._may_stand(kept):
                self._forget(kept)
            else:
                self._charge_again(kept)

    def _charge_again(self, kept: PromisedRoom) -> None:
        self._snapshot.add(kept.queue, kept.usage)
        if kept.ready is None:
            return
        if self.present.fits(kept.queue, kept.usage):
            self.present.given.append((kept.queue, kept.usage))
        else:
            kept.ready = None
