"""Runs several rounds of heads on one snapshot.

A round is a cycle that reuses the snapshot of earlier rounds, on which their admissions are
charged. The state is the same as long as nothing else happened and no victims are searched for,
because a snapshot does not contain workloads that were admitted after it was taken. So heads that
may preempt get a new one, as does a cycle beside Workloads that leave.
"""

from __future__ import annotations

from kueuelib.scheduler.decide.cycle import CycleInput, Plan, decide_on
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.quota.snapshot import Snapshot


class Rounds:
    """Decides cycles, and keeps the snapshot from one to the next while it is valid.

    Attributes:
        snapshots: how many snapshots were taken.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self.snapshots = 0

    def decide(self, cycle: CycleInput, now: float) -> Plan:
        """Decides one round, like `kueuelib.scheduler.decide.cycle.decide`.

        Args:
            cycle: the heads, and the state for the case that a snapshot is needed.
            now: seconds since the epoch.
        """
        snapshot = self._snapshot
        if snapshot is None or not _serves(snapshot, cycle):
            snapshot = self._snapshot = Snapshot(cycle.frozen)
            self.snapshots += 1
        mark = snapshot.mark()
        plan = decide_on(snapshot, cycle, now)
        snapshot.undo(mark)
        if plan.preemptions:
            self._snapshot = None
        return plan

    def settled(self, settled: Settled, engine: Engine) -> None:
        """Charges the admissions of a round; call it after `Engine.settle`."""
        if self._snapshot is None:
            return
        for admit in settled.admissions:
            queue, holder = (
                self._snapshot.queue(admit.cluster_queue),
                engine.cache.holder(admit.key),
            )
            if queue is None or holder is None:
                self._snapshot = None
                return
            self._snapshot.add(queue, holder.usage)

    def forget(self) -> None:
        """Drops the snapshot after an outside change."""
        self._snapshot = None


def _serves(snapshot: Snapshot, cycle: CycleInput) -> bool:
    if cycle.promised or cycle.leaving:
        return False
    queues = [snapshot.queue(head.cluster_queue) for head in cycle.heads]
    return all(queue is not None and queue.spec.preemption.never_preempts for queue in queues)
