"""Laws about quota: no written reservation exceeds it, and none is made in a cycle."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.amounts import usage_of
from kueuelib.testing.storm.laws.ledger import Ledger
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.quotas import Node, usage_by_queue
from kueuelib.testing.storm.laws.reading import (
    CHECKS,
    CLUSTER_QUEUES,
    WORKLOADS,
    admitted,
    name,
    queue_of,
    reserving,
    spec,
    uid,
)

LATE_POLICY = "AfterCheckPassedOrOnDemand"


def preempts_late(queue: Obj | None, checks: list[Obj]) -> bool:
    """Whether a ClusterQueue reserves quota on the assumption that victims will leave."""
    rules = (spec(queue or {}).get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    late = {name(one) for one in checks if spec(one).get("preemptionPolicy") == LATE_POLICY}
    return any(rule["name"] in late for rule in rules)


def quota_not_exceeded(memory: Memory, commit: Commit) -> Iterator[str]:
    """Reserved quota, own and borrowed, never exceeds the quota when it is written."""
    old, new = commit.old, commit.new
    if new is None or not is_manager(commit.actor) or not reserving(new):
        return
    ledger = memory.ledger()
    queue = ledger.queues.get(queue_of(new))
    if queue is None or ledger.endless(queue):
        return
    members = ledger.members(queue)
    checks = memory.all(CHECKS)
    late = any(preempts_late(memory.get(CLUSTER_QUEUES, "", one.name), checks) for one in members)
    counts = admitted if late else reserving
    if not counts(new) or counts(old):
        return
    holders = [workload for workload in memory.all(WORKLOADS) if counts(workload)]
    if not _has_excess(ledger, queue, holders, new) or _cut(memory, commit, ledger, members):
        return
    if late and any(_writer(memory, commit, one) != commit.actor for one in holders):
        return  # it is known who reserved, but not who admitted, and when
    known = [one for one in holders if one is new or not _news(memory, commit, one)]
    yield from _excess(ledger, queue, known, new)


def no_quota_in_a_cycle(memory: Memory, commit: Commit) -> Iterator[str]:
    """Nothing reserves quota while the parents of its Cohort form a cycle."""
    old, new = commit.old, commit.new
    if new is None or not is_manager(commit.actor) or not reserving(new) or reserving(old):
        return
    ledger = memory.ledger()
    queue = ledger.queues.get(queue_of(new))
    if queue is None or not ledger.endless(queue) or _cut(memory, commit, ledger, [queue]):
        return
    way = " -> ".join(cohort.name for cohort in ledger.chain(queue))
    yield f"it reserved quota of {queue.name}, above which the Cohorts form a cycle: {way}"


def _excess(ledger: Ledger, queue: Node, holders: list[Obj], new: Obj) -> Iterator[str]:
    used = attrs.evolve(ledger, usage=usage_by_queue(holders))
    return used.excess(queue, usage_of(new))


def _has_excess(ledger: Ledger, queue: Node, holders: list[Obj], new: Obj) -> bool:
    return next(_excess(ledger, queue, holders, new), None) is not None


def _cut(memory: Memory, commit: Commit, ledger: Ledger, members: list[Node]) -> bool:
    """Whether quota was reduced or the tree changed without the writer being able to know."""
    causes = {"all", *(f"queue:{one.name}" for one in members)}
    causes |= {f"cohort:{cohort.name}" for one in members for cohort in ledger.chain(one)}
    cuts = [memory.cut[cause] for cause in causes if cause in memory.cut]
    return any(memory.within_lag(cut, commit.at) for cut in cuts)


def _writer(memory: Memory, commit: Commit, holder: Obj) -> str:
    """The writer of the reservation; the actor of the commit if it is not known."""
    return memory.reserved_by.get(uid(holder), (commit.actor, 0.0))[0]


def _news(memory: Memory, commit: Commit, holder: Obj) -> bool:
    """Whether another manager gave it quota without the writer being able to know.

    So two leaders together exceed the quota at most by what the other one has reserved within the
    lag. Reservations from before the writer took the Lease are not news to it.
    """
    _, at = memory.reserved_by.get(uid(holder), ("", 0.0))
    since = [term.since for term in memory.terms.values() if term.actor == commit.actor]
    return (
        _writer(memory, commit, holder) != commit.actor
        and at >= max(since, default=0.0)
        and memory.within_lag(at, commit.at)
    )
