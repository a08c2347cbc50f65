"""Reads a recording: its parts in order, their lines one by one, and the errors in them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Any

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.errors import ConfigError

# The files of a recording: FILE is written to, FILE.1, FILE.2, ... are older parts in order.


def older_parts(path: Path) -> list[Path]:
    """The older parts of a recording, the oldest first."""
    numbered = [
        (int(number), each)
        for each in path.parent.glob(f"{escape(path.name)}.*")
        if (number := each.name[len(path.name) + 1 :]).isdecimal()
    ]
    return [each for _, each in sorted(numbered)]


def parts_of(path: Path) -> list[Path]:
    """All parts of a recording in order; a part alone when it is named itself."""
    return [*older_parts(path), *([path] if path.exists() else [])]


def put_aside(path: Path, keep: int) -> None:
    """Makes FILE an older part, and removes the oldest ones.

    Args:
        path: the recording; nothing happens when it does not exist.
        keep: how many files there may be, the next FILE included.

    Raises:
        OSError: a file cannot be renamed or removed.
    """
    older = older_parts(path)
    if path.exists():
        number = int(older[-1].suffix[1:]) + 1 if older else 1
        target = path.with_name(f"{path.name}.{number}")
        path.rename(target)
        older.append(target)
    for each in older[: max(0, len(older) + 1 - keep)]:
        each.unlink()


# --------------------------------------------------------------------------------------------------

FORMAT = 1
"""The version of the format that `writer` writes."""
_CHUNK = 2**10
END_OF_TIME = 253_370_764_800.0
"""The year 9999 in seconds since the epoch; objects cannot express later times."""
_FIX = "give a recording as the manager wrote it"


@attrs.frozen
class LinePosition:
    """A line of a recording.

    Attributes:
        file: its file.
        line: its number in the file, from 1.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def wrong(self, field: str, reason: str, fix: str = _FIX) -> ConfigError:
        """The error for a line."""
        return ConfigError(str(self), f"{field}: {reason}" if field else reason, fix)


@attrs.frozen
class Begin:
    """The first line of a part.

    Attributes:
        where: the line.
        form: the version of the format.
        at: when the part began, in seconds since the epoch.
        life: identifies the parts of one engine.
        part: its number among them, from 1.
        by: `manager`, or `watches` if nothing was decided.
        hash: of all plans of the parts before.
        configuration: the manager's settings for decisions and times.
        hashed: whether names were replaced.
        version: of the program that wrote it.
    """

    where: LinePosition
    form: int
    at: float
    life: str
    part: int
    by: str
    hash: str
    configuration: Obj
    hashed: bool
    version: str


@attrs.frozen
class FactLine:
    """A fact.

    Attributes:
        where: the line.
        at: when the engine received it, in seconds since the epoch.
        fact: the kind.
        of: its subject, as JSON.
        again: whether earlier parts contain it, too.
    """

    where: LinePosition
    at: float
    fact: str
    of: Any
    again: bool


@attrs.frozen
class Looked:
    """The engine was asked for a cycle; `heads` is the number of heads, None without a cycle."""

    where: LinePosition
    at: float
    heads: int | None


@attrs.frozen
class PlanLine:
    """A plan was carried out.

    Attributes:
        where: the line.
        at: when, in seconds since the epoch.
        plan: as JSON.
        hash: of it and all plans before.
        room: the workload for which room was made outside a cycle; None: a cycle decided.
    """

    where: LinePosition
    at: float
    plan: Obj
    hash: str
    room: ObjectKey | None


Line = Begin | FactLine | Looked | PlanLine


@attrs.define
class Notes:
    """What a reader noticed that does not keep it from going on, as sentences."""

    texts: list[str] = attrs.field(factory=list)


def read(path: Path, notes: Notes) -> Iterator[Line]:
    """The lines of a recording, with those of the parts that belong to it.

    Args:
        path: the file that was recorded to, or one of its older parts, which is then read alone.
        notes: gets the parts that end in the middle, as after a kill.

    Raises:
        ConfigError: a file or a line cannot be read; the message names file, line, field and
            reason.
    """
    parts = parts_of(path)
    if not parts:
        raise ConfigError(str(path), "there is no such file", "give the path of a recording")
    for part in parts:
        yield from _part(part, notes)


