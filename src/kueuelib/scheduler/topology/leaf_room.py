"""What is free in the leaves of flavors, at one time and while decisions are tried (KEP-2724)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.core import Toleration
from kueuelib.scheduler.topology.counting import DomainCounts, Moment, counted
from kueuelib.scheduler.topology.demand import LevelPlan, PodsToPlace
from kueuelib.scheduler.topology.tree import Charges, Columns, DomainTree, LeafKey
from kueuelib.scheduler.values import value


@value
class FlavorNodes:
    """A tree with the room in its leaves, at one time.

    Attributes:
        tree: the domains.
        tolerations: those that the flavor adds to its pods.
        capacity: what the nodes have beside pods that are nobody's Workload.
        free: the same without what Workloads take; negative in a leaf that is overbooked.
        empty: the state of the leaves in `capacity`.
        now: the state of the leaves in `free`.
        mixed: whether pods that any domains will do for fill those with the least room first.
    """

    tree: DomainTree
    tolerations: tuple[Toleration, ...]
    capacity: Columns
    free: Columns
    empty: Moment
    now: Moment
    mixed: bool = True


NO_NODES: Final[Mapping[str, FlavorNodes]] = {}
"""The nodes without any flavor that has a topology."""


class FlavorRoom:
    """The room in the leaves of one flavor, while decisions are tried.

    Args:
        nodes: the nodes of the flavor; not changed.
        empty: whether what Workloads take is ignored.

    Attributes:
        free: what is free in the leaves.
    """

    def __init__(self, nodes: FlavorNodes, *, empty: bool = False) -> None:
        self.nodes = nodes
        self.free: dict[str, Sequence[int]] = dict(nodes.capacity if empty else nodes.free)
        self._moment = nodes.empty if empty else nodes.now
        self._own: dict[str, list[int]] = {}
        self._tried: list[int] = []
        self._answers: dict[Any, Any] = {}

    def fork(self) -> FlavorRoom:
        """A copy, which must not be used after this one has changed."""
        copy = FlavorRoom(self.nodes)
        copy.free, copy._moment = dict(self.free), self._moment
        copy._tried = [*self._tried]
        return copy

    def take(self, leaf: int, amounts: Mapping[str, int], sign: int) -> None:
        """Takes what pods need of a leaf, or gives it back if the sign is -1."""
        for resource, amount in amounts.items():
            column = self._own.get(resource)
            if column is None:
                shared = self.free.get(resource)
                size = len(self.nodes.tree.leaves)
                column = [0] * size if shared is None else [*shared]
                self._own[resource] = self.free[resource] = column
            column[leaf] -= sign * amount
        self._tried.append(leaf)
        self._answers = {}

    def holds(self, leaf: int, amounts: Mapping[str, int]) -> bool:
        """Whether a leaf has room."""
        for resource, amount in amounts.items():
            column = self.free.get(resource)
            if amount > 0 and (column is None or column[leaf] < amount):
                return False
        return True

    def counts(
        self, asked: PodsToPlace, plan: LevelPlan, barred: Mapping[int, str], outside: Sequence[int]
    ) -> list[DomainCounts]:
        """How many pods each domain could hold, by level; to be read before anything changes.

        Args:
            asked: the pods.
            plan: the same in terms of levels.
            barred: the leaves that they may not use.
            outside: further ones.
        """
        tree = self.nodes.tree
        if outside:
            return counted(tree, self.free, asked, plan, (*barred, *outside))
        tallies, at = self._moment.tallies, self._moment.at
        return tallies.counts(tree, self.free, asked, plan, barred, at, self._tried)

    @property
    def answers(self) -> dict[Any, Any]:
        """What was found out about this room, until it changes."""
        if self._tried:
            return self._answers
        return self._moment.tallies.answers(self._moment.at)


class LeafRoom:
    """The room in the leaves of all flavors, while decisions are tried.

    Args:
        nodes: by flavor; not changed.
        empty: whether what Workloads take is ignored.
    """

    def __init__(self, nodes: Mapping[str, FlavorNodes], *, empty: bool = False) -> None:
        self.nodes = nodes
        self._empty = empty
        self._rooms: dict[str, FlavorRoom] = {}

    def __getitem__(self, flavor: str) -> FlavorRoom:
        """The room of one flavor."""
        room = self._rooms.get(flavor)
        if room is None:
            room = self._rooms[flavor] = FlavorRoom(self.nodes[flavor], empty=self._empty)
        return room

    def fork(self, *, empty: bool = False) -> LeafRoom:
        """A copy, which must not be used after this one has changed.

        Args:
            empty: whether what Workloads take is ignored.
        """
        copy = LeafRoom(self.nodes, empty=empty or self._empty)
        if not empty:
            copy._rooms = {flavor: room.fork() for flavor, room in self._rooms.items()}
        return copy

    def take(self, charges: Charges, sign: int = 1, flavors: Collection[str] = ()) -> None:
        """Takes what pods need of leaves, or gives it back if the sign is -1.

        Args:
            charges: what they need.
            sign: 1 or -1.
            flavors: the flavors in which it counts; empty for all.
        """
        for key, amounts in charges.items():
            for flavor, leaf in self._leaves(key, flavors):
                self[flavor].take(leaf, amounts, sign)

    def _leaves(self, key: LeafKey, flavors: Collection[str]) -> Iterator[tuple[str, int]]:
        """Where a leaf is in each of some flavors that has it; in all if none is given."""
        for flavor, each in self.nodes.items():
            leaf = each.tree.positions.get(key)
            if leaf is not None and (not flavors or flavor in flavors):
                yield flavor, leaf

    def holds(self, charges: Charges, flavors: Collection[str] = ()) -> bool:
        """Whether all leaves exist and have room for everything that is taken of them.

        Args:
            charges: what is taken.
            flavors: the flavors whose room counts; empty for all.
        """
        for key, amounts in charges.items():
            leaves = [*self._leaves(key, flavors)]
            if not leaves or not all(self[flavor].holds(leaf, amounts) for flavor, leaf in leaves):
                return False
        return True
