"""Timestamps and durations."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache
from zoneinfo import ZoneInfo

from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.types import Library
from kueuelib.embedded.cel.values import NANO, CelDuration, Timestamp, moment, span
from kueuelib.embedded.schema.formats import problem

_FRACTION = re.compile(r"[.,](\d{1,9})")
_SPAN = re.compile(r"(\d{0,30})(?:\.(\d{0,30}))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 10**6,
    "s": NANO,
    "m": 60 * NANO,
    "h": 3600 * NANO,
}
_OFFSET = re.compile(r"([+-]?)(\d{1,2}):(\d\d)", re.ASCII)
_LONGEST = 64
"""So many letters of a text may be a time."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def parse_timestamp(text: str) -> Timestamp:
    """Parse RFC 3339.

    Raises:
        EvalError: it is not valid.
    """
    if why := problem(text[:_LONGEST]):
        raise EvalError(why)
    zone = "+00:00" if text.endswith("Z") else text[-6:]
    seconds = dt.datetime.fromisoformat(text[:19] + zone) - _EPOCH
    fraction = _FRACTION.search(text)
    nanos = int(fraction[1].ljust(9, "0")) if fraction else 0
    return moment(seconds // dt.timedelta(seconds=1) * NANO + nanos)


def parse_duration(text: str) -> CelDuration:
    """Parse a Go duration: `1h30m`, `-1.5s`, `0`.

    Raises:
        EvalError: it is not valid.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return CelDuration(0)
    position, nanos = 0, 0
    while position < len(body):
        match = _SPAN.match(body, position)
        if match is None or not (match[1] or match[2]):
            break
        unit = _UNITS[match[3]]
        nanos += int(match[1] or "0") * unit
        if match[2]:
            nanos += int(match[2]) * unit // 10 ** len(match[2])
        position = match.end()
    if not body or position < len(body) or len(text) > 200:
        raise EvalError(f'time: invalid duration "{text[:60]}"')
    return span(-nanos if text.startswith("-") else nanos)


def format_timestamp(value: Timestamp) -> str:
    """RFC 3339 in UTC with as many digits of the second as needed."""
    seconds, nanos = divmod(value.nanos, NANO)
    at = _EPOCH + dt.timedelta(seconds=seconds)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{at.year:04}-{at:%m-%dT%H:%M:%S}{fraction}Z"


def format_duration(value: CelDuration) -> str:
    """Seconds: `90s`, `-1.5s`."""
    seconds, nanos = divmod(abs(value.nanos), NANO)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{'-' if value.nanos < 0 else ''}{seconds}{fraction}s"


@lru_cache(maxsize=64)
def _zone(name: str) -> dt.tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes >= 24 * 60 or int(offset[3]) > 59:
            raise EvalError(f"unknown time zone {name}")
        return dt.timezone(dt.timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name in ("", "UTC"):
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise EvalError(f"unknown time zone {name[:60]}") from None


def _local(value: Timestamp, zone: str) -> dt.datetime:
    try:
        return (_EPOCH + dt.timedelta(seconds=value.nanos // NANO)).astimezone(_zone(zone))
    except OverflowError:
        raise EvalError("timestamp overflow") from None


_PARTS: dict[str, Callable[[dt.datetime], int]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
}
_TOTALS = {"getHours": 3600 * NANO, "getMinutes": 60 * NANO, "getSeconds": NANO}


def _part(read: Callable[[dt.datetime], int]) -> Callable[..., int]:
    return lambda value, zone="UTC": read(_local(value, zone))


def _whole(unit: int) -> Callable[[CelDuration], int]:
    return lambda value: value.nanos // unit if value.nanos >= 0 else -(-value.nanos // unit)


def add_times(library: Library) -> None:
    """Adds the accessors."""
    for name, read in _PARTS.items():
        library.method(name, "timestamp", "int", _part(read))
        library.method(name, "timestamp;string", "int", _part(read))
    for name, unit in _TOTALS.items():
        library.method(name, "duration", "int", _whole(unit))
    millis = lambda value, _="UTC": value.nanos % NANO // 10**6  # noqa: E731
    library.method("getMilliseconds", "timestamp", "int", millis)
    library.method("getMilliseconds", "timestamp;string", "int", millis)
    library.method("getMilliseconds", "duration", "int", _whole(10**6))
