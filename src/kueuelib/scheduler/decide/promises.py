"""The room that belongs to preemptors while their victims leave, in one cycle.

A preemptor is decided once. From then on until it is admitted, every cycle sees a state in which
all that leaves is gone and the request of the preemptor is charged. So the next heads fit beside
it, or choose victims of their own. A promise stands as long as it fits in that state. Which
preemptor has which victims does not matter and is not remembered.

A preemptor yields to the heads that come before it: those of a higher priority or greater age in
its ClusterQueue, and, if it borrows, those of other ClusterQueues that do not, until it insists.
Such a head is decided as if the preemptor had no promise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from kueuelib.scheduler.blockers import FIT
from kueuelib.scheduler.decide.cycle_values import Head, Wait
from kueuelib.scheduler.decide.nomination import (
    Entry,
    checked,
    entered,
    insists,
    nominate,
    redeem,
    without_victims,
)
from kueuelib.scheduler.decide.owners import Owners
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.present import Present
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.snapshot import Frozen, FrozenQueue, Snapshot
from kueuelib.scheduler.settings import Settings


@attrs.define(eq=False)
class Kept:
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

    Attributes:
        present: the state in which they still hold it.
        leaving: these; none of them is in the snapshot.
        standing: the promises that hold, in the order of a cycle.
        broken: the preemptors that have to be nominated again.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        frozen: Frozen,
        promised: Collection[Head],
        leaving: Iterable[Holder],
    ) -> None:
        self._snapshot = snapshot
        self.present = Present(frozen)
        self._shown: Snapshot | None = None
        self._lifted: list[Kept] = []
        self._mark = 0
        self.leaving: list[Holder] = []
        self.standing: list[Kept] = []
        self.broken: list[Head] = []
        for holder in leaving:
            if holder.key not in snapshot.gone:
                snapshot.take_out(holder)
                self.leaving.append(holder)
        if promised:
            heads = sorted(promised, key=lambda head: (head.info.order, head.info.key))
            others = [head for head in heads if not self._stands(head, borrows=False)]
            self.broken += [head for head in others if not self._stands(head, borrows=True)]

    def _stands(self, head: Head, *, borrows: bool) -> bool:
        """Charges a promise, unless it borrows although it may not, or does not fit."""
        queue = checked(self._snapshot, head)
        assert head.promise is not None, "it was promised room"
        if isinstance(queue, Wait):
            return False
        kept = Kept(head, queue, head.promise.usage, borrows=False)
        kept.borrows = self._borrows(kept)
        if (kept.borrows and not borrows) or not self._snapshot.fits(queue, kept.usage):
            return False
        self._snapshot.add(queue, kept.usage)
        self.standing.append(kept)
        return True

    def _borrows(self, kept: Kept) -> bool:
        snapshot, queue = self._snapshot, kept.queue
        return any(
            amount and snapshot.usage(queue, pair) + amount > snapshot.limits(queue, pair).nominal
            for pair, amount in kept.usage.items()
        )

    def show(self, shown: Snapshot) -> None:
        """Makes the same changes in the state that shows victims in place."""
        self._shown = shown
        for holder in self.leaving:
            shown.take_out(holder)
        for kept in self.standing:
            shown.add(kept.queue, kept.usage)

    # --- those that fit already

    def hold_ready(self, settings: Settings, owners: Owners | None, *, all_ready: bool) -> bool:
        """Holds room for the preemptors that fit beside all that leaves.

        Args:
            settings: the administrator's choices.
            owners: keeps nominal quota for others; None if nobody waits for it.
            all_ready: whether the pods of everybody with quota are ready.

        Returns:
            Whether they still are.
        """
        for kept in tuple(self.standing):
            if settings.block_admission and not all_ready:
                break
            proposal = redeem(self.present.snapshot, kept.queue, kept.head, settings)
            if proposal is None:
                continue
            entry = entered(kept.head, kept.queue, proposal)
            mark = self._snapshot.mark()
            self._snapshot.remove(kept.queue, kept.usage)
            fits = self._snapshot.fits(kept.queue, proposal.usage)
            yields = owners is not None and proposal.borrowing and not owners.get_enough(entry)
            self._snapshot.undo(mark)
            if yields:
                self.give_up(kept)
            elif fits:
                self._hold(kept, entry)
                all_ready = False
        return all_ready

    def _hold(self, kept: Kept, entry: Entry) -> None:
        self._snapshot.remove(kept.queue, kept.usage)
        kept.ready, kept.usage = entry, entry.proposal.usage
        kept.borrows = self._borrows(kept)
        self._snapshot.add(kept.queue, kept.usage)
        self.present.given.append((kept.queue, kept.usage))

    def kept(self) -> list[Entry]:
        """Those for which room is still held."""
        return [kept.ready for kept in self.standing if kept.ready is not None]

    def give_up(self, kept: Kept) -> None:
        """Breaks a promise."""
        self._snapshot.remove(kept.queue, kept.usage)
        self._forget(kept)

    def _forget(self, kept: Kept) -> None:
        self.standing.remove(kept)
        self.broken.append(kept.head)
        if self._shown is not None:
            self._shown.remove(kept.queue, kept.usage)

    # --- heads

    def nominate(self, head: Head, settings: Settings, judge: Judge) -> Entry | Wait:
        """Nominates a head beside the promises that do not yield to it.

        What fits now, in any flavor, comes before what has to wait until others have left.
        """
        for borrows in (False, True):
            elsewhere = self.lift(head, borrows=borrows)
            outcome = nominate(self._snapshot, head, settings, judge)
            if isinstance(outcome, Entry):
                outcome = self._sooner(outcome, settings)
            self.put_down()
            if isinstance(outcome, Wait) or not (elsewhere and outcome.proposal.borrowing):
                break
        return outcome

    def _sooner(self, entry: Entry, settings: Settings) -> Entry:
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
        other = without_victims(self._snapshot, entry, settings)
        self._snapshot.undo(mark)
        return other or entry

    def lift(self, head: Head, *, borrows: bool) -> bool:
        """Takes back the promises that yield to a head, until `put_down`.

        Returns:
            Whether one of them belongs to another ClusterQueue; none does if the head borrows.
        """
        nodes, order = self._snapshot.nodes, head.info.order
        root, elsewhere = nodes[head.cluster_queue].root.key, False
        for kept in self.standing:
            name = kept.head.cluster_queue
            if name == head.cluster_queue:
                yields = kept.head.info.order > order
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
        """Renews these promises. If the head took anything, those that no longer fit are broken."""
        lifted, self._lifted = self._lifted, []
        taken = self._snapshot.mark() != self._mark
        for kept in lifted:
            if taken and not self._snapshot.fits(kept.queue, kept.usage):
                self._forget(kept)
                continue
            kept.borrows = self._borrows(kept)
            self._charge_again(kept)

    def _charge_again(self, kept: Kept) -> None:
        self._snapshot.add(kept.queue, kept.usage)
        if kept.ready is None:
            return
        if self.present.fits(kept.queue, kept.usage):
            self.present.given.append((kept.queue, kept.usage))
        else:
            kept.ready = None
