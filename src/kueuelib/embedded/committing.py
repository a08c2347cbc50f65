"""The last step of a write: the storage, and the listeners."""

from __future__ import annotations

from collections.abc import Callable

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.storage import Storage, StorageEvent, StoredState

Listener = Callable[[Kind, StorageEvent], None]
"""Called for every change, in order, before the write is answered."""


def held(kind: Kind, obj: Obj) -> bool:
    """Whether a finalizer still keeps an object that is being deleted."""
    if obj["metadata"].get("finalizers"):
        return True
    return (
        kind.kind == "Namespace"
        and not kind.group
        and bool((obj.get("spec") or {}).get("finalizers"))
    )


class Commits:
    """Writes fully validated states."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Adds a listener."""
        self._listeners.append(listener)

    def present(self, kind: Kind, key: ObjectKey) -> StoredState | None:
        """The present state, or None."""
        return self._storage.table(kind.table).get(key)

    def has(self, kind: Kind, key: ObjectKey) -> bool:
        """Whether there is such an object."""
        return self.present(kind, key) is not None

    def put(self, kind: Kind, key: ObjectKey, obj: Obj, expect: StoredState | None) -> StoredState:
        """Stores a state.

        Raises:
            StaleWrite: the present state is not the expected one.
        """
        table = self._storage.table(kind.table)
        return self._notify(kind, self._storage.put(table, key, obj, kind.fields, expect))

    def replace(self, kind: Kind, key: ObjectKey, obj: Obj, expect: StoredState) -> StoredState:
        """Stores a changed state, or removes the object if its deletion waited for this change.

        Raises:
            StaleWrite: the present state is not the expected one.
        """
        meta = obj["metadata"]
        if (
            meta.get("deletionTimestamp")
            and not meta.get("deletionGracePeriodSeconds")
            and not held(kind, obj)
        ):
            return self.remove(kind, obj, expect)
        return self.put(kind, key, obj, expect)

    def remove(self, kind: Kind, obj: Obj, expect: StoredState) -> StoredState:
        """Removes an object; returns its last state.

        Raises:
            StaleWrite: the present state is not the expected one.
        """
        table = self._storage.table(kind.table)
        return self._notify(kind, self._storage.remove(table, obj, kind.fields, expect))

    def _notify(self, kind: Kind, change: StorageEvent) -> StoredState:
        for listener in self._listeners:
            listener(kind, change)
        return change.after
