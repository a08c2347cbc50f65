"""Turns of workloads that are decided one after the other, without blocked workers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

import attrs

from kueuelib.api.meta import ObjectKey


@attrs.define(eq=False)
class Group:
    """Keys that get their turns one at a time.

    Attributes:
        holder: the key whose turn it is, or that was called and has not started yet; None if there
            is none.
        waiting: the next keys, in this order.
    """

    holder: ObjectKey | None = None
    waiting: OrderedDict[ObjectKey, None] = attrs.field(factory=OrderedDict)


class Turns:
    """Sets keys of a busy group aside, and calls each when its turn comes.

    No worker waits: a key without its turn is reconciled again when it is called. A called key that
    does not take its turn then has to `pass_on`.

    Args:
        call: requests another reconciliation of a key.
    """

    def __init__(self, call: Callable[[ObjectKey], None]) -> None:
        self._call = call
        self._groups: WeakValueDictionary[Hashable, Group] = WeakValueDictionary()
        self._called: dict[ObjectKey, list[Group]] = {}

    def group(self, name: Hashable) -> Group:
        """The group of a name; comparing names may raise anything."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group()
        return group

    def take(self, group: Group, key: ObjectKey) -> bool:
        """Whether a key gets its turn now; if not, it is called later. End the turn with `end`."""
        if group.holder is None:
            group.holder = key
            return True
        called = self._called.get(key, [])
        if group in called:
            called.remove(group)
            return True
        group.waiting.setdefault(key)
        return False

    def end(self, group: Group) -> None:
        """Ends the present turn and calls the next one."""
        if not group.waiting:
            group.holder = None
            return
        key, _ = group.waiting.popitem(last=False)
        group.holder = key
        self._called.setdefault(key, []).append(group)
        self._call(key)

    def pass_on(self, key: ObjectKey) -> None:
        """End the turn of a key that was called, reconciled, and did not take it."""
        for group in self._called.pop(key, ()):
            self.end(group)
