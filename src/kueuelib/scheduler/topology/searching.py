"""The choice of domains, from the level of a request down to the leaves (KEP-2724).

First a level is chosen whose domains hold all pods, with as few domains as the request demands, and
from there the pods go down level by level. `BestFit` prefers the domain that is left with the
least; a request that is content with any domains fills those with the least room first
(`LeastFreeCapacity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kueuelib.scheduler.topology.counting import DomainCounts, Numbers
from kueuelib.scheduler.topology.demand import LevelPlan
from kueuelib.scheduler.topology.tree import DomainTree

Share = tuple[int, int, int]
"""A domain, by position, with its pods and its leaders."""


class DomainSearch:
    """Chooses domains for one request.

    Args:
        tree: the domains.
        plan: the request.
        counts: how many pods each domain could hold, by level.
        led: whether there is a leader.
        mixed: see `FlavorNodes`.
    """

    def __init__(
        self,
        tree: DomainTree,
        plan: LevelPlan,
        counts: list[DomainCounts],
        *,
        led: bool,
        mixed: bool,
    ) -> None:
        self._tree = tree
        self._plan = plan
        self._counts = counts
        self._leaders = int(led)
        self._best_fit = not (plan.loose and mixed)

    # --- orders

    def _by_leader(self, level: int) -> list[int]:
        at, sign = self._counts[level], -1 if self._best_fit else 1
        domains = range(len(at.pods))
        if not self._leaders:
            return self._plain(level, domains)
        return sorted(
            domains,
            key=lambda i: (-at.leader[i], sign * at.slices_l[i], at.pods_l[i], i),
        )

    def _plain(self, level: int, domains: Iterable[int]) -> list[int]:
        at = self._counts[level]
        slices, pods = at.slices, at.pods
        if slices is pods:
            return sorted(domains, key=pods.__getitem__, reverse=self._best_fit)
        if self._best_fit:
            return sorted(domains, key=lambda i: (-slices[i], pods[i]))
        return sorted(domains, key=lambda i: (slices[i], pods[i]))

    @staticmethod
    def _best(
        order: Sequence[int], need: int, amounts: Numbers, leader: Numbers | None = None
    ) -> int:
        """The domain that is left with the least; the first if none has enough."""
        best, least = order[0], -1
        for i in order:
            amount = amounts[i]
            if amount >= need and (least < 0 or amount < least) and (leader is None or leader[i]):
                best, least = i, amount
        return best

    def _front(
        self, order: list[int], need: int, leaders: int, unit: Numbers, unit_l: Numbers, level: int
    ) -> list[int]:
        """Moves a domain to the front that takes the leader without costing too much."""
        if not leaders or len(order) < 2:
            return order
        leader, total = self._counts[level].leader, sum(unit[i] for i in order)
        for at, i in enumerate(order):
            if leader[i] and total - (unit[i] - unit_l[i]) >= need:
                return [i, *order[:at], *order[at + 1 :]]
        return order

    # --- the level

    def choose(self, wanted: int) -> tuple[int, list[int] | int]:
        """The first level from that of the request upwards whose domains have room, and these;
        otherwise the last level that was tried, and how much has room there.
        """
        plan, level = self._plan, self._plan.level
        while True:
            at = self._counts[level]
            order = self._by_leader(level)
            led = at.leader if self._leaders else None
            first = order[0]
            if self._best_fit:
                if at.slices_l[first] >= wanted and (led is None or led[first]):
                    return level, [self._best(order, wanted, at.slices_l, led)]
            else:
                for i in order:
                    if at.slices_l[i] >= wanted and (led is None or led[i]):
                        return level, [i]
            if plan.required:
                return level, at.slices[first]
            if plan.loose or not level:
                break
            level -= 1
        return level, self._collect(level, order, wanted)

    def _collect(self, level: int, order: list[int], wanted: int) -> list[int] | int:
        """Several domains of a level with room for everything together."""
        at, rest = self._counts[level], wanted
        order = self._front(order, wanted, self._leaders, at.slices, at.slices_l, level)
        taken: list[int] = []
        if self._leaders:
            first = order[0]
            if not at.leader[first]:
                return 0
            if self._best_fit and at.slices_l[first] >= rest:
                first = self._best(order, rest, at.slices_l, at.leader)
            taken.append(first)
            rest -= at.slices_l[first]
            order = self._plain(level, sorted(i for i in order if i != first))
        for position, each in enumerate(order):
            if rest <= 0:
                break
            chosen = each
            if self._best_fit and at.slices[each] >= rest:
                chosen = self._best(order[position:], rest, at.slices)
            taken.append(chosen)
            rest -= at.slices[chosen]
        return taken if rest <= 0 else wanted - rest

    # --- the way down

    def _trim(
        self,
        order: list[int],
        level: int,
        amount: int,
        leaders: int,
        size: int,
        unit: Numbers,
        unit_l: Numbers,
    ) -> list[Share]:
        """Spreads pods over as few of the domains as possible."""
        rest, leader = amount // size, self._counts[level].leader
        order = self._front(order, rest, leaders, unit, unit_l, level)
        shares: list[Share] = []
        for position, each in enumerate(order):
            chosen = each
            if leaders:
                enough = unit_l[each] >= rest and leader[each]
                if enough:
                    if self._best_fit:
                        chosen = self._best(order[position:], rest, unit_l, leader)
                    shares.append((chosen, rest * size, 1))
                    return shares
                part = min(unit_l[each], rest)
                shares.append((each, part * size, leader[each]))
                leaders -= leader[each]
            else:
                if unit[each] >= rest:
                    if self._best_fit:
                        chosen = self._best(order[position:], rest, unit)
                    shares.append((chosen, rest * size, 0))
                    return shares
                part = unit[each]
                shares.append((each, part * size, 0))
            rest -= part
        return []

    def descend(self, level: int, domains: list[int], count: int) -> list[Share]:
        """The shares of the leaves; fewer than all pods if what was counted cannot be combined."""
        plan, leaders = self._plan, self._leaders
        at = self._counts[level]
        shares = self._trim(domains, level, count, leaders, plan.size, at.slices, at.slices_l)
        last = len(self._tree.levels) - 1
        while level < last:
            below = self._counts[level + 1]
            spans = self._tree.children[level]
            if level < plan.slice_level:
                children = (i for domain, *_ in shares for i in range(*spans[domain]))
                pool = self._plain(level + 1, sorted(children))
                shares = self._trim(
                    pool, level + 1, count, leaders, plan.size, below.slices, below.slices_l
                )
            else:
                size = plan.inner.get(level + 1, 1)
                unit, unit_l = below.pods, below.pods_l
                if size > 1:
                    unit = [n // size for n in unit]
                    unit_l = [n // size for n in unit_l]
                shares = [
                    share
                    for domain, pods, leader in shares
                    if pods or leader
                    for share in self._trim(
                        self._plain(level + 1, range(*spans[domain])),
                        level + 1,
                        pods,
                        leader,
                        size,
                        unit,
                        unit_l,
                    )
                ]
            level += 1
        return shares
