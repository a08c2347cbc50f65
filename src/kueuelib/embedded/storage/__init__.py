"""Objects in memory: a table per kind, one counter of versions, a bounded log of changes."""

from __future__ import annotations

from kueuelib.embedded.storage.memory import (
    Change,
    Compacted,
    Entry,
    StaleWrite,
    Storage,
    Table,
    encoded,
)

__all__ = ["Change", "Compacted", "Entry", "StaleWrite", "Storage", "Table", "encoded"]
