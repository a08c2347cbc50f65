"""What recurs: which events are written, counted or dropped, and what is logged again."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import attrs

from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.errors import ConfigError
from kueuelib.machinery.backoff import TokenBucket
from kueuelib.machinery.store import once

# ---- what recurs is logged at once, and then once a period with a count --------------------------

PERIOD: Final = 60.0
"""Seconds between two lines of one cause."""
_NAMES: Final = re.compile(r'"[^"]*"|(?<!\w)\'[^\']*\'(?!\w)|\S*[\d/]\S*')
"""What may be a name, an address or a number."""

Line = TypeVar("Line")


@attrs.define(eq=False)
class _Cause(Generic[Line]):
    """What is known of one cause: when its next line is due, and what was left out until then."""

    due: float
    left_out: int = 0
    first: Line | None = None
    last: Line | None = None


class Repetition(Generic[Line]):
    """Decides which lines are logged: of each cause the first one at once, then one each period.

    Counts are exact: the lines that were logged and the numbers of those left out before them sum
    up to the lines that were noted.

    Args:
        period: seconds between two lines of one cause.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._causes: dict[Hashable, _Cause[Line]] = {}

    def note(self, cause: Hashable, line: Line, now: float) -> int | None:
        """How many lines were left out before this one; None if it is left out, too.

        Args:
            cause: which lines are alike.
            line: is returned by `due` if it is the last one that is left out.
            now: seconds, never going back.
        """
        known = self._causes.get(cause)
        if known is not None and now < known.due:
            known.left_out += 1
            known.last = line
            if known.first is None:
                known.first = line
            return None
        self._causes[cause] = _Cause(now + self._period)
        return 0 if known is None else known.left_out

    def due(self, now: float = math.inf) -> list[tuple[Line, Line, int]]:
        """The lines to log at this time, or at the end: for each cause the first and the last one
        that were left out, and how many were left out before the last.
        """
        due: list[tuple[Line, Line, int]] = []
        for cause, known in list(self._causes.items()):
            if now < known.due:
                continue
            if known.first is None or known.last is None:
                del self._causes[cause]
                continue
            due.append((known.first, known.last, known.left_out - 1))
            self._causes[cause] = _Cause(now + self._period)
        return due

    @property
    def next_due(self) -> float:
        """When `due` has the next line; infinity if nothing was left out."""
        return min((each.due for each in self._causes.values() if each.left_out), default=math.inf)


class Recent:
    """Remembers what was said about each subject, so that it is said once a period.

    Args:
        period: seconds.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._said: dict[Hashable, tuple[str, float]] = {}  # in the order of times

    def is_new(self, subject: Hashable, text: str, now: float) -> bool:
        """Whether something else, or nothing, was said last about a subject; if so, this counts as
        said.

        Args:
            subject: what the text is about.
            text: the same one is new again after the period.
            now: seconds, never going back.
        """
        said = self._said
        while said and now - next(iter(said.values()))[1] >= self._period:
            del said[next(iter(said))]
        if subject in said and said[subject][0] == text:
            return False
        said.pop(subject, None)
        said[subject] = text, now
        return True


def cause_of(line: Mapping[str, Any], ignored: frozenset[str]) -> Hashable:
    """What the lines of a cause have in common: all words except names and numbers.

    Names are what is quoted, and words with a digit or a slash.

    Args:
        line: texts and numbers by name.
        ignored: the names of values that do not depend on the cause.
    """
    return tuple(
        (name, _NAMES.sub("*", value) if isinstance(value, str) else None)
        for name, value in line.items()
        if name not in ignored
    )


# --------------------------------------------------------------------------------------------------

V = TypeVar("V")

EventType = Literal["Normal", "Warning"]
_TYPES = get_args(EventType)
MAX_MESSAGE = 1024
"""The longest message, in bytes."""
MAX_REASON = 128
COMBINED = "(combined from similar events): "


def _fitting(text: str, limit: int) -> str:
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "..."


def _fitting_reason(text: str) -> str:
    return _fitting(text, MAX_REASON)


def _fitting_message(text: str) -> str:
    fitting = _fitting(text, MAX_MESSAGE)
    return once(fitting) if type(fitting) is str else fitting


def _check_type(_facts: Any, _attribute: Any, type: str) -> None:
    if type not in _TYPES:
        choice = " or ".join(map(repr, _TYPES))
        raise ConfigError(f"event type {type!r}", "there is no such type", f"write {choice}")


@attrs.frozen
class EventFacts:
    """What happened to an object.

    Attributes:
        regarding: the raw object reference; `kind` and `name` at least.
        type: `Normal` or `Warning`.
        reason: one word in CamelCase, at most 128 bytes.
        message: for people; cut at 1024 bytes.
        component: the reporting component.
        instance: the replica of the component.
    """

    regarding: Mapping[str, Any]
    type: EventType = attrs.field(validator=_check_type)
    reason: str = attrs.field(converter=_fitting_reason)
    message: str = attrs.field(converter=_fitting_message)
    component: str
    instance: str = ""

    @property
    def source(self) -> tuple[Any, ...]:
        """Reporter and subject: the unit of the spam filter."""
        return (self.component, self.instance, *map(self.regarding.get, _REFERENCE))


_REFERENCE = ("apiVersion", "kind", "namespace", "name", "uid", "fieldPath")
_VERSION = "resourceVersion"


@attrs.frozen
class CreateEvent:
    """Create this event. If the server refuses it, call `EventSeries.lost`."""

    series: Hashable
    obj: Obj


@attrs.frozen
class PatchEvent:
    """Merge `patch` into the event `key`. If it is not found, write the result of `lost`."""

    series: Hashable
    key: ObjectKey
    patch: Obj


_Kind = tuple[tuple[Any, ...], EventType, str]
"""Source, type and reason: what similar events have in common."""


@attrs.define(eq=False)
class _Series:
    """An event, as small as it can be: thousands of them are remembered.

    Attributes:
        kind: the part of the event that does not change.
        name: of the event.
        version: of the object at the first occurrence.
        message: of the last occurrence.
        first: the time of the first occurrence.
        last: the time of the last one.
        count: of the occurrences.
    """

    kind: _Kind
    name: str
    version: str | None
    message: str
    first: float
    last: float
    count: int = 1

    @property
    def regarding(self) -> Obj:
        """The reference to the object."""
        values = {**dict(zip(_REFERENCE, self.kind[0][2:], strict=True)), _VERSION: self.version}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def obj(self) -> Obj:
        """The raw event."""
        (component, instance, *_), severity, reason = self.kind
        regarding = self.regarding
        first = format_time(self.first)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": regarding.get("namespace") or "default", "name": self.name},
            "involvedObject": regarding,
            "type": severity,
            "reason": reason,
            "message": self.message,
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": instance[:128],
            "firstTimestamp": first,
            "lastTimestamp": first if self.count == 1 else format_time(self.last),
            "count": self.count,
        }


@attrs.define(eq=False)
class _Similar:
    messages: tuple[str, ...]
    last: float


@attrs.frozen(eq=False)
class _Source:
    """The first of many equal tuples, and its tokens."""

    key: tuple[Any, ...]
    tokens: TokenBucket


class _Recent(Generic[V]):
    """The most recently used entries, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[Hashable, V] = {}  # half as large as an `OrderedDict`

    def get(self, key: Hashable) -> V | None:
        value = self._entries.pop(key, None)
        if value is not None:
            self._entries[key] = value
        return value

    def set(self, key: Hashable, value: V) -> None:
        """Remember a value, after a `get` of its key."""
        self._entries[key] = value
        if len(self._entries) > self._size:
            del self._entries[next(iter(self._entries))]

    def drop(self, key: Hashable) -> V | None:
        return self._entries.pop(key, None)


