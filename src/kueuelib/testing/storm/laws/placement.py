"""Laws about reservations: from the right queue, for the requests of the pods, and only if
allowed.
"""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.amounts import Amounts, add, is_simple, pod_request, quantity
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    active,
    leaving,
    queue_of,
    reserving,
    spec,
    status,
)

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


def reserved_from_its_queue(memory: Memory, commit: Commit) -> Iterator[str]:
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


def reserved_only_if_allowed(memory: Memory, commit: Commit) -> Iterator[str]:
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


def _touched(memory: Memory, commit: Commit, local: str) -> bool:
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


def usage_is_what_pods_request(memory: Memory, commit: Commit) -> Iterator[str]:
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
