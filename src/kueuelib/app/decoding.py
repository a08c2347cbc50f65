"""Strict decoding of YAML into attrs classes, with errors that name file, key and fix."""

from __future__ import annotations

import difflib
import re
import types
import typing
from typing import Any, Final, TypeVar

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.app.refusals import Refusal
from kueuelib.errors import InvalidQuantity

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


def decode(cls: type[T], content: dict[str, Any], path: str, refusals: list[Refusal]) -> T:
    """An attrs class from a mapping with camelCase keys, strictly.

    Args:
        cls: the class; a key that is refused has its default.
        content: the mapping.
        path: of the mapping.
        refusals: what is refused is appended to it.
    """
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
            refusals.append(Refusal(f"unknown key {where}", fix))
        elif value is not None:
            decoded = _value(hints[fields[key]], value, where, refusals)
            if decoded is not _UNFIT:
                values[fields[key]] = decoded
    return cls(**values)


_UNFIT: Final = object()
"""Instead of a value that is refused."""
_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def _value(hint: Any, value: Any, where: str, refusals: list[Refusal]) -> Any:
    """The value, or `_UNFIT`."""

    def unfit(problem: str, fix: str) -> Any:
        refusals.append(Refusal(f"{where}{problem}", fix))
        return _UNFIT

    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (hint,) = [member for member in typing.get_args(hint) if member is not types.NoneType]
        origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list):
            return unfit(" must be a list", "write one item per line, with -")
        item = typing.get_args(hint)[0]
        items = [_value(item, part, f"{where}[{i}]", refusals) for i, part in enumerate(value)]
        return _UNFIT if _UNFIT in items else tuple(items)  # the others keep their numbers
    if hint is Quantity:
        try:
            return Quantity.parse(value)
        except InvalidQuantity as error:
            problem, _, fix = str(error).partition("; ")
            return unfit(f": {problem}", fix)
    if (origin is not None or attrs.has(hint)) and not isinstance(value, dict):
        return unfit(" must be a mapping", "write its fields below it")
    if origin is not None:
        item = typing.get_args(hint)[1]
        if item is Any:
            return value
        parts = {str(k): _value(item, v, f"{where}[{k}]", refusals) for k, v in value.items()}
        return {name: part for name, part in parts.items() if part is not _UNFIT}
    if attrs.has(hint):
        return decode(hint, value, where, refusals)
    if hint is Duration:
        try:
            return parse_duration(value if isinstance(value, str) else "")
        except ValueError:
            return unfit(f" must be a duration, not {value!r}", "write for example 5m")
    numeric = hint is float and type(value) is int
    if type(value) is not hint and not numeric:
        return unfit(f" must be {_WORDS[hint]}, not {value!r}", "correct the value")
    return hint(value)
