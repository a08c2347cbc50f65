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

from operator import attrgetter

from kueuelib.scheduler.decide.admissions import admission_of
from kueuelib.scheduler.decide.cycle_values import Admit, CycleInput, Head, Plan, Wait
from kueuelib.scheduler.decide.nomination import Entry
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.turn_order import in_turn
from kueuelib.scheduler.decide.turns import Turns
from kueuelib.scheduler.quota.snapshot import Snapshot

__all__ = ["Admit", "CycleInput", "Head", "Plan", "Wait", "decide", "decide_on"]


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
    judge = Judge(cycle.settings.preemption, cycle.past, now)
    turns = Turns(snapshot, cycle, now, judge)
    entries: list[Entry] = []
    refused: list[Wait] = []
    for head in sorted(cycle.heads, key=attrgetter("cluster_queue")):
        outcome = turns.nominate(head)
        if isinstance(outcome, Wait):
            refused.append(outcome)
        else:
            entries.append(outcome)
    turns.expected = {entry.head.info.key: entry.head for entry in entries if entry.head.promise}
    order = []
    for entry in in_turn(entries, turns.shown, cycle.settings):
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
    )
