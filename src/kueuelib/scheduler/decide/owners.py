"""The nominal quota that is kept for its owners while they wait (KEP-83, "Test Plan").

If the administrator protects nominal quota, no new Workload borrows what waiting Workloads of its
owner need, parked ones included. So every charge that borrows has to leave them enough: heads are
asked in their turn, and promises whenever they are charged (`kueuelib.scheduler.decide.promises`).

Quota is kept only for Workloads whose whole request fits the nominal quota of their ClusterQueue,
in every flavor that they could get. It is kept as well for those that may reclaim it: an inactive
ClusterQueue and a preemption policy can refuse that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kueuelib.scheduler.blockers import FIT, NO_FIT
from kueuelib.scheduler.decide.cycle_values import Head
from kueuelib.scheduler.decide.nomination import Entry, fitted, propose
from kueuelib.scheduler.decide.offers import Offers, Proposal, offers_for
from kueuelib.scheduler.decide.preemption.guard import Judge
from kueuelib.scheduler.decide.preemption.victims import Path, Victim
from kueuelib.scheduler.pending.workload_info import WorkloadInfo
from kueuelib.scheduler.quota.amounts import NO_LIMITS, Amounts, FlavorResource
from kueuelib.scheduler.quota.queue_spec import Flavor, QueueSpec
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.scheduler.settings import Settings
from kueuelib.scheduler.values import changed


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
        self._withheld: list[tuple[FrozenQueue, Amounts]] = []

    def admitted(self, head: Head) -> None:
        """A waiting Workload got quota."""
        self._want(head, -1)

    def wait_again(self, head: Head) -> None:
        """A Workload lost the room that it was promised."""
        self._want(head, 1)

    def _want(self, head: Head, count: int) -> None:
        queue, flavors = self._snapshot.queue(head.cluster_queue), self._snapshot.flavors
        if queue is not None:
            more = wanted_by_owners(queue.spec, flavors, [(head.info, count)])
            wanted = self._wanted.setdefault(head.cluster_queue, {})
            for pair, amount in more.items():
                wanted[pair] = wanted.get(pair, 0) + amount

    def withhold(self, queue: FrozenQueue, amounts: Amounts) -> None:
        """A blocked head withholds quota in this cycle.

        This does not count here, because the verdict on a borrower may last longer.
        """
        self._withheld.append((queue, amounts))

    def beside(self, entry: Entry, settings: Settings, judge: Judge) -> Entry:
        """A head that borrows, with a proposal that leaves owners what they wait for."""
        if entry.proposal.mode is not FIT and not entry.proposal.victims:
            return entry
        snapshot, mark = self._snapshot, self._snapshot.mark()
        for victim in entry.proposal.victims:
            if victim.key not in snapshot.gone:
                snapshot.take_out(victim.holder)
        enough = self.get_enough(entry.queue, entry.proposal.usage)
        snapshot.undo(mark)
        if enough:
            return entry
        self._keep_from(entry.queue)
        other = propose(snapshot, entry.queue, entry.head, settings, judge)
        snapshot.undo(mark)
        if other.mode is not FIT and other.mode is not NO_FIT:
            other = self._if_it_borrows_nothing(entry, other, settings)
            snapshot.undo(mark)
        return changed(entry, proposal=other)

    def _if_it_borrows_nothing(self, entry: Entry, kept: Proposal, settings: Settings) -> Proposal:
        """A proposal that does not fit beside what is kept, without the victims that it needs only
        if it borrows: nothing is kept from a head that does not. The caller undoes the changes.
        """
        snapshot, queue, usage = self._snapshot, entry.queue, kept.usage
        reclaims = any(one.path is Path.IN_COHORT_RECLAMATION for one in kept.victims)
        for victim in kept.victims:
            snapshot.take_out(victim.holder)
        needed: list[Victim] = []
        for victim in reversed(kept.victims):
            snapshot.put_back(victim.holder)
            if not self._may_have(queue, usage, borrow=not reclaims):
                snapshot.take_out(victim.holder)
                needed.append(victim)
        if not self._may_have(queue, usage, borrow=True):
            return kept
        fit = fitted(snapshot, queue, entry.head, settings, kept.counts, kept.flavors)
        if not needed:
            return fit
        return changed(kept, victims=tuple(reversed(needed)), borrowing=fit.borrowing)

    def _may_have(self, queue: FrozenQueue, usage: Amounts, *, borrow: bool) -> bool:
        """Whether a request fits, and leaves owners what they wait for if it may borrow."""
        if borrows(self._snapshot, queue, usage) and not (borrow and self.get_enough(queue, usage)):
            return False
        return self._snapshot.fits(queue, usage)

    def get_enough(self, queue: FrozenQueue, usage: Amounts) -> bool:
        """Whether a request that borrows leaves owners what they wait for."""
        snapshot, mark = self._snapshot, self._snapshot.mark()
        self._keep_from(queue)
        fits = snapshot.fits(queue, usage)
        snapshot.undo(mark)
        return fits

    def _keep_from(self, borrower: FrozenQueue) -> None:
        """Charges what is kept; the caller undoes it."""
        snapshot, its_own = self._snapshot, borrower.spec.name
        for queue, amounts in self._withheld:
            snapshot.remove(queue, amounts)
        for name in sorted(self._wanted):
            owner = snapshot.queue(name)
            if owner is None or owner.inactive or name == its_own:
                continue
            kept = {
                pair: max(0, min(amount, _unused(snapshot, owner, pair)))
                for pair, amount in self._wanted[name].items()
            }
            snapshot.add(owner, kept)


def borrows(snapshot: Snapshot, queue: FrozenQueue, usage: Amounts) -> bool:
    """Whether a ClusterQueue exceeds its nominal quota with a request."""
    return any(
        amount and snapshot.usage(queue, pair) + amount > snapshot.limits(queue, pair).nominal
        for pair, amount in usage.items()
    )


def _unused(snapshot: Snapshot, queue: FrozenQueue, pair: FlavorResource) -> int:
    return snapshot.limits(queue, pair).nominal - snapshot.usage(queue, pair)
