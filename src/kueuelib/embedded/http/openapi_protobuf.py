"""`/openapi/v2` in protobuf, which kubectl reads before it validates.

The field numbers are those of gnostic's `openapi.v2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

Encode = Callable[[Any], bytes]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _part(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _parts(number: int, values: Iterable[bytes]) -> bytes:
    return b"".join(_part(number, value) for value in values)


def _text(value: str) -> bytes:
    return value.encode()


def _named(number: int, values: Mapping[str, Any], encode: Encode) -> bytes:
    pairs = (_part(1, _text(name)) + _part(2, encode(each)) for name, each in values.items())
    return _parts(number, pairs)


def schema(given: Mapping[str, Any]) -> bytes:
    """A schema, with the parts that clients need to navigate an object."""
    encoded = b""
    for number, name, encode in _FIELDS:
        if name in given:
            encoded += _part(number, encode(given[name]))
    encoded += _parts(19, map(_text, given.get("required") or ()))
    extensions = {name: value for name, value in given.items() if name.startswith("x-")}
    return encoded + _named(31, extensions, lambda value: _part(2, orjson.dumps(value)))


_FIELDS: Final[tuple[tuple[int, str, Encode], ...]] = (
    (1, "$ref", _text),
    (2, "format", _text),
    (4, "description", _text),
    (21, "additionalProperties", lambda it: b"\x10\x01" if it is True else _part(1, schema(it))),
    (22, "type", lambda given: _part(1, _text(given))),
    (23, "items", lambda given: _part(1, schema(given))),
    (25, "properties", lambda given: _named(1, given, schema)),
)


def document(given: Mapping[str, Any]) -> bytes:
    """The document as protobuf: its version, its title and its definitions."""
    info = given["info"]
    return b"".join(
        (
            _part(1, _text(given["swagger"])),
            _part(2, _part(1, _text(info["title"])) + _part(2, _text(info["version"]))),
            _part(8, b""),
            _part(9, _named(1, given["definitions"], schema)),
        )
    )
