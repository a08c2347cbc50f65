"""Schedules and time zones of CronJobs, in the words of what Kubernetes reads them with."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator, Mapping
from typing import Final

from kueuelib.embedded.builtins.fields import invalid
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.times import parse_duration

_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: Final[tuple[tuple[int, int, Mapping[str, int]], ...]] = (
    *((0, 59, {}), (0, 23, {}), (1, 31, {})),
    (1, 12, {name: i for i, name in enumerate(_MONTHS, 1)}),
    (0, 6, {name: i for i, name in enumerate(_DAYS)}),
)
"""Lowest and highest number, and names: of minutes, hours, days, months and weekdays."""
_NAMED: Final = (
    *("@yearly", "@annually", "@monthly", "@weekly"),
    *("@daily", "@midnight", "@hourly"),
)
_EVERY: Final = "@every "
_NO_ZONE: Final = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
_EXPLICIT: Final = (
    "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
)
_ZONE_PART: Final = re.compile(r"(?!\.{1,2}$|-)[A-Za-z.\-_0-9+]{1,14}", re.ASCII)


def schedule(at: ValuePlace, _: str) -> BrokenRules:
    """The rule of `schedule`."""
    whys = [next(_problems(at.value), ""), _NO_ZONE if "TZ" in at.value else ""]
    return [invalid(at.path, at.value, why) for why in whys if why]


def time_zone(at: ValuePlace, _: str) -> BrokenRules:
    """The rule of `timeZone`."""
    name = at.value
    if name is None:
        return []
    if not name:
        return [invalid(at.path, name, "timeZone must be nil or non-empty string")]
    if not all(map(_ZONE_PART.fullmatch, name.split("/"))):
        return [invalid(at.path, name, f"unknown time zone {name}")]
    whys = [_EXPLICIT if name.lower() == "local" else "", _zone_problem(name)]
    return [invalid(at.path, name, why) for why in whys if why]


def _zone_problem(name: str) -> str:
    """Why there is no such zone; empty if there is one, or if this machine knows of none."""
    try:
        if name not in ("", "Local"):
            zoneinfo.ZoneInfo(name)
    except zoneinfo.ZoneInfoNotFoundError:
        zones = zoneinfo.available_timezones()
        if any(zone.startswith(f"{name}/") for zone in zones):
            return "is a directory"  # Python says so itself before 3.14
        return f"unknown time zone {name}" if zones else ""
    except ValueError:
        return "malformed time zone information"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _problems(text: str) -> Iterator[str]:
    """What is wrong with a schedule; Kubernetes names the first."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, space, text = text.partition("=")[2].partition(" ")
        if not space:
            yield "invalid schedule format: runtime error: slice bounds out of range [:-1]"
        if why := _zone_problem(zone):
            yield f"provided bad location {zone}: {why}"
    fields = text.split()
    if text.startswith(_EVERY):
        try:
            parse_duration(text.removeprefix(_EVERY))
        except EvalError as error:
            yield f"failed to parse duration {text}: {error}"
    elif text.strip().startswith("@"):
        if text.strip() not in _NAMED:
            yield f"unrecognized descriptor: {text}"
    elif len(fields) != len(_FIELDS):
        given = f"found {len(fields)}: [{' '.join(fields)}]"
        yield f"expected exactly {len(_FIELDS)} fields, {given}"
    else:
        for field, limits in zip(fields, _FIELDS, strict=True):
            for each in filter(None, field.split(",")):
                yield from _range_problems(each, *limits)


def _range_problems(text: str, low: int, high: int, names: Mapping[str, int]) -> Iterator[str]:
    ends, *steps = text.split("/")
    first, *others = ends.split("-")
    start, end, step = low, high, 1
    try:
        if first not in ("*", "?"):
            start = end = _number(first, names)
            if len(others) > 1:
                yield f"too many hyphens: {text}"
            end = _number(others[0], names) if others else high if steps else start
        if len(steps) > 1:
            yield f"too many slashes: {text}"
        step = _number(steps[0], {}) if steps else 1
    except ValueError as error:
        yield str(error)
    for wrong, why in (
        (start < low, f"beginning of range ({start}) below minimum ({low})"),
        (end > high, f"end of range ({end}) above maximum ({high})"),
        (start > end, f"beginning of range ({start}) beyond end of range ({end})"),
        (not step, "step of range should be a positive number"),
    ):
        if wrong:
            yield f"{why}: {text}"


def _number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    fits = re.fullmatch(r"[+-]?[0-9]{1,1000}", text, re.ASCII)
    if not fits or abs(int(text)) >= 2**63:
        why = "value out of range" if fits else "invalid syntax"
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {why}')
    if int(text) < 0:
        raise ValueError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)
