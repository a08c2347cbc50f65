"""Objects in memory: a table per kind, one counter of versions, a bounded log of changes."""

from __future__ import annotations

from kueuelib.embedded.storage.memory import (
    Compacted,
    KindTable,
    StaleWrite,
    Storage,
    StorageEvent,
    StoredState,
    encoded,
)

__all__ = [
    "Compacted",
    "KindTable",
    "StaleWrite",
    "Storage",
    "StorageEvent",
    "StoredState",
    "encoded",
]
