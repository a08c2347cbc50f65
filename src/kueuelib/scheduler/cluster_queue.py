"""The mutable side of the cache: what one ClusterQueue and one cohort use right now.

Only `kueuelib.scheduler.cache` writes here. Sums are kept as running totals, frozen parts are made
when a cycle asks for them and thrown away by the next change (spec/scheduling 2.1, 2.4, 9.3).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.activity import ACTIVE
from kueuelib.scheduler.amounts import NO_LIMITS, Amounts, FlavorResource
from kueuelib.scheduler.holders import Holder, Priorities, Ranked, rank_of
from kueuelib.scheduler.queue_spec import QueueSpec
from kueuelib.scheduler.snapshot import FrozenCohort, FrozenQueue

Generation = tuple[int, str, int]
"""Equal as long as nobody left a ClusterQueue and no quota of its cohort changed."""


@attrs.define
class Tally:
    """Running totals of some workloads that hold quota.

    Attributes:
        reserving: how many there are.
        admitted: how many of them are admitted.
        reserved: what all of them use.
        used: what the admitted ones use.
    """

    reserving: int = 0
    admitted: int = 0
    reserved: dict[FlavorResource, int] = attrs.field(factory=dict)
    used: dict[FlavorResource, int] = attrs.field(factory=dict)

    def count(self, holder: Holder, sign: int) -> None:
        """Adds or takes away one workload."""
        self.reserving += sign
        _accumulate(self.reserved, holder.usage, sign)
        if holder.admitted:
            self.admitted += sign
            _accumulate(self.used, holder.usage, sign)


def _accumulate(total: dict[FlavorResource, int], amounts: Amounts, sign: int) -> None:
    for pair, amount in amounts.items():
        after = total.get(pair, 0) + sign * amount
        if after:
            total[pair] = after
        else:
            total.pop(pair, None)


class CohortState:
    """What the members of one cohort share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, QueueState] = {}
        self.capacity: dict[FlavorResource, int] = {}
        self.used: dict[FlavorResource, int] = {}
        self.changes = 0
        self._borrowers: dict[FlavorResource, frozenset[str]] = {}
        self._parts: dict[str, FrozenQueue] = {}
        self._stale: dict[str, None] = {}
        self._frozen: FrozenCohort | None = None

    def thaw(self, member: str) -> None:
        """Forgets the frozen part of a member, because something changed."""
        self._stale[member] = None
        self._frozen = None

    def note_borrowing(self, member: str, pair: FlavorResource, *, borrows: bool) -> None:
        """Remembers whether a member uses more than its nominal quota."""
        known = self._borrowers.get(pair, frozenset())
        if borrows is (member in known):
            return
        changed = known | {member} if borrows else known - {member}
        if changed:
            self._borrowers[pair] = changed
        else:
            del self._borrowers[pair]

    def join(self, member: QueueState) -> None:
        """Adds a ClusterQueue with its quota and its usage."""
        name = member.spec.name
        self.members[name] = member
        self._parts[name] = member.freeze()
        self._parts = {known: self._parts[known] for known in sorted(self._parts)}
        self._count(member, 1)
        for pair in member.tally.reserved:
            self.note_borrowing(name, pair, borrows=member.borrows(pair))

    def leave(self, member: QueueState) -> None:
        """Takes a ClusterQueue out, as it is now."""
        name = member.spec.name
        del self.members[name]
        self._parts = {known: part for known, part in self._parts.items() if known != name}
        self._stale.pop(name, None)
        self._count(member, -1)
        for pair in tuple(self._borrowers):
            self.note_borrowing(name, pair, borrows=False)

    def _count(self, member: QueueState, sign: int) -> None:
        lent = {pair: limits.lendable for pair, limits in member.spec.limits.items()}
        _accumulate(self.capacity, lent, sign)
        _accumulate(self.used, member.beyond_guarantee(), sign)
        self.changes += 1
        self._frozen = None

    def freeze(self) -> FrozenCohort:
        """The frozen part, made anew only after a change."""
        if self._frozen is None:
            parts = self._parts = dict(self._parts)
            for name in self._stale:
                parts[name] = self.members[name].freeze()
            self._stale.clear()
            self._frozen = FrozenCohort(
                self.name, dict(self.capacity), dict(self.used), parts, dict(self._borrowers)
            )
        return self._frozen


