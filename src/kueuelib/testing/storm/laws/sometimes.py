"""Situations that a run should reach sometimes, which are counted, not judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.ledger import NodeQuota, cohort_of_raw, queue_of_raw
from kueuelib.testing.storm.laws.memory import CommitFold, is_manager, placement_of
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    LEASES,
    PODS,
    WORKLOADS,
    active,
    admitted,
    condition,
    finished,
    gated,
    holds,
    is_group,
    leaving,
    queue_of,
    reserving,
    spec,
    status,
    subject_of,
    suspended,
    uid,
)

SERVER = "server"
"""The simulated cluster, which collects garbage."""

SITUATIONS = (
    "reserved",
    "reserved in two phases",
    "admitted",
    "admitted a group",
    "admitted while borrowing",
    "admitted again",
    "evicted",
    "preempted",
    "preempted to share fairly",
    "check failed",
    "queue drained",
    "deactivated",
    "reservation lost before admission",
    "finished",
    "job started",
    "job stopped",
    "job edited while it waits",
    "job edited after a stop",
    "pod ungated",
    "job recreated under its name",
    "workload deleted by a user",
    "quota changed while it was used",
    "queue deleted while it was used",
    "admitted below a Cohort",
    "cohort changed while it was used",
    "cycle of Cohorts closed",
    "cycle of Cohorts opened",
    "leader changed",
)
"""All situations; a run that never reaches one of them tests less than it seems to."""


def situations(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """The situations that a commit causes; for the memory see the laws."""
    if commit.resource == WORKLOADS:
        yield from _of_workload(memory, commit)
    elif commit.resource in (JOBS, PODS):
        yield from _of_job(memory, commit)
    elif commit.resource == CLUSTER_QUEUES:
        yield from _of_queue(memory, commit)
    elif commit.resource == COHORTS:
        yield from _of_cohort(memory, commit)
    elif commit.resource == LEASES and is_manager(commit.actor):
        term = memory.terms.get((commit.namespace, commit.name))
        holder = spec(commit.new or {}).get("holderIdentity")
        if term is not None and holder and holder != term.identity:
            yield "leader changed"


def _of_workload(memory: CommitFold, commit: Commit) -> Iterator[str]:
    old, new = commit.old, commit.new
    if new is None or leaving(new):
        hidden = is_manager(commit.actor) or commit.actor == SERVER
        if not hidden and old is not None and not leaving(old):
            yield "workload deleted by a user"
        return
    if reserving(new) and not reserving(old):
        yield "reserved" if admitted(new) else "reserved in two phases"
    if admitted(new) and not admitted(old):
        yield "admitted"
        if is_group(new):
            yield "admitted a group"
        if holds(new, "Preempted") or condition(new, "Evicted"):
            yield "admitted again"
        queue = memory.get(CLUSTER_QUEUES, "", queue_of(new))
        if queue is not None and _borrows(queue):
            yield "admitted while borrowing"
        if queue is not None and memory.get(COHORTS, "", queue_of_raw(queue).parent) is not None:
            yield "admitted below a Cohort"
    if holds(new, "Evicted") and not holds(old, "Evicted"):
        yield "evicted"
        named = {
            "Preempted": "preempted",
            "AdmissionCheck": "check failed",
            "ClusterQueueStopped": "queue drained",
        }
        if situation := named.get(str(condition(new, "Evicted").get("reason"))):
            yield situation
        if condition(new, "Preempted").get("reason") == "InCohortFairSharing":
            yield "preempted to share fairly"
    if old is not None and active(old) and not active(new):
        yield "deactivated"
    if reserving(old) and not reserving(new) and not admitted(old) and not finished(new):
        yield "reservation lost before admission"
    if finished(new) and not finished(old):
        yield "finished"


def _borrows(raw: dict[str, object]) -> bool:
    """Whether the status of a ClusterQueue says that it borrows; it may be a second late."""
    return any(
        str(resource.get("borrowed", "0")) != "0"
        for flavor in status(raw).get("flavorsReservation") or ()
        for resource in flavor.get("resources") or ()
    )


def _of_job(memory: CommitFold, commit: Commit) -> Iterator[str]:
    old, new = commit.old, commit.new
    if old is None and new is not None:
        earlier = (where for known, where in memory.uids.items() if known != uid(new))
        if commit.resource == JOBS and commit.key in earlier:
            yield "job recreated under its name"
    if old is None or new is None:
        return
    if not is_manager(commit.actor):
        if commit.resource == JOBS and placement_of(old) != placement_of(new):
            again = memory.admissions[subject_of(new)].ever
            yield "job edited after a stop" if again else "job edited while it waits"
        return
    if commit.resource == PODS:
        if gated(old) and not gated(new):
            yield "pod ungated"
    elif suspended(old) and not suspended(new):
        yield "job started"
    elif suspended(new) and not suspended(old):
        yield "job stopped"


def _of_queue(memory: CommitFold, commit: Commit) -> Iterator[str]:
    old, new = commit.old, commit.new
    if old is None or is_manager(commit.actor):
        return
    used = any(queue_of(one) == commit.name for one in memory.all(WORKLOADS) if reserving(one))
    if not used:
        return
    if new is None or (leaving(new) and not leaving(old)):
        yield "queue deleted while it was used"
    elif queue_of_raw(old) != queue_of_raw(new):
        yield "quota changed while it was used"


def _of_cohort(memory: CommitFold, commit: Commit) -> Iterator[str]:
    old = commit.old
    if is_manager(commit.actor):
        return
    after = memory.ledger()
    cohorts = {key: one for key, one in after.cohorts.items() if key != commit.name}
    if old is not None:
        cohorts[commit.name] = cohort_of_raw(old)
    before = attrs.evolve(after, cohorts=cohorts)
    below = [queue for queue in after.queues.values() if commit.name in _names(after.chain(queue))]
    if old is not None and any(queue_of(one) in _names(below) for one in _holding(memory)):
        yield "cohort changed while it was used"
    closed = {(before.endless(queue), after.endless(queue)) for queue in after.queues.values()}
    if (False, True) in closed:
        yield "cycle of Cohorts closed"
    if (True, False) in closed:
        yield "cycle of Cohorts opened"


def _names(nodes: list[NodeQuota]) -> set[str]:
    return {node.name for node in nodes}


def _holding(memory: CommitFold) -> Iterator[Obj]:
    return (one for one in memory.all(WORKLOADS) if reserving(one))


def never(counts: Counter[str]) -> tuple[str, ...]:
    """The situations that were not reached."""
    return tuple(situation for situation in SITUATIONS if not counts[situation])