SIMILAR, WINDOW = 10, 600.0
BURST, REFILL = 25, 300.0
"""The limits of client-go."""


class EventSeries:
    """Turns facts into writes.

    Repeated facts patch the count of the first event. More than `SIMILAR` different messages
    of one kind within `WINDOW` seconds share one event. One source may write `BURST` events about
    one object, then one per `REFILL` seconds; the rest is dropped, though still counted.

    All `now` are seconds since the epoch: they are written into the events.
    """

    def __init__(self, *, remembered: int = 4096) -> None:
        self._series: _Recent[_Series] = _Recent(remembered)
        self._groups: _Recent[_Similar] = _Recent(remembered)
        self._sources: _Recent[_Source] = _Recent(remembered)
        self._last_nano = 0
        self.dropped = 0

    def record(self, facts: EventFacts, now: float) -> CreateEvent | PatchEvent | None:
        """The write for one more occurrence, or None when the spam filter drops it."""
        source = self._source(facts)
        kind = (source.key, facts.type, facts.reason)
        key, message = self._grouped(kind, facts.message, now)
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            series.last, series.message = now, message
        if not source.tokens.take(now):
            self.dropped += 1
            return None
        if series is not None:
            changes = {"count": series.count, "lastTimestamp": format_time(now), "message": message}
            meta = series.obj["metadata"]
            return PatchEvent(key, ObjectKey(meta["namespace"], meta["name"]), changes)
        name = self._name(facts.regarding["name"], now)
        version = facts.regarding.get(_VERSION)
        series = _Series(kind, name, version, message, now, now)
        self._series.set(key, series)
        return CreateEvent(key, series.obj)

    def lost(self, series: Hashable, now: float) -> CreateEvent | None:
        """The server does not have the event of a series, or refused it: start again.

        Returns:
            the event as it stands, under a new name, to be created once; None when forgotten.
        """
        former = self._series.drop(series)
        if former is None:
            return None
        former.name = self._name(former.regarding["name"], now)
        self._series.set(series, former)
        return CreateEvent(series, former.obj)

    def forget(self, series: Hashable) -> None:
        """The server does not accept this event: the next occurrence starts a new series."""
        self._series.drop(series)

    def _grouped(self, kind: _Kind, message: str, now: float) -> tuple[Hashable, str]:
        group = self._groups.get(kind)
        if group is None or now - group.last > WINDOW:
            group = _Similar((), now)
            self._groups.set(kind, group)
        group.last = now
        if message not in group.messages:
            group.messages = (*group.messages, message)
        if len(group.messages) <= SIMILAR:
            return (kind, message), message
        group.messages = group.messages[1:]
        return kind, _fitting_message(COMBINED + message)

    def _source(self, facts: EventFacts) -> _Source:
        key = facts.source
        source = self._sources.get(key)
        if source is None:
            source = _Source(key, TokenBucket(1.0 / REFILL, BURST))
            self._sources.set(key, source)
        return source

    def _name(self, name: str, now: float) -> str:
        self._last_nano = max(int(now * 1e9), self._last_nano + 1)
        return f"{name[:235]}.{self._last_nano:x}"
