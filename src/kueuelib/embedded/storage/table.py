"""The objects of one kind and their latest changes."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.errors import KueuelibError
from kueuelib.runtime.memory import LARGE, uncollected

LOG_LENGTH = 8192
LOG_BYTES = 4 * 2**20
KEPT_AT_LEAST = 256


class Compacted(KueuelibError):
    """The requested changes are no longer available.

    Attributes:
        oldest: the oldest resource version from which changes are known.
    """

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"changes since {asked} were compacted, the oldest are since {oldest}")
        self.asked = asked
        self.oldest = oldest


class StaleWrite(KueuelibError):
    """The object was changed, created or removed since it was read."""


@attrs.define(eq=False)
class Entry:
    """One state of one object.

    Attributes:
        key: its name.
        revision: its resource version.
        version: the API version of `raw`, for example `v1beta2`.
        raw: the object as JSON.
        labels: its labels.
        fields: for field selectors, beyond name and namespace.
        views: other forms of `raw`, filled in on demand.
    """

    key: ObjectKey
    revision: int
    version: str
    raw: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    views: dict[str, bytes] | None = None

    def obj(self) -> Obj:
        """The object, decoded again at every call."""
        if len(self.raw) <= LARGE:
            return orjson.loads(self.raw)  # type: ignore[no-any-return]
        with uncollected():
            return orjson.loads(self.raw)  # type: ignore[no-any-return]


@attrs.frozen(eq=False)
class Change:
    """One step in the life of an object.

    Attributes:
        revision: the resource version of the step.
        before: the previous state; None for a creation.
        after: the new state; if `removed`, the last one, at the new revision.
        removed: whether the object is gone.
    """

    revision: int
    before: Entry | None
    after: Entry
    removed: bool


class Table:
    """All objects of one kind, ordered by namespace and name, and a log of their changes.

    The log is a window: readers have an absolute position in it and pull. A reader that falls
    behind the window gets `Compacted`, so a slow reader costs only its position.

    Args:
        name: of the table.
        floor: changes up to this resource version are not known.
    """

    def __init__(self, name: str, floor: int = 0) -> None:
        self.name = name
        self._spaces: dict[str, dict[str, Entry]] = {}
        self._names: dict[str, list[str]] = {}
        self._order: list[str] = []
        self._count = 0
        self._log: list[Change] = []
        self._first = 0
        self._log_bytes = 0
        self._compacted = floor
        self._waiters: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return self._count

    def get(self, key: ObjectKey) -> Entry | None:
        """The present state of an object."""
        space = self._spaces.get(key.namespace)
        return None if space is None else space.get(key.name)

    def entries(self, namespace: str = "", after: ObjectKey | None = None) -> Iterator[Entry]:
        """Present states in the order of their keys.

        Args:
            namespace: only this one; empty for all.
            after: only later keys.
        """
        spaces = self._order if not namespace else [namespace] if namespace in self._names else []
        if after is not None:
            spaces = spaces[bisect_left(spaces, after.namespace) :]
        for space in spaces:
            names = self._names[space]
            if after is not None and space == after.namespace:
                names = names[bisect_right(names, after.name) :]
            objects = self._spaces[space]
            for name in names:
                yield objects[name]

    def namespaces(self) -> list[str]:
        """The namespaces with objects."""
        return list(self._order)

    def apply(self, change: Change) -> None:
        """Makes a change visible and wakes its waiters."""
        self._place(change)
        self._note(change)
        self.wake()

    def restore(self, change: Change, *, logged: bool) -> None:
        """Makes a change of an earlier process visible.

        Args:
            change: later than all others.
            logged: whether watches may receive it.
        """
        self._place(change)
        if logged:
            self._note(change)

    def _place(self, change: Change) -> None:
        entry = change.after
        namespace, name = entry.key
        if change.removed:
            space = self._spaces[namespace]
            del space[name]
            names = self._names[namespace]
            del names[bisect_left(names, name)]
            self._count -= 1
            if not space:
                del self._spaces[namespace], self._names[namespace]
                del self._order[bisect_left(self._order, namespace)]
        else:
            if namespace not in self._spaces:
                self._spaces[namespace] = {}
                self._names[namespace] = []
                insort(self._order, namespace)
            if change.before is None:
                insort(self._names[namespace], name)
                self._count += 1
            self._spaces[namespace][name] = entry

    def _note(self, change: Change) -> None:
        self._log.append(change)
        self._log_bytes += len(change.after.raw)
        if len(self._log) > LOG_LENGTH or (
            self._log_bytes > LOG_BYTES and len(self._log) > KEPT_AT_LEAST
        ):
            self.compact(len(self._log) // 4)

    # ---- the log

    @property
    def compacted(self) -> int:
        """The resource version after which changes are available."""
        return self._compacted

    @property
    def end(self) -> int:
        """The position behind the latest change."""
        return self._first + len(self._log)

    def compact(self, count: int) -> None:
        """Drops the oldest changes."""
        dropped = self._log[:count]
        if not dropped:
            return
        del self._log[:count]
        self._first += count
        self._log_bytes -= sum(len(change.after.raw) for change in dropped)
        self._compacted = dropped[-1].revision

    def forget(self, revision: int) -> None:
        """Drops all changes up to a resource version of the store, even without changes in this
        table.
        """
        self.compact(len(self._log))
        self._compacted = max(self._compacted, revision)

    def position(self, revision: int) -> int:
        """The position behind the changes up to a resource version.

        Raises:
            Compacted: changes after it have been forgotten.
        """
        if revision < self._compacted:
            raise Compacted(revision, self._compacted)
        return self._first + bisect_right(self._log, revision, key=lambda change: change.revision)

    def since(self, position: int, limit: int = 512) -> list[Change]:
        """The changes since a position.

        Raises:
            Compacted: some of them have been forgotten.
        """
        start = position - self._first
        if start < 0:
            raise Compacted(position, self._compacted)
        return self._log[start : start + limit]

    def as_of(self, revision: int) -> Mapping[ObjectKey, Entry | None]:
        """The past states of objects that have changed since a revision; None for absent ones.

        Raises:
            Compacted: the revision is no longer available.
        """
        past: dict[ObjectKey, Entry | None] = {}
        start = self.position(revision) - self._first
        for change in reversed(self._log[start:]):
            past[change.after.key] = change.before
        return past

    # ---- waiting

    async def changed(self, seconds: float) -> None:
        """Returns after the next change, or after a number of seconds."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(max(0.0, seconds), _resolve, waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Wakes all waiters."""
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                _resolve(waiter)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
