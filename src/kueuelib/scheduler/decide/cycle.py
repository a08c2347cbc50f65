"""One scheduling cycle as a pure function: heads and a snapshot in, a plan out (spec/scheduling 4).

1. Every head is nominated against the same snapshot: checked, and given flavors; one whose quota is
   in use is given victims.
2. The nominated heads are put in order, with fair sharing again after each of them.
3. In that order each one is admitted if it still fits what is left, or its victims have to leave.

Nothing is remembered between calls.
"""

from __future__ import annotations

from operator import attrgetter

from kueuelib.scheduler.decide.cycle_values import Admit, CycleInput, Head, Plan, Wait
from kueuelib.scheduler.decide.nomination import Entry, nominate
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.turn_order import in_turn
from kueuelib.scheduler.decide.turns import Turns
from kueuelib.scheduler.quota.snapshot import Snapshot

__all__ = ["Admit", "CycleInput", "Head", "Plan", "Wait", "decide", "decide_on"]


def decide(found: CycleInput, now: float) -> Plan:
    """Decides one cycle; equal input gives an equal plan.

    Args:
        found: the heads and the state.
        now: seconds since the epoch; only waiting times and the preemption policy depend on it.
    """
    return decide_on(Snapshot(found.frozen), found, now)


def decide_on(snapshot: Snapshot, found: CycleInput, now: float) -> Plan:
    """Decides one cycle on a snapshot; the caller must undo the changes in it.

    Args:
        snapshot: the state; changed by every decision.
        found: the heads; its frozen state is not read.
        now: seconds since the epoch; only waiting times and the preemption policy depend on it.
    """
    judge = Judge(found.settings.preemption, found.past, now)
    entries: list[Entry] = []
    refused: list[Wait] = []
    for head in sorted(found.heads, key=attrgetter("cluster_queue")):
        outcome = nominate(snapshot, head, found.settings, judge)
        if isinstance(outcome, Wait):
            refused.append(outcome)
        else:
            entries.append(outcome)
    turns = Turns(snapshot, found, now, judge)
    order = []
    for entry in in_turn(entries, turns.shown, found.settings):
        turns.take(entry)
        order.append(entry.head.info.key)
    waits = (*turns.waits, *refused)
    return Plan(
        tuple(turns.admissions),
        waits,
        tuple(order),
        tuple(turns.preemptions),
        judge.reported,
        turns.skipped_preemptions,
        turns.recomputations,
    )
