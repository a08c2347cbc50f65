"""A folder with the state of one server: its lock, its file, and their errors."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import attrs

from kueuelib.errors import ConfigError

APPLICATION = 0x6B756575
"""Marks the files of this program (`PRAGMA application_id`)."""

FORMAT = 2
HEAD = b"SQLite format 3\0"
FILE = "state.db"
LOCK = "lock"
MARK = "latest"
"""Holds, apart from what may be lost, the latest resource version that was saved, the latest that
is known to be on the disk, and the boot of the machine in which they were written.
"""
_DIGITS = 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")

_SCHEMA = f"""
    CREATE TABLE states (
        revision INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        removed INTEGER NOT NULL,
        version TEXT NOT NULL,
        raw BLOB NOT NULL
    );
    CREATE INDEX by_key ON states (kind, namespace, name, revision);
    CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    PRAGMA application_id = {APPLICATION};
    PRAGMA user_version = {FORMAT};
"""
TIDIED = 512
"""The number of resource versions that are tidied at once, while writers wait."""
_REPLACED = """
    DELETE FROM states WHERE revision IN (
        SELECT old.revision FROM states AS new JOIN states AS old
        ON old.kind = new.kind AND old.namespace = new.namespace AND old.name = new.name
        AND old.revision < new.revision WHERE new.revision > ? AND new.revision <= ?
    )
