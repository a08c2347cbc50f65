"""Writes a tape to files: compressed, flushed every second, rotated by size."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO
from uuid import uuid4

import attrs
import orjson

from kueuelib import __version__
from kueuelib.api.meta import Obj
from kueuelib.errors import ConfigError
from kueuelib.recording.facts import fact_data
from kueuelib.recording.pseudonyms import Pseudonyms
from kueuelib.recording.reader import FORMAT
from kueuelib.recording.rotation import put_aside
from kueuelib.recording.tape import RecordedEngine, Tape
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler.events import Event
from kueuelib.scheduler.settings import Settings

FLUSH = 1.0
"""The longest delay, in seconds, until a line is in the file."""
LEVEL = 1
"""The compression level of zlib: lines are alike, so a higher one gains little."""
MEBI = 2**20
MANAGER, WATCHES = "manager", "watches"


@attrs.frozen
class RecordingOptions:
    """How to record.

    Attributes:
        path: the file.
        configuration: the manager's settings for decisions and times, in the form of its file.
        by: `manager`, or `watches` if nothing is decided.
        size: bytes after which another file begins.
        files: how many files are kept.
        hash_names: whether names are replaced.
    """

    path: Path
    configuration: Obj = attrs.field(factory=dict)
    by: str = MANAGER
    size: int = 64 * MEBI
    files: int = 8
    hash_names: bool = False


class Recorder:
    """Records the input and the decisions of one engine; a part of a `Manager`.

    A file that can no longer be written ends the recording, not the manager.

    Args:
        options: how to record.
        settings: those of the engine.
        clock: decides when parts begin, and waits.

    Attributes:
        engine: the engine.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(
        self, options: RecordingOptions, settings: Settings, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._rename = Pseudonyms().rename if options.hash_names else _as_it_is
        self._tape = Tape(self._rename)
        self.engine = RecordedEngine(settings, self._tape)
        self._options = options
        self._clock = clock
        self._life = uuid4().hex
        self._part = 0
        self._something = asyncio.Event()
        self._writing = threading.Lock()
        self._log = get_logger("recorder")
        self._tape.listen(self._something.set)
        try:
            self._file = _File(options, [self._header()])
        except OSError as error:
            problem = error.strerror or str(error)
            fix = "give a file in a folder that can be written"
            raise ConfigError(str(options.path), problem, fix) from error

    def _header(self) -> bytes:
        self._part += 1
        options = self._options
        return orjson.dumps(
            {
                "recording": FORMAT,
                "version": __version__,
                "at": self._clock.now(),
                "life": self._life,
                "part": self._part,
                "by": options.by,
                "hash": self._tape.hash,
                "hashed": options.hash_names,
                "configuration": options.configuration,
            }
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Writes until cancelled, then writes the rest."""
        ready()
        try:
            while True:
                await self._something.wait()
                await self._clock.sleep(FLUSH)
                self._something.clear()
                await asyncio.to_thread(self._write, self._tape.take())
                if self._file.size >= self._options.size:
                    rest = self._tape.take()
                    again = self._again(self._header(), self.engine.latest())
                    await asyncio.to_thread(self._rotate, rest, again)
        finally:
            self._write(self._tape.take())
            self._close()

    def _write(self, lines: list[bytes]) -> None:
        with self._writing:
            try:
                self._file.write(lines)
            except OSError as error:
                self._ends(error)

    def _again(self, header: bytes, latest: tuple[Event, ...]) -> Iterator[bytes]:
        """The first lines of a part: all facts that hold at its beginning."""
        yield header
        at = self._clock.now()
        for event in latest:
            line = {"at": at, "fact": type(event).__name__, "of": fact_data(event), "again": True}
            yield orjson.dumps(self._rename(line))

    def _close(self) -> None:
        with self._writing:
            try:
                self._file.close()
            except OSError as error:
                self._ends(error)

    def _rotate(self, rest: list[bytes], again: Iterable[bytes]) -> None:
        with self._writing:
            try:
                self._file.write(rest)
                self._file.close()
                self._file = _File(self._options, again)
            except OSError as error:
                self._ends(error)

    def _ends(self, error: OSError) -> None:
        self._tape.close()
        self._log.error("the recording has ended", file=str(self._options.path), why=str(error))


def _as_it_is(line: Obj) -> Obj:
    return line


class _File:
    """One part of a recording."""

    def __init__(self, options: RecordingOptions, lines: Iterable[bytes]) -> None:
        put_aside(options.path, options.files)
        self._file: IO[bytes] = options.path.open("xb")
        self._stream = zlib.compressobj(LEVEL, wbits=31)
        self.size = 0
        self.write(lines)

    def write(self, lines: Iterable[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        if data and not self._file.closed:
            packed = self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)
            self._file.write(packed)
            self._file.flush()
            self.size += len(packed)

    def close(self) -> None:
        if not self._file.closed:
            self._file.write(self._stream.flush())
            self._file.close()
