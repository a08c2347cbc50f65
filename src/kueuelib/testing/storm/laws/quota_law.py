"""The law about quota: no reservation that is written exceeds it."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.amounts import usage_of
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.quotas import Ledger, Queue, queue_of_raw, usage_by_queue
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
    """What is reserved, own and borrowed, is never more than the quota when it is written."""
    old, new = commit.old, commit.new
    if new is None or not is_manager(commit.actor) or not reserving(new):
        return
    queues = {name(raw): queue_of_raw(raw) for raw in memory.all(CLUSTER_QUEUES)}
    queue = queues.get(queue_of(new))
    if queue is None:
        return
    members = Ledger(queues, {}).members(queue)
    checks = memory.all(CHECKS)
    late = any(preempts_late(memory.get(CLUSTER_QUEUES, "", one.name), checks) for one in members)
    counts = admitted if late else reserving
    if not counts(new) or counts(old):
        return
    holders = [workload for workload in memory.all(WORKLOADS) if counts(workload)]
    ledger = Ledger(queues, usage_by_queue(holders))
    found = list(ledger.excess(queue, usage_of(new)))
    if found and not _raced(memory, commit, members, holders):
        yield from found


def _raced(memory: Memory, commit: Commit, members: list[Queue], holders: list[Obj]) -> bool:
    """Whether a quota cut or the reservation of another leader could not be known yet."""
    causes = {"all", *(f"queue:{one.name}" for one in members)}
    causes |= {f"cohort:{one.cohort}" for one in members if one.cohort}
    cuts = [memory.cut[cause] for cause in causes if cause in memory.cut]
    if any(memory.within_lag(cut, commit.at) for cut in cuts):
        return True
    since = [term.since for term in memory.terms.values() if term.actor == commit.actor]
    deposed = any(term.actor != commit.actor for term in memory.terms.values())
    if deposed and memory.tolerance.lag:
        return True
    names = {one.name for one in members}
    for workload in holders:
        writer, at = memory.reserved_by.get(uid(workload), (commit.actor, 0.0))
        if writer != commit.actor and queue_of(workload) in names and at >= max(since, default=0):
            return memory.tolerance.lag > 0
    return False