class QueueState:
    """What one ClusterQueue uses.

    Usage counts every workload that holds quota, also in flavors that the spec does not list any
    more: what runs is real, whatever the spec says (spec/scheduling 2.1).
    """

    def __init__(self, spec: QueueSpec) -> None:
        self.spec = spec
        self.activity = ACTIVE
        self.holders: dict[ObjectKey, Holder] = {}
        self.ranked: list[Ranked] = []
        self.tally = Tally()
        self.local: dict[ObjectKey, Tally] = {}
        self.priorities = Priorities()
        self.cohort: CohortState | None = None
        self._departures = 0
        self._frozen: FrozenQueue | None = None
        self._holders_shared = False

    @property
    def generation(self) -> Generation:
        """What tells whether progress with flavors is still worth something."""
        cohort = self.cohort
        return self._departures, cohort.name if cohort else "", cohort.changes if cohort else 0

    def thaw(self) -> None:
        """Forgets the frozen part, because something changed."""
        self._frozen = None
        if self.cohort is not None:
            self.cohort.thaw(self.spec.name)

    def freeze(self) -> FrozenQueue:
        """The frozen part, made anew only after a change."""
        if self._frozen is None:
            self._holders_shared = True
            self._frozen = FrozenQueue(
                self.spec,
                "" if self.activity.active else self.activity.reason,
                dict(self.tally.reserved),
                self.holders,
                self.ranked,
                self.priorities.lowest,
            )
        return self._frozen

    def borrows(self, pair: FlavorResource) -> bool:
        """Whether it uses more than its nominal quota."""
        nominal = self.spec.limits.get(pair, NO_LIMITS).nominal
        return self.tally.reserved.get(pair, 0) > nominal

    def available(self, pair: FlavorResource) -> int:
        """What it could use more, now; never negative."""
        shared = None
        if self.cohort is not None:
            shared = self.cohort.capacity.get(pair, 0) - self.cohort.used.get(pair, 0)
        limits = self.spec.limits.get(pair, NO_LIMITS)
        return limits.available(self.tally.reserved.get(pair, 0), shared)

    def beyond_guarantee(self) -> dict[FlavorResource, int]:
        """The part of the usage that the cohort has to provide."""
        limits = self.spec.limits
        beyond = {
            pair: amount - limits.get(pair, NO_LIMITS).guaranteed
            for pair, amount in self.tally.reserved.items()
        }
        return {pair: amount for pair, amount in beyond.items() if amount > 0}

    def add(self, holder: Holder) -> None:
        """Charges a workload."""
        self._count(holder, 1)
        self.holders[holder.key] = holder
        insort(self.ranked, (rank_of(holder), holder))
        self.priorities.add(holder.priority)

    def remove(self, key: ObjectKey) -> Holder:
        """Releases what a workload was charged."""
        holder = self.holders[key]
        self._count(holder, -1)
        self._departures += 1
        del self.holders[key]
        del self.ranked[bisect_left(self.ranked, (rank_of(holder),))]
        self.priorities.remove(holder.priority)
        return holder

    def _count(self, holder: Holder, sign: int) -> None:
        if self._holders_shared:
            self.holders, self.ranked = dict(self.holders), list(self.ranked)
            self._holders_shared = False
        if self.cohort is not None:
            self._move_shared(holder.usage, sign, self.cohort.used)
        self.tally.count(holder, sign)
        if self.cohort is not None:
            for pair in holder.usage:
                self.cohort.note_borrowing(self.spec.name, pair, borrows=self.borrows(pair))
        local = self.local.setdefault(holder.local_queue, Tally())
        local.count(holder, sign)
        if not local.reserving:
            del self.local[holder.local_queue]
        self.thaw()

    def _move_shared(
        self, amounts: Mapping[FlavorResource, int], sign: int, used: dict[FlavorResource, int]
    ) -> None:
        moved = {}
        for pair, amount in amounts.items():
            guaranteed = self.spec.limits.get(pair, NO_LIMITS).guaranteed
            before = self.tally.reserved.get(pair, 0)
            moved[pair] = max(0, before + sign * amount - guaranteed) - max(0, before - guaranteed)
        _accumulate(used, moved, 1)
