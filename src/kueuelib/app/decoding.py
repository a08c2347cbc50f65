"""Strict decoding of YAML into attrs classes, with errors that name file, key and fix."""

from __future__ import annotations

import difflib
import re
import types
import typing
from typing import Any, TypeVar

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.errors import ConfigError, InvalidQuantity

T = TypeVar("T")


class Duration(float):
    """Seconds, written as a Go duration (`5m`, `1m30s`, `500ms`)."""


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


REFUSED = "refused"
"""In the metadata of a field: its key is known, and every value is refused."""


def parse_duration(text: str) -> Duration:
    """Seconds of a Go duration.

    Raises:
        ValueError: the text is not a duration.
    """
    if text == "0":
        return Duration(0)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 5m or 1m30s")
    return Duration(sum(float(number) * _UNITS[unit] for number, unit in parts))


def camel(name: str) -> str:
    """The key of a field: `lease_duration` is `leaseDuration`."""
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)


def decode(cls: type[T], content: Any, path: str, source: str) -> T:
    """An attrs class from a mapping with camelCase keys, strictly."""
    if not isinstance(content, dict):
        raise ConfigError(source, f"{path} must be a mapping", "write its fields below it")
    hints = typing.get_type_hints(cls)
    fields = {camel(field.name): field.name for field in attrs.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in content.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            refused = {camel(one.name) for one in attrs.fields(cls) if one.metadata.get(REFUSED)}  # type: ignore[arg-type]
            known = sorted(fields.keys() - refused)
            near = difflib.get_close_matches(str(key), known, 1)
            fix = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
            raise ConfigError(source, f"unknown key {where}", fix)
        if value is not None:
            values[fields[key]] = _value(hints[fields[key]], value, where, source)
    return cls(**values)


_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def _value(hint: Any, value: Any, where: str, source: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (hint,) = [member for member in typing.get_args(hint) if member is not types.NoneType]
        origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(source, f"{where} must be a list", "write one item per line, with -")
        item = typing.get_args(hint)[0]
        return tuple(_value(item, part, f"{where}[{i}]", source) for i, part in enumerate(value))
    if origin is not None:
        if not isinstance(value, dict):
            raise ConfigError(source, f"{where} must be a mapping", "write its fields below it")
        item = typing.get_args(hint)[1]
        if item is Any:
            return value
        return {str(k): _value(item, part, f"{where}[{k}]", source) for k, part in value.items()}
    if hint is Quantity:
        try:
            return Quantity.parse(value)
        except InvalidQuantity as error:
            problem, _, fix = str(error).partition("; ")
            raise ConfigError(source, f"{where}: {problem}", fix) from None
    if attrs.has(hint):
        return decode(hint, value, where, source)
    if hint is Duration:
        try:
            return parse_duration(value if isinstance(value, str) else "")
        except ValueError:
            raise ConfigError(
                source, f"{where} must be a duration, not {value!r}", "write for example 5m"
            ) from None
    numeric = hint is float and type(value) is int
    if type(value) is not hint and not numeric:
        raise ConfigError(
            source, f"{where} must be {_WORDS[hint]}, not {value!r}", "correct the value"
        )
    return hint(value)
