"""The log of one run of a container: written with times, rotated, read and followed."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import anyio

from kueuelib.api.meta import parse_time
from kueuelib.node.containers import LogOptions

LOG_BYTES: Final = 10 * 2**20
"""The size at which a log is rotated; the file before it is kept, older ones are not."""
LOG_RATE: Final = 32 * 2**20
"""Bytes per second that a container may write; beyond that, its writes wait."""
_LONGEST_LINE: Final = 16 * 1024
_CHUNK: Final = 2**18
_POLL: Final = 1.0
_LINE: Final = re.compile(rb"(\S+) (stdout|stderr) ([FP]) (.*)", re.DOTALL)


class ContainerLog:
    """Writes the lines of a run in the format of CRI: time, stream, full or partial, text.

    Args:
        path: of the file.
        most: the size at which it is rotated.
    """

    def __init__(self, path: Path, most: int = LOG_BYTES) -> None:
        self.path = path
        self.ended = False
        self._most = most
        self._changed = anyio.Event()
        self._parts = {"stdout": b"", "stderr": b""}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = self._open()
        self._size = 0
        self._debt, self._paid = 0.0, time.monotonic()

    def _open(self) -> BinaryIO:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self.path, flags, 0o600), "ab", buffering=0)

    def write(self, stream: str, data: bytes) -> float:
        """Writes what a container has written.

        Returns:
            How many seconds its next writes should wait.
        """
        *lines, rest = (self._parts[stream] + data).split(b"\n")
        prefix = f"{_stamp(time.time_ns())} {stream} ".encode()
        out = [prefix + b"F " + line + b"\n" for line in lines]
        if len(rest) >= _LONGEST_LINE:
            out.append(prefix + b"P " + rest + b"\n")
            rest = b""
        self._parts[stream] = rest
        self._put(b"".join(out))
        now = time.monotonic()
        self._debt = max(0.0, self._debt - (now - self._paid)) + len(data) / LOG_RATE
        self._paid = now
        return self._debt if self._debt > 0.05 else 0.0

    def _put(self, data: bytes) -> None:
        if not data:
            return
        if self._size and self._size + len(data) > self._most:
            self._file.close()
            with suppress(FileNotFoundError):  # the pod is gone
                self.path.replace(_rotated(self.path))
            self._file, self._size = self._open(), 0
        self._file.write(data)
        self._size += len(data)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def close(self) -> None:
        """Writes unfinished lines, and lets readers end."""
        for stream, rest in self._parts.items():
            if rest:
                self._put(f"{_stamp(time.time_ns())} {stream} P ".encode() + rest + b"\n")
        self.ended = True
        self._file.close()
        self._wake()

    async def changed(self) -> None:
        """Returns when there is more, or after a second."""
        with anyio.move_on_after(_POLL):
            await self._changed.wait()


def _rotated(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _stamp(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


def last_text(path: Path, most: int = 4096, lines: int = 80) -> str:
    """The end of a log, for the message of a container that has failed."""
    texts: deque[bytes] = deque(maxlen=lines)
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4 * most))
        for line in file:
            if parsed := _LINE.fullmatch(line.rstrip(b"\n")):
                texts.append(parsed[4])
    return b"\n".join(texts)[-most:].decode(errors="replace")


async def read_log(
    path: Path, options: LogOptions, log: ContainerLog | None = None
) -> AsyncIterator[bytes]:
    """The pieces of a log.

    Args:
        path: of the file.
        options: which lines, and how.
        log: what still writes it, to follow.
    """
    left = options.limit_bytes
    files: list[tuple[BinaryIO, bool]] = []
    try:
        for each, start in _starts(path, options.tail_lines):
            with suppress(FileNotFoundError):
                files.append((each.open("rb"), each == path))
                files[-1][0].seek(start)
        while files:
            file, present = files[0]
            async for piece in _read_file(file, path if present else None, options, log):
                if left is not None:
                    piece, left = piece[:left], left - len(piece)  # noqa: PLW2901 - what is left
                if piece:
                    yield piece
                if left is not None and left <= 0:
                    return
            files.pop(0)[0].close()
            if present and options.follow and log is not None and not log.ended:
                files.append((path.open("rb"), True))  # it was rotated
    finally:
        for file, _ in files:
            file.close()


def _starts(path: Path, lines: int | None) -> list[tuple[Path, int]]:
    """Where to begin in the rotated file and in the present one."""
    both = (path, _rotated(path))
    if lines is None:
        return [(each, 0) for each in reversed(both)]
    starts = []
    for each in both:
        start, lines = _tail_start(each, lines)
        starts.append((each, start))
    return starts[::-1]


async def _read_file(
    file: BinaryIO, path: Path | None, options: LogOptions, log: ContainerLog | None
) -> AsyncIterator[bytes]:
    """The wanted text of a file to its end; of the present one, as long as it is followed."""
    rest = b""
    while True:
        ended = log is None or log.ended
        data = file.read(_CHUNK)
        *lines, rest = (rest + data).split(b"\n")
        if piece := b"".join(_shown(lines, options)):
            yield piece
        if data:
            await anyio.lowlevel.checkpoint()
            continue
        if path is None or not options.follow or ended:
            return
        assert log is not None
        try:
            if os.stat(path).st_ino != os.fstat(file.fileno()).st_ino:  # noqa: PTH116 - no wait
                return
        except FileNotFoundError:
            return
        await log.changed()


def _shown(lines: list[bytes], options: LogOptions) -> Iterator[bytes]:
    for line in lines:
        parsed = _LINE.fullmatch(line)
        if parsed is None:
            continue
        at, stream, full, text = parsed.groups()
        if options.stream not in ("All", "", stream.decode().capitalize()):
            continue
        if options.since is not None and _seconds(at) < options.since:
            continue
        end = b"\n" if full == b"F" else b""
        yield (at + b" " if options.timestamps else b"") + text + end


def _seconds(at: bytes) -> float:
    text, _, fraction = at.decode().rstrip("Z").partition(".")
    return parse_time(text + "Z") + float(f"0.{fraction or 0}")


def _tail_start(path: Path, lines: int) -> tuple[int, int]:
    """Where the last lines of a file begin, and how many more the one before it should give."""
    try:
        at = path.stat().st_size
        file = path.open("rb")
    except FileNotFoundError:
        return 0, lines
    with file:
        missing = lines + 1  # the end of the last line counts, too
        while at > 0:
            size = min(_CHUNK, at)
            file.seek(at - size)
            data = file.read(size)
            stop = len(data)
            while missing and (stop := data.rfind(b"\n", 0, stop)) >= 0:
                missing -= 1
            if not missing:
                return at - size + stop + 1, 0
            at -= size
        return 0, missing - 1
