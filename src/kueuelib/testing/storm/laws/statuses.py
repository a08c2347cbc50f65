"""Laws at rest about the statuses of queues: they equal the sums over the objects."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.amounts import ZERO, Usage, quantity
from kueuelib.testing.storm.laws.quotas import usage_by_queue
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    admitted,
    condition,
    denied,
    holds,
    leaving,
    name,
    namespace,
    queue_of,
    reserving,
    spec,
    status,
)
from kueuelib.testing.storm.laws.still import Finding, Rest, title

LARGEST = 2**63 - 1
"""The share of a borrower with weight 0."""
FIELDS = (("flavorsReservation", reserving), ("flavorsUsage", admitted))


def cluster_queue_status(rest: Rest) -> Iterator[Finding]:
    """Counts and usage in the status of a ClusterQueue equal those of its Workloads."""
    for queue in rest.queues.values():
        if leaving(queue):
            continue
        mine = [one for one in rest.workloads if queue_of(one) == name(queue)]
        waiting = [one for one in rest.pending() if _waits_in(rest, one, queue)]
        for text in (*_counts(queue, mine, waiting), *_usage(queue, mine)):
            yield title(CLUSTER_QUEUES, queue), text
        model = rest.ledger.queues[name(queue)]
        shown = _shown(queue, "flavorsReservation", "borrowed")
        for pair, amount in shown.items():
            used = rest.ledger.used(model, pair)
            nominal = model.quota(pair).nominal
            borrowed = max(ZERO, used - nominal) if model.parent else ZERO
            if amount != borrowed:
                text = f"{_pair(pair)}: borrowed is {float(amount):g}, not {float(borrowed):g}"
                yield title(CLUSTER_QUEUES, queue), text


def local_queue_status(rest: Rest) -> Iterator[Finding]:
    """Counts and usage in the status of a LocalQueue equal those of its Workloads."""
    for key, queue in sorted(rest.local_queues.items()):
        target = spec(queue).get("clusterQueue")
        if leaving(queue) or target not in rest.queues:
            continue
        here = [
            one for one in rest.workloads if (namespace(one), spec(one).get("queueName")) == key
        ]
        mine = [one for one in here if reserving(one)]
        if any(queue_of(one) != target for one in mine):
            continue  # they hold quota of a queue that the LocalQueue no longer leads to
        waiting = [one for one in rest.pending() if one in here]
        for text in (*_counts(queue, mine, waiting), *_usage(queue, mine)):
            yield title(LOCAL_QUEUES, queue), text


def queues_say_if_they_admit(rest: Rest) -> Iterator[Finding]:
    """A ClusterQueue is reported as active if and only if it can admit something."""
    for queue in rest.queues.values():
        can = rest.can_admit(queue)
        if not leaving(queue) and holds(queue, "Active") is not can:
            shown = condition(queue, "Active").get("message")
            text = f"it can{'' if can else 'not'} admit anything, but its status says: {shown}"
            yield title(CLUSTER_QUEUES, queue), text


def shares(rest: Rest) -> Iterator[Finding]:
    """The share of a ClusterQueue or Cohort is what it borrowed of what its parent could lend."""
    ledger = rest.ledger
    nodes = [
        *((CLUSTER_QUEUES, raw, ledger.queues[key]) for key, raw in rest.queues.items()),
        *((COHORTS, raw, ledger.cohorts[key]) for key, raw in rest.cohorts.items()),
    ]
    if not any("fairSharing" in status(raw) for _, raw, _ in nodes):
        return  # nothing is shared
    for resource, raw, node in nodes:
        if leaving(raw) or ledger.endless(node):
            continue
        shown = (status(raw).get("fairSharing") or {}).get("weightedShare")
        share = ledger.share(node)
        if shown not in _rounded_up(share):
            yield title(resource, raw), f"its share is {shown}, not {share}"


def _rounded_up(share: Fraction | None) -> set[int]:
    """A share in the form of a status; a product of floats may miss a whole number."""
    if share is None:
        return {LARGEST}
    slack = share / 10**9
    return {ceil(share - slack), ceil(share), ceil(share + slack)}


def _waits_in(rest: Rest, workload: Obj, queue: Obj) -> bool:
    target = rest.queue(workload)
    return target is not None and name(target) == name(queue)


def _counts(queue: Obj, mine: list[Obj], waiting: list[Obj]) -> Iterator[str]:
    shown = status(queue)
    expected = {
        "reservingWorkloads": sum(map(reserving, mine)),
        "admittedWorkloads": sum(map(admitted, mine)),
    }
    for field, count in expected.items():
        if shown.get(field, 0) != count:
            yield f"{field} is {shown.get(field, 0)}, not {count}"
    most = len(waiting)
    least = sum(not denied(one, "Requeued") for one in waiting)
    pending = shown.get("pendingWorkloads", 0)
    if not least <= pending <= most:
        yield f"pendingWorkloads is {pending}, not {most}"


def _usage(queue: Obj, mine: list[Obj]) -> Iterator[str]:
    for field, counts in FIELDS:
        expected: Usage = {}
        for usage in usage_by_queue([one for one in mine if counts(one)]).values():
            expected.update(usage)
        shown = _shown(queue, field, "total")
        for pair, amount in sorted(shown.items()):
            right = expected.get(pair, ZERO)
            if amount != right:
                yield f"{field}: {_pair(pair)} is {float(amount):g}, not {float(right):g}"


def _shown(queue: Obj, field: str, part: str) -> Usage:
    return {
        (flavor["name"], resource["name"]): quantity(resource.get(part, 0))
        for flavor in status(queue).get(field) or ()
        for resource in flavor.get("resources") or ()
    }


def _pair(pair: tuple[str, str]) -> str:
    return f"{pair[1]} in flavor {pair[0]}"
