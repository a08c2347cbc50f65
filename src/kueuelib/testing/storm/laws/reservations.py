"""Laws about reservations: from the right queue, for the requests of the pods, within quota."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.ledger import (
    Amounts,
    NodeQuota,
    QuotaLedger,
    add,
    is_simple,
    pod_request,
    quantity,
    usage_by_queue,
    usage_of,
)
from kueuelib.testing.storm.laws.memory import CommitFold, is_manager
from kueuelib.testing.storm.laws.reading import (
    CHECKS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    WORKLOADS,
    active,
    admitted,
    leaving,
    name,
    queue_of,
    reserving,
    spec,
    status,
    uid,
)

# ---- laws about quota: no written reservation exceeds it, and none is made in a cycle ------------

LATE_POLICY = "AfterCheckPassedOrOnDemand"


def preempts_late(queue: Obj | None, checks: list[Obj]) -> bool:
    """Whether a ClusterQueue reserves quota on the assumption that victims will leave."""
    rules = (spec(queue or {}).get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    late = {name(one) for one in checks if spec(one).get("preemptionPolicy") == LATE_POLICY}
    return any(rule["name"] in late for rule in rules)


def quota_not_exceeded(memory: CommitFold, commit: Commit) -> Iterator[str]:
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


def no_quota_in_a_cycle(memory: CommitFold, commit: Commit) -> Iterator[str]:
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


def _excess(ledger: QuotaLedger, queue: NodeQuota, holders: list[Obj], new: Obj) -> Iterator[str]:
    used = attrs.evolve(ledger, usage=usage_by_queue(holders))
    return used.excess(queue, usage_of(new))


def _has_excess(ledger: QuotaLedger, queue: NodeQuota, holders: list[Obj], new: Obj) -> bool:
    return next(_excess(ledger, queue, holders, new), None) is not None


def _cut(memory: CommitFold, commit: Commit, ledger: QuotaLedger, members: list[NodeQuota]) -> bool:
    """Whether quota was reduced or the tree changed without the writer being able to know."""
    causes = {"all", *(f"queue:{one.name}" for one in members)}
    causes |= {f"cohort:{cohort.name}" for one in members for cohort in ledger.chain(one)}
    cuts = [memory.cut[cause] for cause in causes if cause in memory.cut]
    return any(memory.within_lag(cut, commit.at) for cut in cuts)


def _writer(memory: CommitFold, commit: Commit, holder: Obj) -> str:
    """The writer of the reservation; the actor of the commit if it is not known."""
    return memory.reserved_by.get(uid(holder), (commit.actor, 0.0))[0]


def _news(memory: CommitFold, commit: Commit, holder: Obj) -> bool:
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


# --------------------------------------------------------------------------------------------------

LIMIT_RANGES = "limitranges"
PODS_RESOURCE = "pods"


def _reserved(commit: Commit) -> bool:
    """Whether a manager reserves quota; another law requires the admission."""
    new, old = commit.new, commit.old
    return (
        new is not None
        and is_manager(commit.actor)
        and reserving(new)
        and not reserving(old)
        and bool(queue_of(new))
    )


def reserved_from_its_queue(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Quota comes from the ClusterQueue that the LocalQueue of the Workload leads to."""
    new = commit.new
    if new is None or not _reserved(commit):
        return
    local_name = str(spec(new).get("queueName", ""))
    local = memory.get(LOCAL_QUEUES, commit.namespace, local_name)
    if _touched(memory, commit, local_name):
        return
    if local is None:
        yield f"it reserved quota, but there is no LocalQueue {local_name}"
    elif spec(local).get("clusterQueue") != queue_of(new):
        leads = spec(local).get("clusterQueue")
        yield f"it reserved quota of {queue_of(new)}, but {local_name} leads to {leads}"


def reserved_only_if_allowed(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Nothing reserves quota while it is inactive or leaving, or while its queue is stopped."""
    new = commit.new
    if new is None or not _reserved(commit):
        return
    local_name = str(spec(new).get("queueName", ""))
    if not active(new):
        yield "it reserved quota, but it is not active"
    if leaving(new):
        yield "it reserved quota, but it was deleted"
    if _touched(memory, commit, local_name):
        return
    queues = (
        ("ClusterQueue", memory.get(CLUSTER_QUEUES, "", queue_of(new))),
        ("LocalQueue", memory.get(LOCAL_QUEUES, commit.namespace, local_name)),
    )
    for kind, queue in queues:
        policy = spec(queue or {}).get("stopPolicy", "None")
        if policy != "None":
            yield f"it reserved quota, but its {kind} has the stop policy {policy}"
        if queue is not None and leaving(queue):
            yield f"it reserved quota, but its {kind} was deleted"


def _touched(memory: CommitFold, commit: Commit, local: str) -> bool:
    """Whether the queues may have changed after the decision.

    The Workload itself cannot have changed: a reservation is written only to the state that it was
    made for.
    """
    assert commit.new is not None, "something was reserved"
    keys = (
        (LOCAL_QUEUES, commit.namespace, local),
        (CLUSTER_QUEUES, "", queue_of(commit.new)),
    )
    return any(
        key in memory.changed and memory.within_lag(memory.changed[key], commit.at) for key in keys
    )


def usage_is_what_pods_request(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """An admission counts exactly the requests of the pods of each pod set."""
    new = commit.new
    if new is None or not _reserved(commit) or memory.all(LIMIT_RANGES):
        return
    pod_sets = {one["name"]: one for one in spec(new)["podSets"]}
    entries = (status(new).get("admission") or {}).get("podSetAssignments") or ()
    names = [entry["name"] for entry in entries]
    if sorted(names) != sorted(pod_sets):
        yield f"the admission is for pod sets {names}, not {sorted(pod_sets)}"
        return
    for entry in entries:
        pod_set = pod_sets[entry["name"]]
        template = pod_set["template"].get("spec") or {}
        if is_simple(template):
            yield from _wrong_usage(entry, pod_set, template)


def _wrong_usage(entry: Obj, pod_set: Obj, template: Obj) -> Iterator[str]:
    most = int(pod_set.get("count", 1))
    count = int(entry.get("count", most))
    if count > most:
        yield f"{count} pods of {entry['name']} were admitted; there are {most}"
    expected: Amounts = {}
    add(expected, pod_request(template), count)
    for resource, amount in (entry.get("resourceUsage") or {}).items():
        right = count if resource == PODS_RESOURCE else expected.pop(resource, 0)
        if quantity(amount) != right:
            wrong, asked = float(quantity(amount)), float(right)
            yield f"the usage of {resource} by {entry['name']} is {wrong:g}, not {asked:g}"
    for resource, missing in expected.items():
        if missing:
            yield f"the usage of {resource} by {entry['name']} is missing"
