"""The nominal quota that is kept for its owners while they wait (KEP-83, "Test Plan").

If the administrator protects nominal quota, no new Workload borrows what waiting Workloads of its
owner need, parked ones included. It counts only for Workloads whose whole request fits the nominal
quota of their ClusterQueue, in every flavor that they could get. It counts as well for those that
may reclaim it: a stopped ClusterQueue and a preemption policy can refuse that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kueuelib.scheduler.decide.offers import Offers, offers_for
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import NO_LIMITS, Amounts, FlavorResource
from kueuelib.scheduler.quota.queue_spec import Flavor, QueueSpec
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot


def wanted_by_owners(
    spec: QueueSpec, flavors: Mapping[str, Flavor], waiting: Iterable[tuple[WorkloadInfo, int]]
) -> dict[FlavorResource, int]:
    """What waiting Workloads want of the nominal quota of their ClusterQueue.

    Args:
        spec: the ClusterQueue.
        flavors: the ResourceFlavors that exist.
        waiting: one Workload of each shape, and how many there are.
    """
    wanted: dict[FlavorResource, int] = {}
    if not spec.cohort:
        return wanted
    for info, count in waiting:
        for pair, amount in owned(spec, offers_for(spec, flavors, info)).items():
            wanted[pair] = wanted.get(pair, 0) + count * amount
    return wanted


def owned(spec: QueueSpec, offers: Offers) -> dict[FlavorResource, int]:
    """What a request may take of nominal quota, in all flavors; empty if it does not fit there."""
    taken: dict[FlavorResource, int] = {}
    possible: dict[FlavorResource, int] = {}
    for pod_set in offers.pod_sets:
        for group in pod_set.groups:
            fits = False
            for offer in group.offers:
                if offer.mismatch is None and _fits(spec, dict(offer.charges), taken):
                    for pair, amount in offer.charges:
                        possible[pair] = possible.get(pair, 0) + amount
                        if not fits:
                            taken[pair] = taken.get(pair, 0) + amount
                    fits = True
            if not fits:
                return {}
    return possible


def _fits(spec: QueueSpec, charges: Amounts, taken: Amounts) -> bool:
    limits = spec.limits
    return all(
        taken.get(pair, 0) + amount <= limits.get(pair, NO_LIMITS).nominal
        for pair, amount in charges.items()
    )


class Owners:
    """The nominal quota that is kept in one cycle.

    Args:
        snapshot: the state after the decisions so far.
        wanted: what the waiting Workloads of each ClusterQueue want of its nominal quota.
    """

    def __init__(
        self, snapshot: Snapshot, wanted: Mapping[str, Mapping[FlavorResource, int]]
    ) -> None:
        self._snapshot = snapshot
        self._wanted = {name: dict(amounts) for name, amounts in wanted.items() if amounts}

    def admitted(self, name: str, usage: Amounts) -> None:
        """A waiting Workload got quota."""
        wanted = self._wanted.get(name, {})
        for pair in usage.keys() & wanted.keys():
            wanted[pair] = max(0, wanted[pair] - usage[pair])

    def keep(self, borrower: str) -> None:
        """Charges what is kept from a ClusterQueue; the caller undoes it."""
        snapshot = self._snapshot
        for name in sorted(self._wanted):
            queue = snapshot.queue(name)
            if queue is None or queue.inactive or name == borrower:
                continue
            kept = {
                pair: max(0, min(amount, _unused(snapshot, queue, pair)))
                for pair, amount in self._wanted[name].items()
            }
            snapshot.add(queue, kept)


def _unused(snapshot: Snapshot, queue: FrozenQueue, pair: FlavorResource) -> int:
    return snapshot.limits(queue, pair).nominal - snapshot.usage(queue, pair)
