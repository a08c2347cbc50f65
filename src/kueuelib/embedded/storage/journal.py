"""Saves changes on disk, many in one transaction, and tells when they are safe."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque

from kueuelib.embedded.storage.folder import DataFolder, Row
from kueuelib.embedded.storage.table import Change
from kueuelib.errors import ServerError

HISTORY = 8_192
"""So many of the latest changes are kept for watches that come back after a restart."""

COMPACT_EVERY = 4_096
RETRY_SECONDS = 1.0
BATCH = 2_000


class Journal:
    """The one thread that writes to a data folder. Use it from one event loop.

    While the disk refuses, nothing is accepted: waiting and new writes fail, and what is in memory
    already is tried again every second, so that memory and disk agree in the end.

    Args:
        folder: where to.
        latest: the resource version up to which everything is saved.

    Attributes:
        folder: the same.
        problem: why nothing can be saved at the moment; empty when all is well.
    """

    def __init__(self, folder: DataFolder, latest: int) -> None:
        self.folder = folder
        self._loop = asyncio.get_running_loop()
        self._saved = latest
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.problem = ""
        self._lock = threading.Condition()
        self._pending: list[Row] = []
        self._closing = False
        self._uncompacted = 0
        self._thread = threading.Thread(target=self._work, name="kueuelib-journal", daemon=True)
        self._thread.start()

    # ---- on the event loop

    def check(self) -> None:
        """Refuses before anything is changed.

        Raises:
            ServerError: changes cannot be saved at the moment.
        """
        if self.problem:
            raise self._failed()

    def record(self, table: str, change: Change) -> None:
        """Hands over a change that was made in memory."""
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
        with self._lock:
            self._pending.append(row)
            self._lock.notify()

    async def saved(self, revision: int) -> None:
        """Returns when the changes up to a resource version would survive the end of the process.

        Raises:
            ServerError: the disk refuses them for now.
        """
        if revision <= self._saved:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((revision, waiter))
        await waiter

    async def close(self) -> None:
        """Saves what is left, once; then ends."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        await asyncio.to_thread(self._thread.join)
        if not self._pending:
            self.folder.note(clean=str(self._saved).encode())
        self.folder.close()

    def _told(self, revision: int, problem: str) -> None:
        self.problem = problem
        self._saved = max(self._saved, revision)
        while self._waiters and (problem or self._waiters[0][0] <= self._saved):
            _, waiter = self._waiters.popleft()
            if waiter.done():
                continue
            if problem:
                waiter.set_exception(self._failed())
            else:
                waiter.set_result(None)

    def _failed(self) -> ServerError:
        return ServerError(f"the state cannot be saved in {self.folder.path}: {self.problem}")

    # ---- in the thread

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._pending and not self._closing:
                    self._lock.wait()
                rows = self._pending[:BATCH]
            if not rows:
                return
            problem = self._save(rows)
            if not problem:
                with self._lock:
                    del self._pending[: len(rows)]
            self._report(rows[-1].revision if not problem else 0, problem)
            if problem:
                with self._lock:
                    if self._closing or self._lock.wait_for(self._is_closing, RETRY_SECONDS):
                        return

    def _is_closing(self) -> bool:
        return self._closing

    def _save(self, rows: list[Row]) -> str:
        """Why it did not work; empty when it did."""
        try:
            self.folder.append(rows)
        except sqlite3.Error as error:
            return str(error) or type(error).__name__
        self._uncompacted += len(rows)
        if self._uncompacted >= COMPACT_EVERY:
            self._uncompacted = 0
            try:
                self.folder.compact(max(0, rows[-1].revision - HISTORY))
            except sqlite3.Error:
                self._uncompacted = COMPACT_EVERY  # the rows are safe; the next save tries again
        return ""

    def _report(self, revision: int, problem: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self._told, revision, problem)
        except RuntimeError:
            return  # the loop has ended: nobody waits any more
