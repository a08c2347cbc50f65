"""The numbers in the status of ClusterQueues and LocalQueues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kueuelib.api.kueue import FlavorUsage, LocalFlavorUsage, LocalResourceUsage, ResourceUsage
from kueuelib.api.meta import ObjectKey
from kueuelib.api.quantity import Quantity, quantity_of
from kueuelib.api.struct import frozen
from kueuelib.scheduler.pending.queue import PendingQueue
from kueuelib.scheduler.quota.amounts import Amounts, FlavorResource
from kueuelib.scheduler.quota.cluster_queue import Tally
from kueuelib.scheduler.quota.past_usage import PastUsage
from kueuelib.scheduler.quota.queue_spec import QueueSpec

NOTHING = Tally()


@frozen
class QueueStatus:
    """The present numbers of a ClusterQueue.

    Attributes:
        pending: how many workloads wait.
        active: how many of them can be tried; 0 if the queue is not active.
        inadmissible: how many of them are parked.
        reserving: how many workloads hold quota.
        admitted: how many of them are admitted.
        reservation: the usage of those with quota; flavors in the order of the spec, resources
            sorted.
        usage: the usage of the admitted ones.
        share: its share of borrowed quota, infinite if it borrows with weight 0; None while fair
            sharing is off.
    """

    pending: int
    active: int
    inadmissible: int
    reserving: int
    admitted: int
    reservation: tuple[FlavorUsage, ...]
    usage: tuple[FlavorUsage, ...]
    share: float | None


@frozen
class PastUse:
    """The past usage of a LocalQueue (KEP-4136).

    Attributes:
        consumed: the decayed amounts at the last sample.
        sampled_at: when that was, in seconds since the epoch.
        next_sample: when to show them again; None if nothing is left or in use.
        usage: the number that orders LocalQueues; infinite for weight 0.
    """

    consumed: Mapping[str, Quantity]
    sampled_at: float
    next_sample: float | None
    usage: float


@frozen
class LocalQueueNumbers:
    """The present numbers of a LocalQueue, as in `QueueStatus`.

    `past` is None if past usage does not count.
    """

    pending: int
    reserving: int
    admitted: int
    reservation: tuple[LocalFlavorUsage, ...]
    usage: tuple[LocalFlavorUsage, ...]
    past: PastUse | None = None


def queue_status(
    spec: QueueSpec, tally: Tally, waiting: PendingQueue, share: float | None
) -> QueueStatus:
    """The status of a ClusterQueue.

    Args:
        spec: its quotas.
        tally: its totals.
        waiting: its waiting Workloads; one in flight counts as active.
        share: as in the status.
    """
    pending = inadmissible = len(waiting.items)
    if waiting.active:
        groups = waiting.groups.values()
        inadmissible = sum(len(group.members) for group in groups if group.verdict is not None)
    return QueueStatus(
        pending=pending,
        active=pending - inadmissible,
        inadmissible=inadmissible,
        reserving=tally.reserving,
        admitted=tally.admitted,
        reservation=_usage(spec, tally.reserved),
        usage=_usage(spec, tally.used),
        share=share,
    )


def pending_requests(waiting: PendingQueue) -> dict[str, int]:
    """The requests of all waiting Workloads by resource, including unrequested resources with
    quota.
    """
    requests = dict.fromkeys((pair.resource for pair in waiting.spec.limits), 0)
    for item in waiting.items.values():
        for pod_set in item.info.pod_sets:
            for resource, amount in pod_set.requests(pod_set.count, count_pods=False).items():
                requests[resource] = requests.get(resource, 0) + amount
    return requests


def parked(waiting: PendingQueue) -> Iterator[ObjectKey]:
    """The Workloads that cannot be tried; all of them if the queue is not active."""
    if not waiting.active:
        yield from waiting.items
        return
    for group in waiting.groups.values():
        if group.verdict is not None:
            yield from group.members


def pending_shapes(waiting: PendingQueue) -> tuple[int, int]:
    """How many different Workloads can be tried, and how many are parked, equal ones counted once.

    One in flight can be tried; in an inactive queue, all are parked.
    """
    tried = {shape for (shape, _, _), group in waiting.groups.items() if group.verdict is None}
    parked = {shape for (shape, _, _), group in waiting.groups.items() if group.verdict is not None}
    if waiting.in_flight is not None:
        tried.add(waiting.items[waiting.in_flight].info.shape)
    return (len(tried), len(parked)) if waiting.active else (0, len(tried | parked))


def past_of(usage: PastUsage | None, key: ObjectKey) -> PastUse | None:
    """The past usage of a LocalQueue; None if it does not count."""
    sample = None if usage is None else usage.sample(key)
    if usage is None or sample is None:
        return None
    consumed = {name: Quantity(nanos) for name, nanos in sorted(sample.consumed.items())}
    goes_on = usage.next_sample() if usage.is_counting(key) else None
    return PastUse(consumed, sample.at, goes_on, float(usage.value(key)))


def local_queue_status(
    spec: QueueSpec | None, tally: Tally, pending: int, past: PastUse | None = None
) -> LocalQueueNumbers:
    """The status of a LocalQueue; its flavors are those of its ClusterQueue, if that exists."""
    return LocalQueueNumbers(
        pending=pending,
        reserving=tally.reserving,
        admitted=tally.admitted,
        reservation=_local_usage(spec, tally.reserved),
        usage=_local_usage(spec, tally.used),
        past=past,
    )


def _resources(spec: QueueSpec) -> list[tuple[str, list[str]]]:
    """Flavors in the order of the spec, each with its resources sorted by name.

    The webhook refuses a flavor in two groups. If such a spec bypassed the webhook, the flavor
    still gets one row, because an API server refuses a status with two of one name.
    """
    by_flavor: dict[str, set[str]] = {}
    for group in spec.groups:
        for flavor in group.flavors:
            by_flavor.setdefault(flavor, set()).update(group.resources)
    return [(flavor, sorted(resources)) for flavor, resources in by_flavor.items()]


def _usage(spec: QueueSpec, used: Amounts) -> tuple[FlavorUsage, ...]:
    rows = []
    for flavor, resources in _resources(spec):
        cells = []
        for resource in resources:
            pair = FlavorResource(flavor, resource)
            total = used.get(pair, 0)
            limits = spec.limits.get(pair)
            borrowed = max(0, total - limits.nominal) if spec.cohort and limits else 0
            cells.append(
                ResourceUsage(
                    resource, quantity_of(resource, total), quantity_of(resource, borrowed)
                )
            )
        rows.append(FlavorUsage(flavor, tuple(cells)))
    return tuple(rows)


def _local_usage(spec: QueueSpec | None, used: Amounts) -> tuple[LocalFlavorUsage, ...]:
    if spec is None:
        return ()
    return tuple(
        LocalFlavorUsage(
            flavor,
            tuple(
                LocalResourceUsage(
                    resource,
                    quantity_of(resource, used.get(FlavorResource(flavor, resource), 0)),
                )
                for resource in resources
            ),
        )
        for flavor, resources in _resources(spec)
    )
