"""The oracle: finds Workloads that wait although nothing can prevent their admission.

It is sound, not complete: it only judges cases that are certain under every reading of the rules.
It skips pods that could rule a flavor out, selectors, limits of a namespace, and queues whose head
is uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.ledger import (
    ZERO,
    Amounts,
    NodeQuota,
    Pair,
    QuotaLedger,
    Usage,
    add,
    is_simple,
    pod_request,
    reclaimed,
    usage_of,
)
from kueuelib.testing.storm.laws.reading import (
    WORKLOADS,
    condition,
    denied,
    leaving,
    meta,
    name,
    namespace,
    queue_of,
    reserving,
    seconds,
    spec,
    status,
)
from kueuelib.testing.storm.laws.reservations import preempts_late
from kueuelib.testing.storm.laws.state_at_rest import Finding, StateAtRest, title

Need = list[Amounts]
"""The total request of each pod set."""

Room = Callable[[Pair], Fraction]
"""How much of a pair is certainly available."""


def admissible_runs(rest: StateAtRest) -> Iterator[Finding]:
    """No Workload waits whose request certainly fits, with or without preemption."""
    for workload in rest.pending():
        raw = rest.queue(workload)
        if raw is None or not _eligible(rest, workload, raw) or not _is_head(rest, workload, raw):
            continue
        queue = rest.ledger.queues[name(raw)]
        need = _need(workload, queue)
        if need is None:
            continue
        if _fits(need, queue, _free_room(rest, queue)):
            yield (
                title(WORKLOADS, workload),
                f"it waits, but it fits into ClusterQueue {queue.name}",
            )
        elif _fits(need, queue, _room_by_preemption(rest, workload, raw)):
            text = f"it waits, but it can preempt what is in its way in {queue.name}"
            yield title(WORKLOADS, workload), text


# ---- which Workloads are checked


def _eligible(rest: StateAtRest, workload: Obj, raw: Obj) -> bool:
    """Whether only quota can prevent the admission of a Workload."""
    local = rest.local_queue(workload)
    state = status(workload)
    checks = state.get("admissionChecks") or ()
    return (
        local is not None
        and not leaving(local)
        and spec(local).get("stopPolicy", "None") == "None"
        and rest.can_admit(raw)
        and spec(raw).get("namespaceSelector") == {}
        and not denied(workload, "Requeued")
        and not (state.get("requeueState") or {}).get("requeueAt")
        and all(entry.get("state") not in ("Retry", "Rejected") for entry in checks)
        and not any(namespace(one) == namespace(workload) for one in rest.objects("limitranges"))
    )


def _is_head(rest: StateAtRest, workload: Obj, raw: Obj) -> bool:
    """Whether a Workload is certainly tried: always with best effort, otherwise if it is the
    head.
    """
    if spec(raw).get("queueingStrategy") != "StrictFIFO":
        return True
    for other in rest.pending():
        target = rest.queue(other)
        if other is workload or target is None or name(target) != name(raw):
            continue
        if not _before(workload, other):
            return False
    return True


def _priority(workload: Obj) -> int:
    return int(spec(workload).get("priority") or 0)


def _before(one: Obj, other: Obj) -> bool:
    """Whether one is certainly queued before the other, for any definition of its time."""
    if _priority(one) != _priority(other):
        return _priority(one) > _priority(other)
    return _times(one)[1] < _times(other)[0]


def _times(workload: Obj) -> tuple[float, float]:
    """The earliest and the latest instant that can count as the one it was queued at."""
    created = seconds(meta(workload).get("creationTimestamp"))
    evicted = seconds(condition(workload, "Evicted").get("lastTransitionTime"))
    return created, max(created, evicted)


# ---- what it needs


def _need(workload: Obj, queue: NodeQuota) -> Need | None:
    """The requests of its pod sets; None if these or the choice of flavors are not certain."""
    done = reclaimed(workload)
    needs: Need = []
    covered = {resource for _flavor, resource in queue.quotas}
    pod_sets = spec(workload)["podSets"]
    if len(pod_sets) > 1 and any(len(flavors) > 1 for _resources, flavors in _groups(queue)):
        return None
    for pod_set in pod_sets:
        template = pod_set["template"].get("spec") or {}
        if not is_simple(template):
            return None
        count = max(0, int(pod_set.get("count", 1)) - done.get(pod_set["name"], 0))
        need = {key: amount * count for key, amount in pod_request(template).items() if amount}
        if "pods" in covered:
            need["pods"] = Fraction(count)
        if not set(need) <= covered:
            return None
        needs.append(need)
    return needs


def _groups(queue: NodeQuota) -> list[tuple[list[str], list[str]]]:
    """Resources and flavors of each resource group; a resource is in only one group."""
    flavors: dict[str, list[str]] = {}
    for flavor, resource in queue.quotas:
        flavors.setdefault(resource, []).append(flavor)
    by_flavors: dict[tuple[str, ...], list[str]] = {}
    for resource, names in flavors.items():
        by_flavors.setdefault(tuple(names), []).append(resource)
    return [(resources, list(names)) for names, resources in by_flavors.items()]


def _fits(need: Need, queue: NodeQuota, room: Room) -> bool:
    """Whether every pod set finds a flavor."""
    taken: Usage = {}
    for asked in need:
        for resources, flavors in _groups(queue):
            part = {resource: asked[resource] for resource in resources if resource in asked}
            for flavor in flavors:
                pairs = {(flavor, resource): amount for resource, amount in part.items()}
                if all(
                    amount + taken.get(pair, ZERO) <= room(pair) for pair, amount in pairs.items()
                ):
                    add(taken, pairs)
                    break
            else:
                return False
    return True


# ---- how much room there surely is


def _no_room(_pair: Pair) -> Fraction:
    return Fraction(-1)


def _free_room(rest: StateAtRest, queue: NodeQuota) -> Room:
    """The free quota, less what the heads of other queues of the tree may withhold."""
    ledger = rest.ledger
    if _alone(rest, queue):
        return lambda pair: ledger.free(queue, pair)
    if _nobody_borrows(ledger, queue):
        return lambda pair: queue.quota(pair).nominal - ledger.used(queue, pair)
    return _no_room


def _room_by_preemption(rest: StateAtRest, workload: Obj, raw: Obj) -> Room:
    """The free quota once all certain victims have left.

    Own Workloads of lower priority leave. With `reclaimWithinCohort: Any`, no other queue in the
    tree keeps more than its nominal quota, so all of the own nominal quota is available. That is
    certain only if it suffices while the own Workloads stay: beyond it, shares decide which
    Workloads leave.
    """
    queue = rest.ledger.queues[name(raw)]
    members = [rest.queues[one.name] for one in rest.ledger.members(queue)]
    checks = list(rest.checks.values())
    if any(preempts_late(one, checks) or not rest.can_admit(one) for one in members):
        return _no_room
    policy: Mapping[str, str] = spec(raw).get("preemption") or {}
    victims = [
        one
        for one in rest.workloads
        if policy.get("withinClusterQueue", "Never") != "Never"
        and reserving(one)
        and queue_of(one) == queue.name
        and _priority(one) < _priority(workload)
    ]
    usage = {key: dict(amounts) for key, amounts in rest.ledger.usage.items()}
    for one in victims:
        add(usage[queue.name], usage_of(one), -1)
    after = attrs.evolve(rest.ledger, usage=usage)
    if victims and _nobody_borrows(rest.ledger, queue):
        return lambda pair: queue.quota(pair).nominal - after.used(queue, pair)
    if queue.parent and policy.get("reclaimWithinCohort") == "Any":
        return lambda pair: queue.quota(pair).nominal - rest.ledger.used(queue, pair)
    return _no_room


def _alone(rest: StateAtRest, queue: NodeQuota) -> bool:
    """Whether no Workload in another queue of the tree can withhold quota."""
    members = {one.name for one in rest.ledger.members(queue)} - {queue.name}
    waiting = [rest.queue(other) for other in rest.pending()]
    return not any(other is not None and name(other) in members for other in waiting)


def _nobody_borrows(ledger: QuotaLedger, queue: NodeQuota) -> bool:
    """Whether every other queue of the tree stays within its nominal quota."""
    return all(
        used <= one.quota(pair).nominal
        for one in ledger.members(queue)
        if one.name != queue.name
        for pair, used in ledger.usage.get(one.name, {}).items()
    )
