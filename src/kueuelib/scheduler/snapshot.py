"""What a cycle sees: frozen parts of the cache, and an overlay that can be written and undone.

The cache freezes a ClusterQueue or a cohort when a cycle first asks for it and keeps the frozen
part until something in it changes, so a snapshot costs what changed, not what exists. A cycle
never writes to frozen parts: `Snapshot` holds the differences and an undo log (spec/scheduling
2.4, 2.5, 9.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.amounts import NO_LIMITS, Amounts, FlavorResource, Limits
from kueuelib.scheduler.holders import Holder, Ranked
from kueuelib.scheduler.queue_spec import Flavor, QueueSpec


@attrs.frozen(eq=False)
class FrozenQueue:
    """One ClusterQueue at the time of a cycle.

    Attributes:
        spec: its quotas and policies.
        inactive: why it can't admit anything, empty when it can.
        usage: what the workloads that hold quota use, also of pairs without quota.
        holders: these workloads.
        ranked: the same in the order in which they would be preempted.
        lowest_priority: the lowest priority among them, None when there are none (KEP-83).
    """

    spec: QueueSpec
    inactive: str
    usage: Mapping[FlavorResource, int]
    holders: Mapping[ObjectKey, Holder]
    ranked: Sequence[Ranked]
    lowest_priority: int | None


@attrs.frozen(eq=False)
class FrozenCohort:
    """The shared side of a cohort at the time of a cycle.

    Attributes:
        name: its name.
        capacity: the sum of what the members lend.
        used: the sum of what the members use beyond what is guaranteed to them.
        members: the ClusterQueues, by name.
        borrowers: per flavor and resource the members that use more than their nominal quota.
    """

    name: str
    capacity: Mapping[FlavorResource, int]
    used: Mapping[FlavorResource, int]
    members: Mapping[str, FrozenQueue]
    borrowers: Mapping[FlavorResource, AbstractSet[str]]


@attrs.frozen(eq=False)
class Frozen:
    """The frozen parts that one cycle needs: the heads' queues, their cohorts, the flavors.

    Attributes:
        queues: the ClusterQueues, by name.
        cohorts: their cohorts, by name.
        flavors: the ResourceFlavors that exist, by name.
        late_checks: the AdmissionChecks before which nobody is preempted (KEP-993).
    """

    queues: Mapping[str, FrozenQueue]
    cohorts: Mapping[str, FrozenCohort]
    flavors: Mapping[str, Flavor]
    late_checks: frozenset[str] = frozenset()


class Snapshot:
    """Frozen parts plus the changes that a cycle tries out.

    `add` and `remove` change usage, `take_out` lets a workload that holds quota leave; `mark` and
    `undo` bring an earlier state back exactly. All reads take the changes into account.
    """

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen
        self._queues = frozen.queues
        self._usage: dict[FlavorResource, dict[str, int]] = {}
        self._shared: dict[tuple[str, FlavorResource], int] = {}
        self._gone: dict[ObjectKey, None] = {}
        self._log: list[tuple[str, Amounts, int, ObjectKey | None]] = []

    @property
    def flavors(self) -> Mapping[str, Flavor]:
        """The ResourceFlavors that exist, by name."""
        return self._frozen.flavors

    @property
    def late_checks(self) -> frozenset[str]:
        """The AdmissionChecks that have to pass, or to ask, before anybody is preempted."""
        return self._frozen.late_checks

    def queue(self, name: str) -> FrozenQueue | None:
        """The ClusterQueue as it was frozen, or None when it does not exist."""
        return self._queues.get(name)

    def cohort_of(self, queue: FrozenQueue) -> FrozenCohort | None:
        """The cohort of a ClusterQueue, or None."""
        return self._frozen.cohorts.get(queue.spec.cohort) if queue.spec.cohort else None

    # --- changes

    def add(self, queue: FrozenQueue, amounts: Amounts) -> None:
        """Uses more."""
        self._log.append((queue.spec.name, amounts, 1, None))
        self._apply(queue, amounts, 1)

    def remove(self, queue: FrozenQueue, amounts: Amounts) -> None:
        """Uses less."""
        self._log.append((queue.spec.name, amounts, -1, None))
        self._apply(queue, amounts, -1)

    def take_out(self, holder: Holder) -> None:
        """Lets a workload that holds quota leave, as if it had been preempted."""
        queue = self._queues[holder.cluster_queue]
        self._gone[holder.key] = None
        self._log.append((queue.spec.name, holder.usage, -1, holder.key))
        self._apply(queue, holder.usage, -1)

    def mark(self) -> int:
        """A state to come back to."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Takes back everything since `mark`."""
        while len(self._log) > mark:
            name, amounts, sign, gone = self._log.pop()
            self._apply(self._queues[name], amounts, -sign)
            if gone is not None:
                del self._gone[gone]

    def _apply(self, queue: FrozenQueue, amounts: Amounts, sign: int) -> None:
        name, cohort = queue.spec.name, self.cohort_of(queue)
        for pair, amount in amounts.items():
            if not amount:
                continue
            before = self.usage(queue, pair)
            after = before + sign * amount
            self._usage.setdefault(pair, {})[name] = after
            if cohort is not None:
                guaranteed = queue.spec.limits.get(pair, NO_LIMITS).guaranteed
                moved = max(0, after - guaranteed) - max(0, before - guaranteed)
                at = (cohort.name, pair)
                self._shared[at] = self._shared.get(at, cohort.used.get(pair, 0)) + moved

    # --- reads, spec/scheduling 2.4

    @property
    def gone(self) -> Collection[ObjectKey]:
        """The workloads that were taken out."""
        return self._gone

    def limits(self, queue: FrozenQueue, pair: FlavorResource) -> Limits:
        """The quota of the ClusterQueue, zero for what it does not list."""
        return queue.spec.limits.get(pair, NO_LIMITS)

    def usage(self, queue: FrozenQueue, pair: FlavorResource) -> int:
        """What the ClusterQueue uses."""
        changed = self._usage.get(pair)
        found = None if changed is None else changed.get(queue.spec.name)
        return queue.usage.get(pair, 0) if found is None else found

    def shared_use(self, cohort: FrozenCohort, pair: FlavorResource) -> int:
        """What the members use beyond their guaranteed parts."""
        found = self._shared.get((cohort.name, pair))
        return cohort.used.get(pair, 0) if found is None else found

    def capacity(self, queue: FrozenQueue, pair: FlavorResource) -> int:
        """The most the ClusterQueue could ever use, with nothing running."""
        limits = self.limits(queue, pair)
        cohort = self.cohort_of(queue)
        if cohort is None:
            return limits.nominal
        reachable = limits.guaranteed + cohort.capacity.get(pair, 0)
        return reachable if limits.ceiling is None else min(reachable, limits.ceiling)

    def available(self, queue: FrozenQueue, pair: FlavorResource) -> int:
        """What the ClusterQueue could use more, now; never negative, also when it uses too much."""
        cohort = self.cohort_of(queue)
        shared = None
        if cohort is not None:
            shared = cohort.capacity.get(pair, 0) - self.shared_use(cohort, pair)
        return self.limits(queue, pair).available(self.usage(queue, pair), shared)

    def borrows(self, queue: FrozenQueue, pair: FlavorResource, amount: int) -> bool:
        """Whether using `amount` more takes the ClusterQueue above its nominal quota."""
        if not queue.spec.cohort:
            return False
        return self.usage(queue, pair) + amount > self.limits(queue, pair).nominal

    def borrowers(self, queue: FrozenQueue, pairs: Collection[FlavorResource]) -> list[FrozenQueue]:
        """The other active members of the cohort that borrow any of the pairs, by name."""
        cohort = self.cohort_of(queue)
        if cohort is None:
            return []
        found: set[str] = set()
        for pair in pairs:
            known, changed = cohort.borrowers.get(pair, frozenset()), self._usage.get(pair)
            if changed:
                found.update(name for name in known if name not in changed)
                found.update(name for name in changed if self._borrows_now(cohort, name, pair))
            else:
                found.update(known)
        found.discard(queue.spec.name)
        members = (cohort.members[name] for name in sorted(found))
        return [member for member in members if not member.inactive]

    def _borrows_now(self, cohort: FrozenCohort, name: str, pair: FlavorResource) -> bool:
        member = cohort.members.get(name)
        return member is not None and self.borrows(member, pair, 0)

    def fits(self, queue: FrozenQueue, amounts: Amounts) -> bool:
        """Whether all amounts are available now; a request for nothing always is."""
        return all(
            amount <= self.available(queue, pair) for pair, amount in amounts.items() if amount > 0
        )
