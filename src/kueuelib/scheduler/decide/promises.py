"""The room that belongs to preemptors while their victims leave, in one cycle.

A preemptor is decided once. From then on until it is admitted, every cycle sees a state in which
all that leaves is gone and the request of the preemptor is charged. So the next heads fit beside
it, or choose victims of their own. A promise stands as long as it fits in that state. Which
preemptor has which victims does not matter and is not remembered.

A promise is charged under one rule, at the beginning of a cycle, in other flavors, and after a head
took some of its room: it fits, and if it borrows, it leaves owners what they wait for
(`kueuelib.scheduler.decide.owners`).

A preemptor yields to the heads that come before it: those of its ClusterQueue that have an earlier
place there, and, if it borrows, those of other ClusterQueues that do not, until it insists. Such a
head is decided as if the preemptor had no promise. An earlier place by past usage alone (KEP-4136)
does not count: the preemptor might preempt that head as soon as it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import merge

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.blockers import FIT
from kueuelib.scheduler.decide.cycle_values import Head, Wait
from kueuelib.scheduler.decide.nomination import (
    Entry,
    checked,
    insists,
    nominate,
    redeem,
    turn_of,
    without_victims,
)
from kueuelib.scheduler.decide.owners import Owners, borrows
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.present import Present
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.decay import UNUSED, Value
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
        owners: Owners | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._owners = owners
        self.present = Present(frozen)
        self._shown: Snapshot | None = None
        self._lifted: list[Kept] = []
        self._mark = 0
        self.leaving: list[Holder] = []
        self.standing: list[Kept] = []
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
            kept = Kept(head, queue, head.promise.usage, borrows=False)
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

    def _charge(self, kept: Kept) -> None:
        """Charges a promise if it may be."""
        if self._may_stand(kept):
            self._snapshot.add(kept.queue, kept.usage)
            self.standing.append(kept)
        else:
            self._break(kept.head)

    def _may_stand(self, kept: Kept) -> bool:
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

    def _forget(self, kept: Kept) -> None:
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

    def _charge_again(self, kept: Kept) -> None:
        self._snapshot.add(kept.queue, kept.usage)
        if kept.ready is None:
            return
        if self.present.fits(kept.queue, kept.usage):
            self.present.given.append((kept.queue, kept.usage))
        else:
            kept.ready = None
