"""Who decides about workloads one after the other: whose turn it is, without anybody waiting."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

import attrs

from kueuelib.api.meta import ObjectKey


@attrs.define(eq=False)
class Group:
    """Keys of which one at a time has its turn.

    Attributes:
        holder: the call whose turn it is, or that was called and has not started yet; None without
            one.
        waiting: the next calls, in this order.
    """

    holder: ObjectKey | None = None
    waiting: OrderedDict[ObjectKey, None] = attrs.field(factory=OrderedDict)


class Turns:
    """Sets keys of a busy group aside, and calls them when it is their turn.

    No caller waits: a key that does not get its turn is looked at again when it is called. A key
    that is called and does not take its turn in that look has to `pass_on`.

    Args:
        call: asks for another look at a key.
    """

    def __init__(self, call: Callable[[ObjectKey], None]) -> None:
        self._call = call
        self._groups: WeakValueDictionary[Hashable, Group] = WeakValueDictionary()
        self._called: dict[ObjectKey, list[Group]] = {}

    def group(self, name: Hashable) -> Group:
        """The group of a name; its comparison may raise anything."""
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = Group()
        return found

    def take(self, group: Group, key: ObjectKey) -> bool:
        """Whether it is the turn of a key now; if not, it is called later. End it with `end`."""
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
        """The look at a key is over: turns that it was called for and did not take are ended."""
        for group in self._called.pop(key, ()):
            self.end(group)
