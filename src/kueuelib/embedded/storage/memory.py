"""The objects in memory: a table per kind, the counter of all writes, and their journal."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.storage.folder import DataFolder, StoredRow
from kueuelib.errors import KueuelibError, ServerError

# ---- the objects of one kind and their latest changes --------------------------------------------

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
class StoredState:
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
        return orjson.loads(self.raw)  # type: ignore[no-any-return]


@attrs.frozen(eq=False)
class StorageEvent:
    """One step in the life of an object.

    Attributes:
        revision: the resource version of the step.
        before: the previous state; None for a creation.
        after: the new state; if `removed`, the last one, at the new revision.
        removed: whether the object is gone.
    """

    revision: int
    before: StoredState | None
    after: StoredState
    removed: bool


class KindTable:
    """All objects of one kind, ordered by namespace and name, and a log of their changes.

    The log is a window: readers have an absolute position in it and pull. A reader that falls
    behind the window gets `Compacted`, so a slow reader costs only its position.

    Args:
        name: of the table.
        floor: changes up to this resource version are not known.
    """

    def __init__(self, name: str, floor: int = 0) -> None:
        self.name = name
        self._states: dict[ObjectKey, StoredState] = {}
        self._keys: list[ObjectKey] = []
        self._log: list[StorageEvent] = []
        self._first = 0
        self._log_bytes = 0
        self._compacted = floor
        self._waiters: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key: ObjectKey) -> StoredState | None:
        """The present state of an object."""
        return self._states.get(key)

    def entries(self, namespace: str = "", after: ObjectKey | None = None) -> Iterator[StoredState]:
        """Present states in the order of their keys.

        Args:
            namespace: only this one; empty for all.
            after: only later keys.
        """
        start = bisect_left(self._keys, (namespace, "")) if namespace else 0
        end = bisect_left(self._keys, (f"{namespace}\0", "")) if namespace else len(self._keys)
        if after is not None:
            start = max(start, bisect_right(self._keys, after))
        for key in self._keys[start:end]:
            yield self._states[key]

    def apply(self, change: StorageEvent) -> None:
        """Makes a change visible and wakes its waiters."""
        self._place(change)
        self._note(change)
        self.wake()

    def restore(self, change: StorageEvent, *, logged: bool) -> None:
        """Makes a change of an earlier process visible.

        Args:
            change: later than all others.
            logged: whether watches may receive it.
        """
        self._place(change)
        if logged:
            self._note(change)

    def _place(self, change: StorageEvent) -> None:
        key = change.after.key
        if change.removed:
            del self._states[key], self._keys[bisect_left(self._keys, key)]
            return
        if change.before is None:
            insort(self._keys, key)
        self._states[key] = change.after

    def _note(self, change: StorageEvent) -> None:
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

    def since(self, position: int, limit: int = 512) -> list[StorageEvent]:
        """The changes since a position.

        Raises:
            Compacted: some of them have been forgotten.
        """
        start = position - self._first
        if start < 0:
            raise Compacted(position, self._compacted)
        return self._log[start : start + limit]

    def as_of(self, revision: int) -> Mapping[ObjectKey, StoredState | None]:
        """The past states of objects that have changed since a revision; None for absent ones.

        Raises:
            Compacted: the revision is no longer available.
        """
        past: dict[ObjectKey, StoredState | None] = {}
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


# ---- saves changes on disk before they become visible --------------------------------------------

HISTORY = 8_192
"""The number of latest changes that are kept for watches that resume after a restart."""

TIDY_EVERY = 1_024
"""The number of changes after which the log is merged into the file, and old states are dropped."""

SYNC_SECONDS = 1.0
"""So long after a change it is on the disk at the latest, if the disk keeps up."""
_LOG = logging.getLogger("kueuelib.embedded")
_REFUSED = (
    "%s: the disk refuses the latest changes: %s; a power failure may lose them; trying again"
)


class Journal:
    """Writes to a data folder. Use it from one event loop.

    A change is one transaction of some ten microseconds: it is written to the log, in the system's
    buffers. Slower work that waits for the disk is done in a thread.

    Args:
        folder: the data folder.

    Attributes:
        folder: the same.
    """

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder
        self._count = 0
        self._latest = 0
        self._due = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._tidy, name="kueuelib-journal", daemon=True)
        self._thread.start()

    def record(self, table: str, change: StorageEvent) -> None:
        """Saves a change before it is visible; afterwards it survives the end of the process.

        Raises:
            ServerError: the disk refuses it.
        """
        entry = change.after
        row = StoredRow(
            change.revision,
            table,
            entry.key.namespace,
            entry.key.name,
            change.removed,
            entry.version,
            entry.raw,
        )
        try:
            self.folder.append(row)
        except sqlite3.Error as error:
            raise ServerError(
                f"the state cannot be saved in {self.folder.path}: {error}"
            ) from error
        finally:
            self._due.set()
        self._latest = change.revision
        self._count += 1

    async def close(self) -> None:
        """Ends the thread, and records a clean end."""
        self._closing.set()
        self._due.set()
        await asyncio.to_thread(self._thread.join)
        self.folder.note(clean=str(self.folder.latest()).encode())
        self.folder.close()

    def _tidy(self) -> None:
        tidied = failures = 0
        while True:
            self._due.wait()
            self._closing.wait(SYNC_SECONDS * 2 ** min(failures, 6))
            self._due.clear()
            if self._closing.is_set():  # perhaps only now, so that `close` will not be heard again
                return
            try:
                self.folder.sync(self._latest)
                if self._count - tidied >= TIDY_EVERY:
                    tidied = self._count
                    self.folder.tidy(max(0, self._latest - HISTORY), self._closing.is_set)
            except (sqlite3.Error, OSError) as error:
                if not failures:
                    _LOG.warning(_REFUSED, self.folder.path, error)
                failures += 1
                self._due.set()
            else:
                failures = 0


# --------------------------------------------------------------------------------------------------

NOTHING: Mapping[str, str] = {}

Describe = Callable[[Obj], Mapping[str, str]]
"""Returns the fields for field selectors."""


class Storage:
    """The tables of every kind.

    Attributes:
        revision: the resource version of the latest write of all.
        floor: changes up to this resource version are not available.
        journal: saves changes on disk; None: they live as long as the process.
    """

    def __init__(self) -> None:
        self.revision = 1
        self.floor = 0
        self.journal: Journal | None = None
        self._tables: dict[str, KindTable] = {}

    def table(self, name: str) -> KindTable:
        """The table of that name, which is created if it is missing."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = KindTable(name, self.floor)
        return table

    def put(
        self,
        table: KindTable,
        key: ObjectKey,
        obj: Obj,
        describe: Describe,
        expect: StoredState | None,
    ) -> StorageEvent:
        """Stores an object, whose resource version is set here.

        Args:
            table: the table.
            key: namespace and name.
            obj: the object; its `metadata.resourceVersion` is changed in place.
            describe: returns the selectable fields.
            expect: the state that is replaced; None for a creation.

        Raises:
            StaleWrite: the present state differs from it.
            ServerError: it cannot be saved; nothing has changed.
        """
        return self._write(table, key, obj, describe, expect, removed=False)

    def remove(
        self, table: KindTable, obj: Obj, describe: Describe, expect: StoredState
    ) -> StorageEvent:
        """Removes an object; `obj` is its last state, changed in place to the new resource version.

        Raises:
            StaleWrite: the present state differs from it.
            ServerError: it cannot be saved; nothing has changed.
        """
        return self._write(table, expect.key, obj, describe, expect, removed=True)

    def compact(self) -> None:
        """Drops all changes so far and keeps only states, like a compaction of etcd."""
        self.floor = self.revision
        for table in self._tables.values():
            table.forget(self.revision)

    async def close(self) -> None:
        """Stops saving."""
        journal, self.journal = self.journal, None
        if journal is not None:
            await journal.close()

    def _write(
        self,
        table: KindTable,
        key: ObjectKey,
        obj: Obj,
        describe: Describe,
        expect: StoredState | None,
        *,
        removed: bool,
    ) -> StorageEvent:
        if table.get(key) is not expect:
            raise StaleWrite(f"{table.name} {key}")
        revision, meta = self.revision + 1, obj["metadata"]
        meta["resourceVersion"] = str(revision)
        head = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": meta}
        state = StoredState(
            key=key,
            revision=revision,
            version=obj["apiVersion"].rpartition("/")[2],
            raw=encoded(head | obj),
            labels=meta.get("labels") or NOTHING,
            fields=describe(obj) or NOTHING,
        )
        change = StorageEvent(revision, expect, state, removed)
        if self.journal is not None:
            self.journal.record(table.name, change)
        self.revision = revision
        table.apply(change)
        return change


def encoded(obj: Obj) -> bytes:
    """The JSON of an object, in exactly as much memory as it needs.

    The result of `orjson.dumps` keeps its whole buffer, several times its size. That does not
    matter for an answer that is sent and dropped, but for thousands of kept objects it would be
    most of the server's memory. So the bytes are copied once.
    """
    return bytes(memoryview(orjson.dumps(obj)))
