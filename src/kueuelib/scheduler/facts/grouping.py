"""Maps members to groups, in both directions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)
G = TypeVar("G", bound=Hashable)


class Grouping(Generic[M, G]):
    """Every member belongs to at most one group; groups remember the order of joining."""

    def __init__(self) -> None:
        self._group: dict[M, G] = {}
        self._members: dict[G, dict[M, None]] = {}

    def put(self, member: M, group: G) -> None:
        """Moves a member to a group."""
        before = self._group.get(member)
        if before is not None and before == group:
            return
        self.drop(member)
        self._group[member] = group
        self._members.setdefault(group, {})[member] = None

    def drop(self, member: M) -> None:
        """Removes a member from its group, if it is in one."""
        group = self._group.pop(member, None)
        if group is None:
            return
        members = self._members[group]
        del members[member]
        if not members:
            del self._members[group]

    def group(self, member: M) -> G | None:
        """The group of a member."""
        return self._group.get(member)

    def members(self, group: G) -> tuple[M, ...]:
        """The members of a group, in the order they joined."""
        return tuple(self._members.get(group, ()))

    def size(self, group: G) -> int:
        """How many members a group has."""
        return len(self._members.get(group, ()))