"""
_REMOVED = "DELETE FROM states WHERE removed AND revision > ? AND revision <= ?"
_NOTE = "INSERT INTO facts VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
_LOG = logging.getLogger("kueuelib.embedded")


@attrs.frozen
class StoredRow:
    """One state of one object, as it is stored.

    Attributes:
        revision: its resource version.
        kind: the name of the table of its kind, `workloads.kueue.x-k8s.io`.
        namespace: empty for cluster-wide objects.
        name: its name.
        removed: whether it is the last state of a removed object.
        version: the API version of `raw`.
        raw: the object as JSON.
    """

    revision: int
    kind: str
    namespace: str
    name: str
    removed: bool
    version: str
    raw: bytes


class DataFolder:
    """An open folder; only one process can open it at a time.

    Every state is one row, and rows are only added: the present state of an object is its latest
    row. Compaction removes rows that later ones have replaced.

    Args:
        path: the folder, which is created if it is missing.

    Raises:
        ConfigError: it is in use, not writable, damaged, or belongs to another program.

    Attributes:
        mark: the resource version up to which everything had been saved when it was opened.
        durable: up to this one nothing can be lost, unless the folder is damaged: it was on the
            disk, or the machine has run ever since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / FILE
        with self._explained():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._locked()
        try:
            with self._explained():
                self.mark, self.durable = self._read_mark()
                self._check_head()
                if self.file.exists() and self.file.stat().st_size:
                    self._check()
                self.file.touch(mode=0o600)
                (path / MARK).touch(mode=0o600)
                self._mark = (path / MARK).open("r+b", buffering=0)
                self.database = sqlite3.connect(
                    self.file, isolation_level=None, check_same_thread=False
                )
        except BaseException:
            self._lock.close()
            raise
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Releases the folder."""
        self.database.close()
        self._mark.close()
        self._lock.close()

    def _read_mark(self) -> tuple[int, int]:
        """`mark` and `durable`; 0 for a new folder."""
        file = self.path / MARK
        text = file.read_text(errors="replace") if file.exists() else ""
        saved, synced, boot = [*text.split(), "0", "0", ""][:3] if text else ("0", "0", "")
        if not (_is_revision(saved) and _is_revision(synced)):
            problem = f"holds no resource version: {text[:60]!r}"
            fix = (
                f"restore a copy of {self.path}; to continue with what {FILE} holds, copy it, then "
            )
            fix += f"remove {file}"
            raise ConfigError(str(file), problem, fix)
        return int(saved), int(saved if boot == _boot() != "" else synced)

    def _locked(self) -> IO[str]:
        """An open file that no other server can lock."""
        import fcntl

        file = (self.path / LOCK).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            owner = (self.path / LOCK).read_text().strip()
            raise ConfigError(
                str(self.path),
                f"another server{f' (process {owner})' if owner else ''} uses it",
                "stop that server, or choose another folder",
            ) from None
        except OSError:
            file.close()
            raise
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return file

    def _check_head(self) -> None:
        head = b""
        if self.file.exists():
            with self.file.open("rb") as file:
                head = file.read(len(HEAD))
        log = self.path / f"{FILE}-wal"
        if not head and (self.mark or (log.exists() and log.stat().st_size)):
            raise self._damaged("it is empty, and there were records")
        if head and head != HEAD:
            raise self._damaged("file is not a database")

    def _check(self) -> None:
        """Check the file without a change, so that what is refused can still be repaired."""
        where = f"{self.file.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(where, uri=True, isolation_level=None)) as self.database:
            self._check_content(self.database.execute)

    def _check_content(self, run: Callable[..., sqlite3.Cursor]) -> None:
        run("PRAGMA busy_timeout = 0")
        (application,) = run("PRAGMA application_id").fetchone()
        (format_,) = run("PRAGMA user_version").fetchone()
        (tables,) = run("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != APPLICATION and tables:
            raise ConfigError(
                str(self.file), "is the database of another program", "choose another folder"
            )
        if tables and format_ != FORMAT:
            raise ConfigError(
                str(self.file),
                f"has the format {format_}, this version knows {FORMAT}",
                "use the version that wrote it, or another folder",
            )
        if not tables and self.mark:
            log = f"{FILE}-wal is gone or damaged"
            raise self._damaged(f"of {self.mark} records it has none, as the log {log}")
        (verdict,) = run("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise self._damaged(verdict)
        end = max(self.latest(), self.begun()) if tables else 0
        if end < self.durable:
            raise ConfigError(
                str(self.file),
                f"ends at resource version {end}, and {self.mark} had been saved: its log "
                f"{FILE}-wal is damaged, gone or an older one",
                f"restore a copy of {self.path}; to continue without what was written in between, "
                f"copy it, then remove {self.path / MARK}",
            )

    def _prepare(self) -> None:
        run = self.database.execute
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run("PRAGMA wal_autocheckpoint = 0")
        run("PRAGMA cache_size = -512")
        run("PRAGMA busy_timeout = 5000")
        if not run("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            self.database.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        self._write_mark(self.mark)
        self._write_durable(self.durable, f"{_boot()}\n")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ConfigError(
                str(self.file), str(error), "give a folder on a disk with space to write to"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            problem = error.strerror or str(error)
            raise ConfigError(
                str(error.filename or self.path), problem, "give a folder that can be written"
            ) from error

    def _damaged(self, why: str) -> ConfigError:
        return ConfigError(
            str(self.file), f"cannot be read: {why}", "restore a copy, or choose another folder"
        )

    # ---- reading

    def rows(self) -> Iterator[StoredRow]:
        """All states, the oldest first.

        Raises:
            ConfigError: the file is damaged.
        """
        with self._explained():
            for row in self.database.execute(
                "SELECT revision, kind, namespace, name, removed, version, raw FROM states "
                "ORDER BY revision"
            ):
                revision, kind, namespace, name, removed, version, raw = row
                yield StoredRow(revision, kind, namespace, name, bool(removed), version, raw)

    def fact(self, name: str) -> bytes | None:
        """The record under a name."""
        with self._explained():
            cursor = self.database.execute("SELECT value FROM facts WHERE name = ?", (name,))
            row = cursor.fetchone()
        return None if row is None else bytes(row[0])

    def note(self, **facts: bytes) -> None:
        """Stores a record that is never removed."""
        with self._explained():
            self.database.executemany(_NOTE, facts.items())

    def begun(self) -> int:
        """The resource version at which the last server began."""
        return int(self.fact("begun") or b"0")

    def latest(self) -> int:
        """The resource version of the latest state; 0 when there is none."""
        with self._explained():
            (latest,) = self.database.execute("SELECT max(revision) FROM states").fetchone()
        return int(latest or 0)

    # ---- writing

    def append(self, row: StoredRow) -> None:
        """Adds a state in its own transaction; afterwards it survives the end of the process.

        Raises:
            sqlite3.Error: it cannot be saved; nothing has changed.
        """
        with _transaction(self.database) as run:
            run("INSERT INTO states VALUES (?, ?, ?, ?, ?, ?, ?)", attrs.astuple(row))
        try:
            self._write_mark(row.revision)
        except OSError as error:
            _LOG.warning("%s: %s", self.path / MARK, error.strerror)

    def _write_mark(self, revision: int) -> None:
        os.pwrite(self._mark.fileno(), b"%020d" % revision, 0)

    def sync(self, revision: int) -> None:
        """Puts what is saved on the disk, so that the end of the machine cannot take it.

        It may be called in any thread.

        Args:
            revision: was saved before.

        Raises:
            OSError: the disk refuses it.
        """
        log = os.open(f"{self.file}-wal", os.O_RDONLY)
        try:
            os.fsync(log)
        finally:
            os.close(log)
        self._write_durable(revision)

    def merge(self, revision: int) -> None:
        """`sync`, into the file, after which the log is empty."""
        with self._explained():
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._write_durable(revision)

    def _write_durable(self, revision: int, boot: str = "") -> None:
        os.pwrite(self._mark.fileno(), f" {revision:020d} {boot}".encode(), _DIGITS)

    def tidy(self, revision: int, ended: Callable[[], bool]) -> None:
        """Removes states that were replaced up to a resource version, and empties the log.

        It may be called in any thread, and lets writers run in between.

        Args:
            revision: up to this one.
            ended: returns True when there is no time to continue.

        Raises:
            sqlite3.Error: the disk refuses it, or writers block it.
        """
        with closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            compacted = database.execute(
                "SELECT value FROM facts WHERE name = 'compacted'"
            ).fetchone()
            for first in range(int(compacted[0]) if compacted else 0, revision, TIDIED):
                if ended():
                    return
                last = min(revision, first + TIDIED)
                with _transaction(database) as run:
                    run(_REPLACED, (first, last))
                    run(_REMOVED, (first, last))
                    run(_NOTE, ("compacted", str(last).encode()))
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")
            if not ended():
                database.execute("PRAGMA wal_checkpoint(RESTART)")


def _is_revision(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) < 2**62


def _boot() -> str:
    """Names the time since the machine was started; empty where nothing does."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[Callable[..., sqlite3.Cursor]]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database.execute
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
