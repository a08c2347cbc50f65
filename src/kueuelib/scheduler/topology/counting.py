"""How many pods each domain could hold, from the leaves up (KEP-2724)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kueuelib.scheduler.topology.demand import POD_SLOTS, Plan, PodsToPlace
from kueuelib.scheduler.topology.tree import Columns, FlavorNodes
from kueuelib.scheduler.values import value

Numbers = list[int]


@value
class Counts:
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


def _leaf_counts(
    nodes: FlavorNodes, free: Columns, asked: PodsToPlace, barred: Iterable[int]
) -> tuple[Numbers, Numbers, Numbers]:
    """The pods that fit in each leaf, those beside a leader, and whether the leader does."""
    size = len(nodes.tree.leaves)
    pods = _fitting(free, asked.per_pod, size)
    for index in barred:
        pods[index] = 0
    if asked.leader is None:
        return pods, pods, pods
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
    return pods, [left if has else all_ for all_, left, has in both], leader


def counted(
    nodes: FlavorNodes, free: Columns, asked: PodsToPlace, plan: Plan, barred: Iterable[int]
) -> list[Counts]:
    """The counts of all levels."""
    pods, pods_l, leader = _leaf_counts(nodes, free, asked, barred)
    last = len(nodes.tree.levels) - 1
    led, size, inner = asked.leader is not None, plan.size, plan.inner
    below = _with_slices(pods, pods_l, leader, size if last == plan.slice_level else 0, led=led)
    counts = [below]
    for level in range(last - 1, -1, -1):
        step = inner.get(level + 1, 1)
        children = below
        if step > 1:
            whole = [n - n % step for n in children.pods]
            whole_l = [n - n % step for n in children.pods_l] if led else whole
            children = Counts(whole, children.slices, whole_l, children.slices_l, children.leader)
        spans = nodes.tree.children[level]
        pods = [sum(children.pods[a:b]) for a, b in spans]
        if led:
            leader = [max(children.leader[a:b]) for a, b in spans]
            pods_l = _beside(pods, children.pods, children.pods_l, children.leader, spans)
        else:
            pods_l = leader = pods
        if level >= plan.slice_level:
            own = size if level == plan.slice_level else 0
            below = _with_slices(pods, pods_l, leader, own, led=led)
        else:
            slices = [sum(children.slices[a:b]) for a, b in spans]
            slices_l = slices
            if led:
                slices_l = _beside(
                    slices, children.slices, children.slices_l, children.leader, spans
                )
            below = Counts(pods, slices, pods_l, slices_l, leader)
        counts.insert(0, below)
    return counts


def _with_slices(
    pods: Numbers, pods_l: Numbers, leader: Numbers, size: int, *, led: bool
) -> Counts:
    """The counts of a level whose domains hold slices of this size; 0: none."""
    slices = pods if size == 1 else [n // size for n in pods] if size else [0] * len(pods)
    slices_l = slices
    if led and size:
        slices_l = pods_l if size == 1 else [n // size for n in pods_l]
    return Counts(pods, slices, pods_l, slices_l, leader)


def _beside(
    sums: Numbers,
    parts: Numbers,
    parts_l: Numbers,
    leader: Numbers,
    spans: Sequence[tuple[int, int]],
) -> Numbers:
    """What domains hold beside a leader in the child where it costs least; 0 if it fits in none."""
    return [
        max((total - parts[i] + parts_l[i] for i in range(a, b) if leader[i]), default=0)
        for total, (a, b) in zip(sums, spans, strict=True)
    ]
