"""YAML as Kubernetes reads it, into JSON data, event by event.

The data are built from parser events instead of the library's loader, which would block the
interpreter for seconds with a large body, even in a thread, and has no limits.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import yaml

from kueuelib.embedded.http.unreadable import Unreadable, not_yaml
from kueuelib.errors import BadRequest

NODE_LIMIT: Final = 200_000
DEPTH: Final = 1000
SECONDS: Final = 5.0
"""Processor time of this thread, so that a busy machine refuses no more than an idle one."""
_LOOK_EVERY: Final = 1024
"""The number of events between two reads of the clock."""
_PREFIX: Final = "tag:yaml.org,2002:"
_COLLECTIONS: Final = {yaml.MappingStartEvent: "map", yaml.SequenceStartEvent: "seq"}
_NUMBERS: Final = (f"{_PREFIX}int", f"{_PREFIX}float")
_TEXT, _MERGE = f"{_PREFIX}str", f"{_PREFIX}merge"


class _Loader(yaml.CSafeLoader):
    """Times stay texts, and `y` is true."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_PREFIX}timestamp"]
    for letter, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


_Loader.add_implicit_resolver(f"{_PREFIX}bool", re.compile(r"^[ynYN]$"), list("ynYN"))
_Loader.bool_values = {**yaml.CSafeLoader.bool_values, "y": True, "n": False}
_TOO_DEEP: Final = "error parsing YAML: exceeded max depth"
_BECAUSE: Final = (yaml.YAMLError, ValueError, KeyError)
"""The exceptions for malformed YAML; the last two are for values that do not match their tag."""


class _Merge:
    """The key `<<`."""


def parse_yaml(body: bytes) -> Any:
    """One YAML document as JSON data; None for none.

    Raises:
        BadRequest: it is malformed, there are several, or it goes beyond a limit.
    """
    try:
        documents = list(_Builder(body).documents())
    except RecursionError as error:
        raise BadRequest(_TOO_DEEP) from error
    except _BECAUSE as error:
        raise not_yaml(error) from error
    if len(documents) > 1:
        raise BadRequest("error parsing YAML: expected a single document in the stream")
    return documents[0] if documents else None


def parse_yaml_stream(body: bytes) -> list[Any]:
    """Several YAML documents as JSON data.

    Raises:
        BadRequest: one is malformed, or goes beyond a limit, also by its aliases.
    """
    try:
        return list(_Builder(body).documents())
    except RecursionError as error:
        raise BadRequest(_TOO_DEEP) from error
    except _BECAUSE as error:
        raise BadRequest(f"error parsing YAML: {' '.join(str(error).split())}") from error


class _Builder:
    """Builds JSON data from the events of one body."""

    def __init__(self, body: bytes) -> None:
        self._loader = _Loader(body)
        self._until = time.thread_time() + SECONDS
        self._events = 0
        self._nodes = 0
        self._depth = 0
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        self._plain: dict[str, Any] = {}

    def documents(self) -> Iterator[Any]:
        """The documents in order."""
        while True:
            event = self._next()
            if isinstance(event, yaml.StreamEndEvent):
                return
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                self._nodes = 0
                document = self._value(self._next())
                yield "<<" if document is _Merge else document

    def _next(self) -> Any:
        self._events += 1
        if self._events % _LOOK_EVERY == 0 and time.thread_time() > self._until:
            raise BadRequest(f"error parsing YAML: it takes more than {SECONDS:g} s of processor")
        return self._loader.get_event()

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > NODE_LIMIT:
            raise BadRequest("yaml: document contains excessive aliasing: too many values")

    def _value(self, event: Any) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor)
        self._count(1)
        if event.anchor:
            self._anchors[event.anchor] = None
        before = self._nodes
        value = self._scalar(event) if isinstance(event, yaml.ScalarEvent) else self._inside(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._nodes - before + 1)
        return value

    def _alias(self, anchor: str | None) -> Any:
        if anchor is None or anchor not in self._anchors:
            raise BadRequest(f"error parsing YAML: unknown anchor '{anchor}' referenced")
        known = self._anchors[anchor]
        if known is None:
            raise BadRequest(f"error parsing YAML: anchor '{anchor}' value contains itself")
        self._count(known[1])
        return _copied(known[0])

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        is_plain = event.tag is None and event.implicit[0]
        if is_plain and text in self._plain:
            return self._plain[text]
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)  # type: ignore[no-untyped-call]
        if tag == _TEXT:
            value: Any = text
        elif tag == _MERGE:
            value = _Merge
        elif ":" in text and tag in _NUMBERS and event.tag is None:
            value = text  # 1:30 is ninety in YAML 1.1, but not in Go
        else:
            node = yaml.ScalarNode(tag, text, event.start_mark, event.end_mark)
            value = self._loader.construct_object(node)
            if isinstance(value, float) and not math.isfinite(value):
                shown = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
                raise Unreadable(f"json: unsupported value: {shown}", is_yaml=True)
            if value is not None and not isinstance(value, str | int | float | bool):
                kind = type(value).__name__
                raise BadRequest(f"error parsing YAML: a {kind} is not a JSON value")
        if is_plain:
            self._plain[text] = value
        return value

    def _inside(self, event: Any) -> Any:
        wanted = f"{_PREFIX}{_COLLECTIONS[type(event)]}"
        if event.tag not in (None, "!", wanted):
            raise BadRequest(f"error parsing YAML: {event.tag} is not a JSON value")
        self._depth += 1
        if self._depth > DEPTH:
            raise BadRequest(_TOO_DEEP)
        collection = self._list() if isinstance(event, yaml.SequenceStartEvent) else self._map()
        self._depth -= 1
        return collection

    def _list(self) -> list[Any]:
        items = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            value = self._value(event)
            items.append("<<" if value is _Merge else value)
        return items

    def _map(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, value = self._value(event), self._value(self._next())
            value = "<<" if value is _Merge else value
            if key is _Merge:
                for each in value[::-1] if isinstance(value, list) else [value]:
                    if not isinstance(each, dict):
                        raise BadRequest("error parsing YAML: map merge requires map or sequence")
                    merged.update(each)
            elif isinstance(key, dict | list):
                raise BadRequest("error parsing YAML: a key is not a JSON value")
            else:
                fields[key if isinstance(key, str) else json.dumps(key)] = value
        return {**merged, **fields} if merged else fields


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value
