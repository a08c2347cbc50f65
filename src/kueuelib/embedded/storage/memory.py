"""All tables and the counter that orders every write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.storage.table import Change, Entry, StaleWrite, Table

if TYPE_CHECKING:
    from kueuelib.embedded.storage.journal import Journal

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
        self._tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        """The table of that name, which is created if it is missing."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, self.floor)
        return table

    def put(
        self, table: Table, key: ObjectKey, obj: Obj, describe: Describe, expect: Entry | None
    ) -> Change:
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
        if table.get(key) is not expect:
            raise StaleWrite(f"{table.name} {key}")
        change = Change(self.revision + 1, expect, self._entry(key, obj, describe), removed=False)
        self._commit(table, change)
        return change

    def remove(self, table: Table, obj: Obj, describe: Describe, expect: Entry) -> Change:
        """Removes an object; `obj` is its last state, changed in place to the new resource version.

        Raises:
            StaleWrite: the present state differs from it.
            ServerError: it cannot be saved; nothing has changed.
        """
        if table.get(expect.key) is not expect:
            raise StaleWrite(f"{table.name} {expect.key}")
        change = Change(
            self.revision + 1, expect, self._entry(expect.key, obj, describe), removed=True
        )
        self._commit(table, change)
        return change

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

    def _commit(self, table: Table, change: Change) -> None:
        if self.journal is not None:
            self.journal.record(table.name, change)
        self.revision += 1
        table.apply(change)

    def _entry(self, key: ObjectKey, obj: Obj, describe: Describe) -> Entry:
        revision = self.revision + 1
        meta = obj["metadata"]
        meta["resourceVersion"] = str(revision)
        head = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": meta}
        return Entry(
            key=key,
            revision=revision,
            version=obj["apiVersion"].rpartition("/")[2],
            raw=encoded(head | obj),
            labels=meta.get("labels") or NOTHING,
            fields=describe(obj) or NOTHING,
        )


def encoded(obj: Obj) -> bytes:
    """The JSON of an object, in exactly as much memory as it needs.

    The result of `orjson.dumps` keeps its whole buffer, several times its size. That does not
    matter for an answer that is sent and dropped, but for thousands of kept objects it would be
    most of the server's memory. So the bytes are copied once.
    """
    return bytes(memoryview(orjson.dumps(obj)))
