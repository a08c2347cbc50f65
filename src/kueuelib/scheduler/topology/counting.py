"""How many pods each domain could hold, from the leaves up (KEP-2724).

To count them in all domains takes as long as all other parts of a decision together. But between
two decisions only a few leaves change. So `Tallies` keep the counts of recent requests, and count
again where leaves changed.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from kueuelib.scheduler.topology.demand import POD_SLOTS, LevelPlan, PodsToPlace
from kueuelib.scheduler.topology.tree import Columns, DomainTree
from kueuelib.scheduler.values import value

Numbers = list[int]
Span = tuple[int, int]

_REQUESTS: Final = 64
"""The number of requests whose counts and answers are kept; then all are forgotten."""


@value
class DomainCounts:
    """What the domains of one level could hold, by position.

    Without a leader the numbers with one are the same lists.

    Attributes:
        pods: pods.
        slices: whole slices; 0 below their level.
        pods_l: pods beside a leader.
        slices_l: whole slices beside a leader.
        leader: 1 if it can hold the leader, otherwise 0.
    """

    pods: Numbers
    slices: Numbers
    pods_l: Numbers
    slices_l: Numbers
    leader: Numbers

    @property
    def _lists(self) -> tuple[Numbers, ...]:
        if self.leader is self.pods:
            return self.pods, self.slices
        return self.pods, self.slices, self.pods_l, self.slices_l, self.leader

    def cut(self, spans: Iterable[Span]) -> DomainCounts:
        """Those of some neighbours, one span behind the other."""
        spans = [*spans]
        lists = [[n for a, b in spans for n in numbers[a:b]] for numbers in self._lists]
        if len(lists) > 2:
            return DomainCounts(*lists)
        pods, slices = lists
        return DomainCounts(pods, slices, pods, slices, pods)

    def replace(self, positions: Iterable[int], new: DomainCounts) -> list[int]:
        """Takes over the counts of some domains; returns which of them had others."""
        positions = [*positions]
        changed: set[int] = set()
        for numbers, others in zip(self._lists, new._lists, strict=True):
            for position, number in zip(positions, others, strict=True):
                if numbers[position] != number:
                    numbers[position] = number
                    changed.add(position)
        return sorted(changed)


def _fitting(free: Columns, request: Mapping[str, int], size: int) -> Numbers:
    """How many pods fit in each leaf."""
    least: Sequence[int] | None = None
    for resource, amount in (*request.items(), (POD_SLOTS, 1)):
        if amount <= 0:
            continue
        column = free.get(resource)
        if column is None:
            return [0] * size
        fits = column if amount == 1 else [room // amount for room in column]
        least = fits if least is None else _smaller(least, fits)
    assert least is not None, "there are slots"
    return [room if room > 0 else 0 for room in least]  # noqa: FURB136 - as in `_smaller`


def _smaller(some: Iterable[int], others: Iterable[int]) -> Numbers:
    """The smaller number of each pair; calls of `min` would be most of the time of a placement."""
    return [a if a < b else b for a, b in zip(some, others, strict=True)]  # noqa: FURB136


def _in_leaves(
    free: Columns, size: int, asked: PodsToPlace, plan: LevelPlan, barred: Iterable[int], last: int
) -> DomainCounts:
    """The counts of leaves.

    Args:
        free: the room in them.
        size: how many there are.
        asked: the pods.
        plan: the same in terms of levels.
        barred: the positions of those that the pods may not use.
        last: the level of leaves.
    """
    barred = [*barred]
    pods = _fitting(free, asked.per_pod, size)
    for index in barred:
        pods[index] = 0
    own = plan.size if last == plan.slice_level else 0
    if asked.leader is None:
        return _with_slices(pods, pods, pods, own)
    leader = [min(1, fits) for fits in _fitting(free, asked.leader, size)]
    for index in barred:
        leader[index] = 0
    rest = {}
    for resource in asked.per_pod.keys() | {POD_SLOTS}:
        taken = 1 if resource == POD_SLOTS else asked.leader.get(resource, 0)
        column = free.get(resource)
        if column is not None:
            rest[resource] = [room - taken for room in column] if taken else column
    beside = _fitting(rest, asked.per_pod, size)
    both = zip(pods, beside, leader, strict=True)
    pods_l = [left if has else all_ for all_, left, has in both]
    return _with_slices(pods, pods_l, leader, own)


def _above(
    children: DomainCounts, spans: Sequence[Span], level: int, plan: LevelPlan
) -> DomainCounts:
    """The counts of domains of a level.

    Args:
        children: those of the domains below.
        spans: where the children of each domain are among them.
        level: the level of the domains.
        plan: the request.
    """
    led, step = children.leader is not children.pods, plan.inner.get(level + 1, 1)
    inside, inside_l, leader = children.pods, children.pods_l, children.leader
    if step > 1:
        whole = [n - n % step for n in children.pods]
        inside_l = [n - n % step for n in children.pods_l] if led else whole
        inside = whole
    pods = pods_l = above = [sum(inside[a:b]) for a, b in spans]
    if led:
        above = [max(leader[a:b]) for a, b in spans]
        pods_l = _beside(pods, inside, inside_l, leader, spans)
    if level >= plan.slice_level:
        return _with_slices(pods, pods_l, above, plan.size if level == plan.slice_level else 0)
    slices = slices_l = [sum(children.slices[a:b]) for a, b in spans]
    if led:
        slices_l = _beside(slices, children.slices, children.slices_l, leader, spans)
    return DomainCounts(pods, slices, pods_l, slices_l, above)


def _with_slices(pods: Numbers, pods_l: Numbers, leader: Numbers, size: int) -> DomainCounts:
    """The counts of a level whose domains hold slices of this size; 0: none."""
    slices = pods if size == 1 else [n // size for n in pods] if size else [0] * len(pods)
    slices_l = slices
    if leader is not pods and size:
        slices_l = pods_l if size == 1 else [n // size for n in pods_l]
    return DomainCounts(pods, slices, pods_l, slices_l, leader)


def _beside(
    sums: Numbers, parts: Numbers, parts_l: Numbers, leader: Numbers, spans: Sequence[Span]
) -> Numbers:
    """What domains hold beside a leader in the child where it costs least; 0 if it fits in none."""
    return [
        max((total - parts[i] + parts_l[i] for i in range(a, b) if leader[i]), default=0)
        for total, (a, b) in zip(sums, spans, strict=True)
    ]


def counted(
    tree: DomainTree, free: Columns, asked: PodsToPlace, plan: LevelPlan, barred: Iterable[int]
) -> list[DomainCounts]:
    """The counts of all levels."""
    last = len(tree.levels) - 1
    counts = [_in_leaves(free, len(tree.leaves), asked, plan, barred, last)]
    for level in range(last - 1, -1, -1):
        counts.insert(0, _above(counts[0], tree.children[level], level, plan))
    return counts


def _count_again(
    counts: list[DomainCounts],
    tree: DomainTree,
    free: Columns,
    asked: PodsToPlace,
    plan: LevelPlan,
    barred: Container[int],
    leaves: Iterable[int],
) -> None:
    """Brings counts up to date with what changed in some leaves."""
    level = len(tree.levels) - 1
    positions = sorted(leaves)
    needed = {*asked.per_pod, POD_SLOTS, *(asked.leader or ())}
    part = {name: [free[name][i] for i in positions] for name in needed if name in free}
    out = [index for index, position in enumerate(positions) if position in barred]
    new = _in_leaves(part, len(positions), asked, plan, out, level)
    while (positions := counts[level].replace(positions, new)) and level:
        level -= 1
        all_spans = tree.children[level]
        positions = sorted({bisect_right(all_spans, (i, sys.maxsize)) - 1 for i in positions})
        spans = [all_spans[position] for position in positions]
        parts, end = [], 0
        for a, b in spans:
            parts.append((end, end + b - a))
            end += b - a
        new = _above(counts[level + 1].cut(spans), parts, level, plan)


@value
class _Kept:
    """The counts of one request, and what they show.

    Attributes:
        counts: by level.
        barred: the leaves that it may not use.
        at: how many changes of the leaves.
        tried: changes that somebody tried besides.
        seen: how many of these.
    """

    counts: list[DomainCounts]
    barred: Mapping[int, str]
    at: int
    tried: Sequence[int]
    seen: int


class Tallies:
    """The counts and answers of recent requests in one tree.

    A state of its leaves is how many changes of `changed` it has, and further ones that somebody
    tries. Two states differ in no leaves but those that changed between them. So the counts for
    one become those for the other, whatever came first.

    Attributes:
        changed: the leaves whose room changed, one after the other.
    """

    def __init__(self) -> None:
        self.changed: list[int] = []
        self._kept: dict[object, _Kept] = {}
        self._answers: dict[Any, Any] = {}
        self._answered_at = 0

    def counts(
        self,
        tree: DomainTree,
        free: Columns,
        asked: PodsToPlace,
        plan: LevelPlan,
        barred: Mapping[int, str],
        at: int,
        tried: Sequence[int],
    ) -> list[DomainCounts]:
        """The counts of all levels; to be read before the next call.

        Args:
            tree: the domains.
            free: the room in the leaves.
            asked: the pods.
            plan: the same in terms of levels.
            barred: the leaves that they may not use; the same object for equal ones.
            at: how many changes `free` has.
            tried: the leaves in which it differs from that; only appended to.
        """
        key = (
            tuple(asked.per_pod.items()),
            None if asked.leader is None else tuple(asked.leader.items()),
            plan.size,
            plan.slice_level,
            tuple(plan.inner.items()),
            id(barred),
        )
        kept = self._kept.get(key)
        if kept is None:
            forget_many(self._kept)
            counts = counted(tree, free, asked, plan, barred)
            self._kept[key] = _Kept(counts, barred, at, tried, len(tried))
            return counts
        leaves = {*self.changed[min(at, kept.at) : max(at, kept.at)]}
        if kept.tried is tried:
            leaves.update(tried[kept.seen :])
        else:
            leaves.update(kept.tried, tried)
        if 4 * len(leaves) > len(tree.leaves):
            counts = counted(tree, free, asked, plan, barred)
            self._kept[key] = _Kept(counts, barred, at, tried, len(tried))
            return counts
        if leaves:
            _count_again(kept.counts, tree, free, asked, plan, barred, leaves)
        self._kept[key] = _Kept(kept.counts, barred, at, tried, len(tried))
        return kept.counts

    def answers(self, at: int) -> dict[Any, Any]:
        """What others keep as long as there are so many changes."""
        if at != self._answered_at:
            self._answers, self._answered_at = {}, at
        return self._answers


def forget_many(table: dict[Any, Any]) -> None:
    """Makes room in a table of requests."""
    if len(table) >= _REQUESTS:
        table.clear()


@value
class Moment:
    """A state of the leaves of a tree, as `Tallies` know it.

    Attributes:
        tallies: those of the tree.
        at: how many changes.
    """

    tallies: Tallies
    at: int

    def after(self, leaf: int, most: int) -> Moment:
        """The state after the room in a leaf has changed.

        Args:
            leaf: its position.
            most: the most changes that are remembered.
        """
        tallies, at = self.tallies, self.at
        if len(tallies.changed) != at or at >= most:  # a copy has continued, or it is long ago
            return beginning()
        tallies.changed.append(leaf)
        return Moment(tallies, at + 1)


def beginning() -> Moment:
    """A state of which nothing is known."""
    return Moment(Tallies(), 0)