def _part(path: Path, notes: Notes) -> Iterator[Line]:
    begun = False
    for line in parse(_texts(path, notes), str(path)):
        begun = True
        yield line
    if not begun:
        notes.texts.append(f"{path}: holds no whole line")


def parse(texts: Iterable[bytes], file: str) -> Iterator[Line]:
    """The lines of one part.

    Args:
        texts: the lines without their ends.
        file: what to call the part in errors.

    Raises:
        ConfigError: a line cannot be read.
    """
    for number, text in enumerate(texts, 1):
        where = LinePosition(file, number)
        try:
            data = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise where.wrong("", "is not valid JSON") from None
        if not isinstance(data, dict):
            raise where.wrong("", "is not a JSON object")
        yield _begin(where, data) if number == 1 else _line(where, data)


def _texts(path: Path, notes: Notes) -> Iterator[bytes]:
    """The whole lines of a file; gzip is recognized by its first bytes."""
    rest, number = b"", 0
    whole = True
    try:
        with path.open("rb") as file:
            plain = file.read(2) != b"\x1f\x8b"
            file.seek(0)
            stream = zlib.decompressobj(wbits=31)
            while chunk := file.read(_CHUNK):
                *lines, rest = (rest + (chunk if plain else stream.decompress(chunk))).split(b"\n")
                number += len(lines)
                yield from lines
            whole = plain or stream.eof
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(path), problem, "give a file that can be read") from error
    except zlib.error:
        where = LinePosition(str(path), number + 1)
        raise where.wrong("", "the compressed data is damaged from here on") from None
    if rest or not whole:
        notes.texts.append(
            f"{path}: ends in the middle, after line {number}, as when a manager is killed"
        )


def _begin(where: LinePosition, data: Obj) -> Begin:
    form = data.get("recording")
    if not isinstance(form, int):
        raise where.wrong(
            "recording", "the first line of a recording has the version of its form here"
        )
    version = _field(where, data, "version", str)
    if form > FORMAT:
        raise where.wrong(
            "recording",
            f"form {form} is newer than {FORMAT}",
            f"replay it with kueuelib {version} or later",
        )
    return Begin(
        where,
        form,
        _number(where, data),
        _field(where, data, "life", str),
        _field(where, data, "part", int),
        _field(where, data, "by", str),
        _field(where, data, "hash", str),
        _field(where, data, "configuration", dict),
        _field(where, data, "hashed", bool),
        version,
    )


def _line(where: LinePosition, data: Obj) -> Line:
    at = _number(where, data)
    if "fact" in data:
        fact = _field(where, data, "fact", str)
        if "of" not in data:
            raise where.wrong("of", "is missing")
        return FactLine(where, at, fact, data["of"], data.get("again") is True)
    if "plan" in data:
        plan, digest = _field(where, data, "plan", dict), _field(where, data, "hash", str)
        return PlanLine(where, at, plan, digest, _room(where, data))
    if "heads" not in data:
        raise where.wrong("", "has neither fact nor heads nor plan")
    heads = data["heads"]
    return Looked(where, at, None if heads is None else _field(where, data, "heads", int))


def _room(where: LinePosition, data: Obj) -> ObjectKey | None:
    room = data.get("room")
    if room is None:
        return None
    if isinstance(room, list) and len(room) == 2 and all(isinstance(one, str) for one in room):
        return ObjectKey(*room)
    raise where.wrong("room", "is not a list of namespace and name")


def _number(where: LinePosition, data: Mapping[str, Any]) -> float:
    seconds = data.get("at")
    if "at" not in data:
        raise where.wrong("at", "is missing")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise where.wrong("at", "is not a number of seconds")
    if not 0 <= seconds < END_OF_TIME:
        raise where.wrong("at", f"{seconds!r} is not a time from 1970 to 9998")
    return float(seconds)


def _field(where: LinePosition, data: Mapping[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    words = {str: "a text", int: "a whole number", bool: "true or false", dict: "an object"}
    raise where.wrong(name, f"is not {words[kind]}" if name in data else "is missing")
