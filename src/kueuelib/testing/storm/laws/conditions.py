"""Laws about the status of one Workload: no contradictions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    admitted,
    finished,
    holds,
    queue_of,
    reserving,
    spec,
    status,
)


def consistent_conditions(_memory: Memory, commit: Commit) -> Iterator[str]:
    """Admitted implies QuotaReserved, which implies an admission, and vice versa."""
    new = commit.new
    if new is None or not is_manager(commit.actor):
        return
    state = status(new)
    has_admission = bool(state.get("admission"))
    if holds(new, "Admitted") and not holds(new, "QuotaReserved"):
        yield "Admitted is True without QuotaReserved"
    if holds(new, "QuotaReserved") and not has_admission:
        yield "QuotaReserved is True without an admission"
    if has_admission and not holds(new, "QuotaReserved"):
        yield "there is an admission, but QuotaReserved is not True"
    kinds = Counter(entry["type"] for entry in state.get("conditions") or ())
    for kind, count in sorted(kinds.items()):
        if count > 1:
            yield f"condition {kind} is there {count} times"
    if holds(new, "Evicted") and reserving(new) and not reserving(commit.old):
        yield "quota was reserved, but Evicted is still True"


def finished_for_ever(_memory: Memory, commit: Commit) -> Iterator[str]:
    """Finished is never revoked, and a finished Workload is never admitted again."""
    old, new = commit.old, commit.new
    if old is None or new is None or not finished(old):
        return
    if not finished(new):
        yield "Finished was taken back"
    if holds(new, "QuotaReserved") and not holds(old, "QuotaReserved"):
        yield "it reserved quota after it had finished"


def admission_not_edited(_memory: Memory, commit: Commit) -> Iterator[str]:
    """An admission is set and cleared, but not changed while quota is held."""
    old, new = commit.old, commit.new
    if not is_manager(commit.actor) or not reserving(old) or not reserving(new):
        return
    if _core(old) != _core(new):
        yield "the admission changed while quota was held"


def _core(workload: Obj | None) -> object:
    admission = status(workload or {}).get("admission") or {}
    parts = [
        (entry["name"], entry.get("flavors"), entry.get("count"))
        for entry in admission.get("podSetAssignments") or ()
    ]
    return admission.get("clusterQueue"), parts


def checks_before_admission(memory: Memory, commit: Commit) -> Iterator[str]:
    """A Workload becomes Admitted only when every required admission check is Ready."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or not admitted(new) or admitted(commit.old):
        return
    states = {
        entry["name"]: entry.get("state") for entry in status(new).get("admissionChecks") or ()
    }
    for check, state in sorted(states.items()):
        if state != "Ready":
            yield f"it became Admitted while admission check {check} was {state}"
    queue = memory.get(CLUSTER_QUEUES, "", queue_of(new))
    if queue is None or memory.within_lag(memory.required.get(queue_of(new), -math.inf), commit.at):
        return
    for check in sorted(_required(queue, new) - set(states)):
        yield f"it became Admitted without admission check {check}"


def answers_end_with_quota(_memory: Memory, commit: Commit) -> Iterator[str]:
    """Answers of checks, except `Retry`, are removed when a manager takes a Workload's quota.

    An active Workload keeps a Rejected until it is deactivated for it.
    """
    old, new = commit.old, commit.new
    if new is None or not is_manager(commit.actor) or not reserving(old) or reserving(new):
        return
    if finished(new):
        return
    for entry in status(new).get("admissionChecks") or ():
        state = entry.get("state")
        if state in ("Retry", "Rejected") and spec(new).get("active") is not False:
            continue
        left = [field for field in ("reason", "podSetUpdates") if entry.get(field)]
        if state != "Pending" or left:
            said = " with ".join((str(state), *left))
            yield f"it lost its quota, but admission check {entry['name']} is still {said}"


def _required(queue: Obj, workload: Obj) -> set[str]:
    rules = (spec(queue).get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    assigned = {
        flavor
        for entry in status(workload)["admission"].get("podSetAssignments") or ()
        for flavor in (entry.get("flavors") or {}).values()
    }
    return {
        rule["name"]
        for rule in rules
        if not rule.get("onFlavors") or assigned & set(rule["onFlavors"])
    }
