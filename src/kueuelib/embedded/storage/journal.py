"""Saves changes on disk before they become visible."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading

from kueuelib.embedded.storage.folder import DataFolder, Row
from kueuelib.embedded.storage.table import Change
from kueuelib.errors import ServerError

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

    def record(self, table: str, change: Change) -> None:
        """Saves a change before it is visible; afterwards it survives the end of the process.

        Raises:
            ServerError: the disk refuses it.
        """
        entry = change.after
        row = Row(
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
        except (sqlite3.Error, OSError) as error:
            why = str(error) or type(error).__name__
            raise ServerError(f"the state cannot be saved in {self.folder.path}: {why}") from error
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
