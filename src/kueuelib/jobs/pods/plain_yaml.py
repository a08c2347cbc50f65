"""YAML 1.2 as plain values: the core schema, without anchors, tags and duplicate keys.

PyYAML reads YAML 1.1, where `010` is eight, `1:30` ninety, `1_0` ten and `on` true. Annotations are
YAML 1.2 (KEP-976), where `010` is ten and the others are texts. JSON is read as JSON,
because PyYAML treats tabs and characters beyond the first plane differently.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

import yaml

from kueuelib.errors import KueuelibError

LONGEST_NUMBER = 100
"""The maximum number of characters in a number."""

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_SCHEMA = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)"), ("~", "n", "N", "")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), tuple("tTfF")),
    ("int", _INTEGER, tuple("-+0123456789")),
    ("float", _FLOAT, tuple("-+.0123456789")),
)


class NotPlain(KueuelibError):
    """A text that is not YAML 1.2, or more than plain values."""


def read(text: str) -> Any:
    """The value of a text with one document; keys of mappings are always texts.

    Raises:
        NotPlain: it is not YAML, or it has more than plain values: anchors, tags, duplicate keys,
            numbers that are not finite.
    """
    try:
        return _checked(_JSON.decode(text))
    except json.JSONDecodeError:
        pass  # YAML, then
    except RecursionError as error:
        raise NotPlain("it is nested too deeply") from error
    try:
        return _checked(yaml.load(text, _Loader))  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise NotPlain(getattr(error, "problem", None) or "it cannot be parsed") from error
    except RecursionError as error:
        raise NotPlain("it is nested too deeply") from error


def _mapping(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise NotPlain(f"the key {key!r} is given twice")
        mapping[key] = value
    return mapping


def _number(text: str) -> int | float:
    if len(text) > LONGEST_NUMBER:
        raise NotPlain(f"a number has at most {LONGEST_NUMBER} digits")
    if _INTEGER.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_JSON = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=_number, parse_float=_number, parse_constant=_number
)


def _checked(value: Any) -> Any:
    """The value, if all its texts can be stored and all its numbers are finite."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += [*one, *one.values()]
        elif isinstance(one, list):
            rest += one
        elif isinstance(one, str) and any("\ud800" <= each <= "\udfff" for each in one):
            raise NotPlain("half of a surrogate pair is not a character")
        elif isinstance(one, float) and not math.isfinite(one):
            raise NotPlain("a number is not finite")
    return value


class _Loader(yaml.SafeLoader):
    """The core schema on PyYAML's parser."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.events.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.composer.ComposerError(
                problem="anchors and aliases are not allowed", problem_mark=event.start_mark
            )
        if getattr(event, "tag", None):
            raise yaml.composer.ComposerError(
                problem="tags are not allowed", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)

    def number(self, node: Any) -> int | float:
        text: str = self.construct_scalar(node)
        return _number(text)

    def mapping(self, node: Any) -> Any:
        pairs = []
        mapping: dict[str, Any] = {}
        yield mapping
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise NotPlain("a key must be a text, and not a list or a mapping")
            key: Any = self.construct_object(key_node)
            value: Any = self.construct_object(value_node)
            pairs.append((key if isinstance(key, str) else json.dumps(key), value))
        mapping.update(_mapping(pairs))


for _name, _pattern, _first in _SCHEMA:
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    for _letter in _first:
        _Loader.yaml_implicit_resolvers.setdefault(_letter, []).append((_TAG + _name, _whole))
for _name in ("int", "float"):
    _Loader.add_constructor(_TAG + _name, _Loader.number)
_Loader.add_constructor(f"{_TAG}map", _Loader.mapping)
