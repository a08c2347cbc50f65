"""Quota as ClusterQueues declare it, and how much of it a cohort leaves (flat cohorts)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.laws.amounts import ZERO, Usage, add, quantity, usage_of
from kueuelib.testing.storm.laws.reading import name, queue_of, reserving, spec

Pair = tuple[str, str]
"""Flavor and resource."""


@attrs.frozen
class Quota:
    """What a ClusterQueue owns of one flavor and resource; None: without a limit."""

    nominal: Fraction
    borrowing: Fraction | None
    lending: Fraction | None

    @property
    def guaranteed(self) -> Fraction:
        """What it never lends."""
        return ZERO if self.lending is None else max(ZERO, self.nominal - self.lending)


NOTHING = Quota(ZERO, None, None)


@attrs.frozen
class Queue:
    """A ClusterQueue as far as quota goes."""

    name: str
    cohort: str
    quotas: Mapping[Pair, Quota]

    def quota(self, pair: Pair) -> Quota:
        """Its quota of a pair, nothing if it has none."""
        return self.quotas.get(pair, NOTHING)


def queue_of_raw(raw: Obj) -> Queue:
    """Reads a ClusterQueue."""
    quotas: dict[Pair, Quota] = {}
    for group in spec(raw).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                limits = (resource.get("borrowingLimit"), resource.get("lendingLimit"))
                borrowing, lending = (None if one is None else quantity(one) for one in limits)
                nominal = quantity(resource.get("nominalQuota", 0))
                quotas[flavor["name"], resource["name"]] = Quota(nominal, borrowing, lending)
    return Queue(name(raw), str(spec(raw).get("cohortName") or ""), quotas)


def usage_by_queue(workloads: Iterable[Obj]) -> dict[str, Usage]:
    """The usage of all Workloads that hold quota, by ClusterQueue."""
    found: dict[str, Usage] = {}
    for workload in workloads:
        if reserving(workload):
            add(found.setdefault(queue_of(workload), {}), usage_of(workload))
    return found


@attrs.frozen
class Ledger:
    """All ClusterQueues and their usage.

    Attributes:
        queues: by name.
        usage: by name of a queue.
    """

    queues: Mapping[str, Queue]
    usage: Mapping[str, Usage]

    def members(self, queue: Queue) -> list[Queue]:
        """The queues of its cohort, itself among them."""
        if not queue.cohort:
            return [queue]
        return [one for one in self.queues.values() if one.cohort == queue.cohort]

    def used(self, queue: Queue, pair: Pair) -> Fraction:
        """What the Workloads of a queue use of a pair."""
        return self.usage.get(queue.name, {}).get(pair, ZERO)

    def free_in_cohort(self, queue: Queue, pair: Pair) -> Fraction:
        """What the cohort leaves to a queue; negative if too much is used."""
        members = self.members(queue)
        pool = taken = ZERO
        for one in members:
            quota, used = one.quota(pair), self.used(one, pair)
            pool += quota.nominal - quota.guaranteed
            taken += max(ZERO, used - quota.guaranteed)
        own = queue.quota(pair).guaranteed
        return pool + own - taken - min(self.used(queue, pair), own)

    def free(self, queue: Queue, pair: Pair) -> Fraction:
        """What a queue can still take of a pair, borrowed or not; negative if it has too much."""
        if pair not in queue.quotas:
            return -self.used(queue, pair)
        quota, used = queue.quota(pair), self.used(queue, pair)
        if not queue.cohort:
            return quota.nominal - used
        left = self.free_in_cohort(queue, pair)
        if quota.borrowing is not None:
            left = min(left, quota.nominal + quota.borrowing - used)
        return left

    def excess(self, queue: Queue, pairs: Iterable[Pair]) -> Iterator[str]:
        """What of these pairs a queue has too much of."""
        for pair in sorted(pairs):
            left = self.free(queue, pair)
            if left < 0:
                flavor, resource = pair
                used = float(self.used(queue, pair))
                yield (
                    f"{resource} in flavor {flavor}: ClusterQueue {queue.name} uses {used:g}, "
                    f"{float(-left):g} more than there is"
                )
