"""Which events are written, counted or dropped (spec/framework 6, the core/v1 correlator)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, get_args

import attrs

from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.errors import ConfigError
from kueuelib.machinery.rate_limits import TokenBucket

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
    return _fitting(text, MAX_MESSAGE)


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

    @cached_property
    def source(self) -> Hashable:
        """Reporter and subject: the unit of the spam filter."""
        return (self.component, self.instance, *map(self.regarding.get, _REFERENCE))


_REFERENCE = ("apiVersion", "kind", "namespace", "name", "uid", "fieldPath")


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


@attrs.define
class _Series:
    obj: Obj
    count: int


@attrs.define
class _Similar:
    messages: dict[str, None]
    last: float


class _Recent(Generic[V]):
    """The most recently used entries, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def set(self, key: Hashable, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop(self, key: Hashable) -> V | None:
        return self._entries.pop(key, None)


class EventSeries:
    """Turns facts into writes.

    Repeated facts patch the count of the first event. More than `similar` different messages
    of one kind within `window` seconds share one event. One source may write `burst` events about
    one object, then one per `refill` seconds; the rest is dropped, though still counted.

    All `now` are seconds since the epoch: they are written into the events.
    """

    def __init__(
        self,
        *,
        similar: int = 10,
        window: float = 600.0,
        burst: int = 25,
        refill: float = 300.0,
        remembered: int = 4096,
    ) -> None:
        self._similar, self._window = similar, window
        self._burst, self._refill = burst, refill
        self._series: _Recent[_Series] = _Recent(remembered)
        self._groups: _Recent[_Similar] = _Recent(remembered)
        self._buckets: _Recent[TokenBucket] = _Recent(remembered)
        self._last_nano = 0
        self.dropped = 0

    def record(self, facts: EventFacts, now: float) -> CreateEvent | PatchEvent | None:
        """The write for one more occurrence, or None when the spam filter drops it."""
        key, message = self._grouped(facts, now)
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            changes = {"count": series.count, "lastTimestamp": format_time(now), "message": message}
            series.obj = {**series.obj, **changes}
        if not self._bucket(facts).take(now):
            self.dropped += 1
            return None
        if series is not None:
            meta = series.obj["metadata"]
            return PatchEvent(key, ObjectKey(meta["namespace"], meta["name"]), changes)
        obj = self._event(facts, message, now)
        self._series.set(key, _Series(obj, 1))
        return CreateEvent(key, obj)

    def lost(self, series: Hashable, now: float) -> CreateEvent | None:
        """The server does not have the event of a series, or refused it: start again.

        Returns:
            the event as it stands, under a new name, to be created once; None when forgotten.
        """
        former = self._series.drop(series)
        if former is None:
            return None
        meta = former.obj["metadata"]
        name = self._name(former.obj["involvedObject"]["name"], now)
        obj = {**former.obj, "metadata": {**meta, "name": name}}
        self._series.set(series, _Series(obj, former.count))
        return CreateEvent(series, obj)

    def forget(self, series: Hashable) -> None:
        """The server does not accept this event: the next occurrence starts a new series."""
        self._series.drop(series)

    def _grouped(self, facts: EventFacts, now: float) -> tuple[Hashable, str]:
        kind = (facts.source, facts.type, facts.reason)
        group = self._groups.get(kind)
        if group is None or now - group.last > self._window:
            group = _Similar({}, now)
            self._groups.set(kind, group)
        group.last = now
        group.messages[facts.message] = None
        if len(group.messages) <= self._similar:
            return (kind, facts.message), facts.message
        del group.messages[next(iter(group.messages))]
        return kind, _fitting_message(COMBINED + facts.message)

    def _bucket(self, facts: EventFacts) -> TokenBucket:
        bucket = self._buckets.get(facts.source)
        if bucket is None:
            bucket = TokenBucket(1.0 / self._refill, self._burst)
            self._buckets.set(facts.source, bucket)
        return bucket

    def _event(self, facts: EventFacts, message: str, now: float) -> Obj:
        namespace = facts.regarding.get("namespace") or "default"
        at = format_time(now)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "namespace": namespace,
                "name": self._name(facts.regarding["name"], now),
            },
            "involvedObject": dict(facts.regarding),
            "type": facts.type,
            "reason": facts.reason,
            "message": message,
            "source": {"component": facts.component},
            "reportingComponent": facts.component,
            "reportingInstance": facts.instance[:128],
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }

    def _name(self, name: str, now: float) -> str:
        self._last_nano = max(int(now * 1e9), self._last_nano + 1)
        return f"{name[:235]}.{self._last_nano:x}"
