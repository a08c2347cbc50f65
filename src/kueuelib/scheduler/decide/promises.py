"""The room that belongs to preemptors while their victims leave, in one cycle.

A preemptor is decided once. From then on until it is admitted, every cycle sees a state in which
its victims are gone and its request is charged. So the next heads fit beside it, or choose victims
of their own. A preemptor loses its room only to a head that comes before it in its own
ClusterQueue: such a head is decided as if those behind it had no promise.
"""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.cycle_values import Head
from kueuelib.scheduler.decide.preemption.victims import Victim
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.pending.item import Promise
from kueuelib.scheduler.quota.decay import UNUSED, Value
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot

NO_MARKS = (-1, -1)


class Promises:
    """The preemptors that wait for their victims.

    Args:
        snapshot: the state on which heads are nominated and decided; changed.
        promised: the preemptors.

    Attributes:
        standing: those whose promise holds, by ClusterQueue, each in the order of its queue.
        broken: those that have to be nominated again.
    """

    def __init__(self, snapshot: Snapshot, promised: tuple[Head, ...]) -> None:
        self._snapshot = snapshot
        self._owners: dict[ObjectKey, int] = {}
        self._lifted: list[Head] = []
        self._marks = NO_MARKS
        self._shown: Snapshot | None = None
        self._near: dict[str, dict[ObjectKey, str]] | None = None
        self.standing: dict[str, list[Head]] = {}
        self.broken: list[ObjectKey] = []
        for head in sorted(promised, key=self._rank) if promised else ():
            self.standing.setdefault(head.cluster_queue, []).append(head)
            self._apply(head)

    def all(self) -> list[Head]:
        """Those whose promise holds, those of the highest priority and greatest age first."""
        heads = [head for line in self.standing.values() for head in line]
        return sorted(heads, key=lambda head: (head.info.order, head.info.key))

    def leaving(self) -> list[Holder]:
        """The victims for which they wait."""
        holders = {holder.key: holder for head in self.all() for holder in head.leaving}
        return [holders[key] for key in sorted(holders)]

    def leaving_near(self, head: Head, victims: Iterable[Victim] = ()) -> dict[ObjectKey, str]:
        """The UIDs of all that leave in the tree of a head, its own new victims included."""
        nodes = self._snapshot.nodes
        if self._near is None:
            self._near = {}
            for holder in self.leaving():
                root = nodes[holder.cluster_queue].path[-1].key
                self._near.setdefault(root, {})[holder.key] = holder.uid
        near = self._near.setdefault(nodes[head.cluster_queue].path[-1].key, {})
        for victim in victims:
            near[victim.key] = victim.holder.uid
        return dict(sorted(near.items()))

    def show(self, shown: Snapshot) -> None:
        """Makes the same changes in the state that shows victims in place."""
        self._shown = shown
        for head in self.all():
            shown.add(self._queue(head), promised_to(head).usage)
        for holder in self.leaving():
            shown.take_out(holder)

    def _queue(self, head: Head) -> FrozenQueue:
        queue = self._snapshot.queue(head.cluster_queue)
        assert queue is not None, "it waits there"
        return queue

    def _rank(self, head: Head) -> tuple[Value, QueueOrder, ObjectKey]:
        """The place of a Workload in its ClusterQueue."""
        used = UNUSED
        if self._queue(head).spec.by_usage:
            used = self._snapshot.past_usage(head.info.local_queue)
        return used, head.info.order, head.info.key

    # --- one promise

    def _apply(self, head: Head) -> None:
        self._let_go(head)
        self._snapshot.add(self._queue(head), promised_to(head).usage)

    def _let_go(self, head: Head) -> None:
        self.claim(head.leaving)
        for holder in head.leaving:
            if holder.key not in self._snapshot.gone:
                self._snapshot.take_out(holder)

    def withdraw(self, head: Head) -> None:
        """Takes a promise back: victims that leave for no other Workload hold their quota again."""
        self._snapshot.remove(self._queue(head), promised_to(head).usage)
        for holder in head.leaving:
            if self._disclaim(holder):
                self._snapshot.put_back(holder)

    def renew(self, head: Head, mark: int) -> None:
        """Undoes everything since a promise was taken back at `mark`."""
        self._snapshot.undo(mark)
        self.claim(head.leaving)

    def claim(self, victims: Iterable[Holder]) -> None:
        """Notes that victims leave for one more Workload."""
        for holder in victims:
            self._owners[holder.key] = self._owners.get(holder.key, 0) + 1

    def _disclaim(self, holder: Holder) -> bool:
        """Notes the opposite; returns whether a victim now leaves for no Workload."""
        self._owners[holder.key] -= 1
        return not self._owners[holder.key]

    def end(self, head: Head, *, broken: bool) -> None:
        """Forgets a promise that was taken back."""
        self.standing[head.cluster_queue].remove(head)
        if not broken:
            return
        self.broken.append(head.info.key)
        if self._shown is not None:
            self._shown.remove(self._queue(head), promised_to(head).usage)

    # --- those behind a head

    def lift(self, head: Head) -> None:
        """Takes back the promises behind a head in its ClusterQueue, until `put_down`."""
        before = self._snapshot.mark()
        behind = self.standing.get(head.cluster_queue)
        if behind:
            rank = self._rank(head)
            self._lifted = [each for each in behind if self._rank(each) > rank]
            for each in self._lifted:
                self.withdraw(each)
        self._marks = before, self._snapshot.mark()

    def put_down(self) -> None:
        """Renews these promises; a Workload whose room the head took gets none.

        If the head took nothing, all is as it was before.
        """
        snapshot, lifted, (before, after) = self._snapshot, self._lifted, self._marks
        self._lifted, self._marks = [], NO_MARKS
        if snapshot.mark() == after:
            snapshot.undo(before)
            for head in lifted:
                self.claim(head.leaving)
            return
        for head in lifted:
            queue, usage, mark = self._queue(head), promised_to(head).usage, snapshot.mark()
            self._let_go(head)
            if snapshot.fits(queue, usage):
                snapshot.add(queue, usage)
                continue
            snapshot.undo(mark)
            for holder in head.leaving:
                self._disclaim(holder)
            self.end(head, broken=True)


def promised_to(head: Head) -> Promise:
    """The room that a preemptor waits for."""
    assert head.promise is not None, "it waits for it"
    return head.promise
