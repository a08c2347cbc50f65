"""What domains have and what is free in them, for people (KEP-2724)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from kueuelib.api.struct import frozen
from kueuelib.scheduler.topology.demand import POD_SLOTS
from kueuelib.scheduler.topology.leaf_room import FlavorNodes
from kueuelib.scheduler.topology.tree import DomainTree, Path


@frozen
class FreeRoom:
    """What is free of a resource in the domains of a level.

    Attributes:
        level: its label key.
        resource: the resource.
        capacity: what all domains have.
        free: what is free of that.
        scattered: what of that is free in domains that are partly used.
        largest: what is free in the domain where most is.
    """

    level: str
    resource: str
    capacity: int
    free: int
    scattered: int
    largest: int

    @property
    def fragmentation(self) -> float:
        """The part of the free amount that lies in domains that are partly used; 0 to 1."""
        return self.scattered / self.free if self.free else 0.0


def free_rooms(nodes: FlavorNodes) -> Iterator[FreeRoom]:
    """What is free of each resource but pods, level by level from fine to coarse.

    Args:
        nodes: of one flavor.
    """
    tree = nodes.tree
    for resource in sorted(nodes.capacity.keys() - {POD_SLOTS}):
        columns = _by_level(tree, nodes.capacity[resource]), _by_level(tree, nodes.free[resource])
        for level, has, free in reversed([*zip(tree.levels, *columns, strict=True)]):
            partly = sum(left for all_, left in zip(has, free, strict=True) if left < all_)
            yield FreeRoom(level, resource, sum(has), sum(free), partly, max(free, default=0))


def _by_level(tree: DomainTree, column: Iterable[int]) -> list[list[int]]:
    """The sums of a column by level, from coarse to fine; leaves that are overbooked have 0."""
    levels = [[max(0, amount) for amount in column]]
    for spans in reversed(tree.children):
        total = [0, *accumulate(levels[0])]
        levels.insert(0, [total[end] - total[first] for first, end in spans])
    return levels


@frozen
class DomainUse:
    """What a domain has, and how much of it is free.

    Attributes:
        path: its label values.
        leaves: how many domains of the last level it has, such as nodes.
        amounts: resource, capacity and free amount of each resource.
        below: its domains of the next level; none if these are left out.
    """

    path: Path
    leaves: int
    amounts: tuple[tuple[str, int, int], ...]
    below: tuple[DomainUse, ...] = ()


def domain_uses(nodes: FlavorNodes, resources: Sequence[str], most: int) -> tuple[DomainUse, ...]:
    """The domains of a flavor as a tree, down to the last level that is not too large.

    Args:
        nodes: of the flavor.
        resources: those that count, in their order.
        most: how many domains the levels below the first one may have together with it.
    """
    tree = nodes.tree
    sizes = accumulate(map(len, tree.paths))
    last = max((level for level, size in enumerate(sizes) if size <= most), default=0)
    leaves = _by_level(tree, [1] * len(tree.leaves))
    columns = [
        (resource, _by_level(tree, nodes.capacity[resource]), _by_level(tree, nodes.free[resource]))
        for resource in resources
    ]

    def made(level: int, at: int) -> DomainUse:
        below = range(*tree.children[level][at]) if level < last else ()
        amounts = tuple((name, has[level][at], free[level][at]) for name, has, free in columns)
        parts = tuple(made(level + 1, each) for each in below)
        return DomainUse(tree.paths[level][at], leaves[level][at], amounts, parts)

    return tuple(made(0, at) for at in range(len(tree.paths[0])))
