"""Which of our own writes the caches have not shown us yet.

A plan that is made before the cache knows the last write repeats it: the server refuses, but it was
a wasted request. So a key with such a write rests until the cache has caught up, or for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import ObjectKey, Resource, key_of

PATIENCE = 5.0
"""Seconds that a key rests at most."""

Lookup = Callable[[Resource, ObjectKey], Mapping[str, Any] | None]


@attrs.frozen
class Write:
    """One write that succeeded, or that was refused because the cache is behind.

    Attributes:
        resource: the kind that was written.
        key: the object.
        outdated: the resource versions that it had before; empty when it did not exist.
    """

    resource: Resource
    key: ObjectKey
    outdated: frozenset[str] = frozenset()


def write_of(resource: Resource, *states: Mapping[str, Any]) -> Write:
    """The write to an object that was in these states before."""
    return Write(resource, key_of(states[0]), frozenset(map(version_of, states)))


def version_of(obj: Mapping[str, Any]) -> str:
    """The resource version, empty when there is none."""
    return str(obj["metadata"].get("resourceVersion", ""))


class Freshness:
    """Remembers, by the key that was reconciled, the writes that no cache has shown yet."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._awaited: dict[ObjectKey, tuple[float, tuple[Write, ...]]] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def expect(self, key: ObjectKey, writes: tuple[Write, ...], now: float) -> None:
        """Rest this key until the cache shows the writes; `now` is monotonic."""
        if writes:
            self._awaited[key] = (now + self._patience, writes)

    def rest(self, key: ObjectKey, lookup: Lookup, now: float) -> float | None:
        """Seconds that the key rests at most; None when the cache has caught up.

        Args:
            key: the key that is to be reconciled.
            lookup: reads the cache.
            now: monotonic seconds.
        """
        found = self._awaited.get(key)
        if found is None:
            return None
        deadline, writes = found
        missing = tuple(write for write in writes if not _seen(write, lookup))
        if not missing or deadline <= now:
            del self._awaited[key]
            return None
        self._awaited[key] = (deadline, missing)
        return deadline - now


def _seen(write: Write, lookup: Lookup) -> bool:
    found = lookup(write.resource, write.key)
    if found is None:
        return bool(write.outdated)
    return version_of(found) not in write.outdated
