"""Parses times like Go, and says why one is not valid."""

from __future__ import annotations

import re
from typing import Final

from kueuelib.api.meta import parse_time

MICROSECONDS: Final = ".000000"
_DATE: Final = (("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"))
_CLOCK: Final = (("T", "T"), ("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"))
_ZONE: Final = (("Z07:00", r"Z|[+-]\d\d:\d\d"),)
_RANGES: Final = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59)}
_SECONDS: Final = ("second", 0, 59)
_USUAL: Final = {
    fraction: re.compile(
        r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
        rf"{digits}(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
        re.ASCII,
    ).fullmatch
    for fraction, digits in (("", r"(?:[.,]\d+)?"), (MICROSECONDS, r"[.,]\d{6}"))
}
"""What matches is a time, if there is that day."""


def problem(text: str, fraction: str = "") -> str:
    """Why a text is not a time; empty if it is one.

    Args:
        text: of a time.
        fraction: of seconds in the layout; empty if it is optional, or `MICROSECONDS`.
    """
    if _USUAL[fraction](text):
        try:
            parse_time(text)
        except ValueError:
            return f"parsing time {_quoted(text)}: day out of range"
        return ""
    whole = (("05", r"\d\d(?:[.,]\d+)?"),)
    seconds = (("05", r"\d\d"), (fraction, r"[.,]\d{6}")) if fraction else whole
    rest = text
    for name, pattern in (*_DATE, *_CLOCK, *seconds, *_ZONE):
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            layout = f"2006-01-02T15:04:05{fraction}Z07:00"
            at = f"cannot parse {_quoted(rest)} as {_quoted(name)}"
            return f"parsing time {_quoted(text)} as {_quoted(layout)}: {at}"
        unit, low, high = _SECONDS if name == "05" else _RANGES.get(name, ("", 0, 0))
        if unit and not low <= int(match[0][:2]) <= high:
            return f"parsing time {_quoted(text)}: {unit} out of range"
        rest = rest[match.end() :]
    if rest:
        return f"parsing time {_quoted(text)}: extra text: {_quoted(rest)}"
    wrong = "day"
    if text[-6:-5] in ("+", "-"):
        wrong = "time zone offset hour" if text[-5:-3] > "23" else wrong
        wrong = "time zone offset minute" if text[-2:] > "59" else wrong
    return f"parsing time {_quoted(text)}: {wrong} out of range"


def _quoted(text: str) -> str:
    """The text as Go's error message quotes it when it is not a time."""
    shown = text.translate({34: '\\"', 92: "\\\\"}).encode()
    letters = (chr(each) if 32 <= each < 128 else f"\\x{each:02x}" for each in shown)
    return f'"{"".join(letters)}"'
