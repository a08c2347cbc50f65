"""The mutable part of the cache: the workloads that hold quota in one ClusterQueue.

Only `kueuelib.scheduler.quota.cache` writes here. Sums are running totals. Frozen parts are made
when a cycle asks for them and dropped by the next change.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.quota.activity import ACTIVE
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.forest import Forest
from kueuelib.scheduler.quota.holders import Holder, Priorities, Ranked, rank_of
from kueuelib.scheduler.quota.queue_spec import QueueSpec
from kueuelib.scheduler.quota.snapshot import FrozenQueue


@attrs.define
class Tally:
    """Running totals of some workloads that hold quota.

    Attributes:
        reserving: their number.
        admitted: how many of them are admitted.
        reserved: their usage.
        unadmitted: the usage of those that are not admitted yet.
    """

    reserving: int = 0
    admitted: int = 0
    reserved: dict[FlavorResource, int] = attrs.field(factory=dict)
    unadmitted: dict[FlavorResource, int] = attrs.field(factory=dict)

    @property
    def used(self) -> dict[FlavorResource, int]:
        """The usage of the admitted ones, without zeros."""
        used = {pair: self.reserved[pair] - self.unadmitted.get(pair, 0) for pair in self.reserved}
        return {pair: amount for pair, amount in used.items() if amount}

    def count(self, holder: Holder, sign: int) -> None:
        """Adds or subtracts one workload."""
        self.reserving += sign
        if holder.admitted:
            self.admitted += sign
        totals = (self.reserved,) if holder.admitted else (self.reserved, self.unadmitted)
        for pair, amount in holder.usage.items():
            for total in totals:
                after = total[pair] = total.get(pair, 0) + sign * amount
                if not after:
                    del total[pair]


class QueueState:
    """The usage of one ClusterQueue.

    Usage counts every workload that holds quota, also in flavors that the spec no longer lists:
    running workloads count, whatever the spec says.
    """

    def __init__(self, spec: QueueSpec, forest: Forest) -> None:
        self.spec = spec
        self.activity = ACTIVE
        self.holders: dict[ObjectKey, Holder] = {}
        self.ranked: list[Ranked] = []
        self.tally = Tally()
        self.local: dict[ObjectKey, Tally] = {}
        self.priorities = Priorities()
        self._forest = forest
        self._frozen: FrozenQueue | None = None
        self._ranked_shared = False

    def thaw(self) -> None:
        """Forgets the frozen part, because something changed."""
        if self._frozen is not None:
            self._frozen = None
            self._forest.touch(self.spec.name)

    def freeze(self) -> FrozenQueue:
        """The frozen part, which is made again only after a change."""
        if self._frozen is None:
            self._ranked_shared = True
            self._frozen = FrozenQueue(
                self.spec,
                "" if self.activity.active else self.activity.reason,
                dict(self.tally.reserved),
                self.ranked,
                self.priorities.lowest,
            )
        return self._frozen

    def add(self, holder: Holder) -> None:
        """Charges a workload."""
        self._count(holder, 1)
        self._list(holder)
        self.priorities.add(holder.priority)

    def remove(self, key: ObjectKey) -> Holder:
        """Removes the charge of a workload."""
        holder = self.holders[key]
        self._count(holder, -1)
        self._unlist(key)
        self.priorities.remove(holder.priority)
        return holder

    def replace(self, holder: Holder) -> None:
        """Replaces the state of a workload whose charge is the same."""
        self._unlist(holder.key)
        self._list(holder)
        self.thaw()

    def _list(self, holder: Holder) -> None:
        self._own_list()
        self.holders[holder.key] = holder
        insort(self.ranked, (rank_of(holder), holder))

    def _unlist(self, key: ObjectKey) -> None:
        self._own_list()
        del self.ranked[bisect_left(self.ranked, (rank_of(self.holders.pop(key)),))]

    def _own_list(self) -> None:
        if self._ranked_shared:
            self.ranked = list(self.ranked)
            self._ranked_shared = False

    def _count(self, holder: Holder, sign: int) -> None:
        self.tally.count(holder, sign)
        self._forest.charge(self.spec.name, holder.usage, sign)
        local = self.local.get(holder.local_queue)
        if local is None:
            local = self.local[holder.local_queue] = Tally()
        local.count(holder, sign)
        if not local.reserving:
            del self.local[holder.local_queue]
        self.thaw()
