"""Parses the bytes of a request, JSON or protobuf, as JSON data."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.http.yaml_bodies import (
    UnreadableBody,
    mended,
    not_json,
    parse_yaml,
    unrecognized,
)
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.schema.messages import has_wire_form, message_name, own_fields
from kueuelib.embedded.schema.mismatch import HEAD, json_type
from kueuelib.errors import BadRequest, UnsupportedMediaType

# ---- bodies in Kubernetes' protobuf form, which typed Go clients send for built-in kinds ---------
# Only reading is needed: every such client, including kubectl, also accepts JSON answers. The
# numbers of the fields are those of `kueuelib.embedded.schema.messages`.

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_DEPTH = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = tuple[str, str]
"""The JSON name and the type."""


@cache
def _message_fields(name: str) -> dict[int, Field]:
    return {each.number: (each.name, each.form + each.type) for each in own_fields(name)}


def parse_protobuf(body: bytes) -> Obj:
    """A body as JSON data.

    Raises:
        BadRequest: it is malformed.
        UnsupportedMediaType: its kind can only be read from JSON or YAML.
    """
    if not body.startswith(_MAGIC):
        raise BadRequest("provided data does not appear to be a protobuf message, expected prefix")
    head: Obj = {}
    raw = b""
    for number, value in _fields(memoryview(body)[len(_MAGIC) :]):
        if number == 1 and not isinstance(value, int):
            head = {
                {1: "apiVersion", 2: "kind"}.get(inner, ""): _text(each)
                for inner, each in _fields(value)
            }
        elif number == 2 and not isinstance(value, int):
            raw = bytes(value)
    name = _message_of(head.get("apiVersion", ""), head.get("kind", ""))
    if not has_wire_form(name):
        raise UnsupportedMediaType(
            f"{head.get('kind')} cannot be read from protobuf here - accepted media types "
            "include: application/json, application/yaml"
        )
    return {**head, **_message(name, memoryview(raw), 0)}


def _message_of(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return "meta.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    return message_name(group, kind) if version == "v1" else ""


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: an integer, or the bytes of anything longer."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: int | memoryview
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _BYTES:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
            value, at = int.from_bytes(data[at : at + length], "little"), at + length
        else:
            raise BadRequest(f"malformed protobuf: wire type {wire}")
        if at > end or not number:
            raise BadRequest("malformed protobuf: it ends too early")
        yield number, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    while shift < 70:
        if at >= len(data):
            raise BadRequest("malformed protobuf: it ends too early")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & (2**64 - 1), at
        shift += 7
    raise BadRequest("malformed protobuf: a number is too long")


def _text(value: int | memoryview) -> str:
    if isinstance(value, int):
        raise BadRequest("malformed protobuf: a text is expected")
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("malformed protobuf: a text is not UTF-8") from error


def _message(name: str, data: memoryview, depth: int) -> Obj:
    if depth > _DEPTH:
        raise BadRequest("malformed protobuf: it is nested too deeply")
    known = _message_fields(name)
    fields: Obj = {}
    for number, value in _fields(data):
        field = known.get(number)
        if field is None:
            continue
        key, type_ = field
        if type_.startswith("^"):
            fields.update(_message(type_[1:], _inner(value), depth + 1))
        elif type_.startswith("+"):
            fields.setdefault(key, []).extend(_items(type_[1:], value, depth))
        elif type_.startswith("%"):
            name_, each = _entry(type_[1:], value, depth)
            fields.setdefault(key, {})[name_] = each
        else:
            optional = type_.startswith("*")
            decoded = _value(type_.removeprefix("*"), value, depth)
            if decoded is not None and (optional or decoded not in ("", 0, False, {})):
                fields[key] = decoded
    return fields


def _inner(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise BadRequest("malformed protobuf: a message is expected")
    return value


def _items(type_: str, value: int | memoryview, depth: int) -> list[Any]:
    if type_ in ("i", "l", "b") and not isinstance(value, int):
        packed, at = [], 0
        while at < len(value):
            each, at = _varint(value, at)
            packed.append(_value(type_, each, depth))
        return packed
    return [_value(type_, value, depth)]


def _entry(type_: str, value: int | memoryview, depth: int) -> tuple[str, Any]:
    key: str = ""
    decoded: Any = [] if type_.startswith("&") else "" if type_ in ("s", "B") else {}
    for number, each in _fields(_inner(value)):
        if number == 1:
            key = _text(each)
        elif number == 2:
            decoded = _value(type_, each, depth)
    return key, decoded


def _value(type_: str, value: int | memoryview, depth: int) -> Any:
    if type_ == "s":
        return _text(value)
    if type_ in ("i", "l", "b"):
        if not isinstance(value, int):
            raise BadRequest("malformed protobuf: a number is expected")
        return bool(value) if type_ == "b" else value - 2**64 if value >= 2**63 else value
    inner = _inner(value)
    if type_ == "B":
        return base64.b64encode(inner).decode()
    if type_ in _SPECIAL:
        return _SPECIAL[type_](dict(_fields(inner)))
    if type_.startswith("&"):
        return [_value(type_[1:], each, depth) for number, each in _fields(inner) if number == 1]
    return _message(type_, inner, depth + 1)


Parts = dict[int, "int | memoryview"]


def _time(parts: Parts) -> str | None:
    moment = _moment(parts)
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(parts: Parts) -> str | None:
    moment = _moment(parts)
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(parts: Parts) -> datetime | None:
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise BadRequest("malformed protobuf: a time is expected")
    if not seconds and not nanos:
        return None
    signed = seconds - 2**64 if seconds >= 2**63 else seconds
    try:
        moment = datetime.fromtimestamp(signed, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # Go's zero time lies before the years that exist here
    return moment.replace(microsecond=min(nanos // 1000, 999_999))


def _int_or_string(parts: Parts) -> int | str:
    if parts.get(1):
        return _text(parts.get(3, memoryview(b"")))
    number = _value("i", parts.get(2, 0), 0)
    assert isinstance(number, int)
    return number


def _raw(parts: Parts) -> Any:
    body = _inner(parts.get(1, memoryview(b"")))
    if not body:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"malformed protobuf: {error}") from error


_SPECIAL: dict[str, Any] = {
    "q": lambda parts: _text(parts.get(1, memoryview(b""))) or "0",
    "t": _time,
    "u": _micro_time,
    "o": _int_or_string,
    "r": _raw,
    "F": _raw,
}


# --------------------------------------------------------------------------------------------------

LIMIT = 3 * 2**20
JSON_TYPES = ("application/json", "text/json")
_FIELD_ENDS = re.compile(rb'"\s*:')
_HEAD = ("apiversion", "kind")
YAML_TYPES = ("application/yaml", "text/yaml", "application/apply-patch+yaml")


def media_type(content_type: str) -> str:
    """A `Content-Type` without parameters."""
    return content_type.partition(";")[0].strip().lower()


def parse(body: bytes, content_type: str, *, notice_duplicates: bool) -> tuple[Any, list[str]]:
    """The data, and texts about duplicate fields.

    Args:
        body: the bytes.
        content_type: of the request; empty means JSON.
        notice_duplicates: whether to search for duplicates, which takes time.

    Raises:
        BadRequest: the body is malformed.
    """
    media = media_type(content_type)
    if media == MEDIA_TYPE:
        return parse_protobuf(body), []
    if media in YAML_TYPES and not body.lstrip().startswith(b"{"):
        return parse_yaml(body), []
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if media in YAML_TYPES:
            return parse_yaml(body), []
        body = mended(body)
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise not_json(body) from error
    return data, _duplicates(body, data) if notice_duplicates else []


def check_object_type(content_type: str) -> None:
    """Check the type of a body that is not a patch.

    Raises:
        UnsupportedMediaType: it is neither JSON nor YAML nor protobuf, or that of a patch.
    """
    if media_type(content_type) not in ("", *JSON_TYPES, *YAML_TYPES[:2], MEDIA_TYPE):
        shown = (JSON_TYPES[0], YAML_TYPES[0], MEDIA_TYPE)
        raise failures.unsupported_media_type(shown)


def check_head(body: bytes, data: Any, kind: Kind, *, validated: bool) -> None:
    """Check the version and kind of an object, before anything else.

    Args:
        body: the bytes.
        data: the same, decoded.
        kind: the expected kind.
        validated: whether fields are validated, for the message about a custom kind.

    Raises:
        BadRequest: it is not an object, or has a version or kind that is not text.
    """
    if isinstance(data, dict):
        heads = (key for key in data if key.lower() in _HEAD)
        wrong = next((key for key in heads if not isinstance(data[key], str | None)), None)
        if wrong is None:
            if not kind.builtin:
                _check_custom(body, data, kind.kind, validated=validated)
            return
        data, into = data[wrong], f"struct field .{wrong} of type string"
    elif data is None:
        return
    else:
        into = f"value of type {HEAD}"
    why = f"json: cannot unmarshal {json_type(data)} into Go {into}"
    raise UnreadableBody(why).of_object(body, kind.kind)


def _check_custom(body: bytes, data: Any, kind: str, *, validated: bool) -> None:
    """Check that a custom object names its version and kind."""
    if not data.get("kind"):
        why = f"Object 'Kind' is missing in '{body.decode(errors='replace')}'"
        if validated:
            raise BadRequest(unrecognized(body, kind, why))
        raise BadRequest(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')
    if data.get("apiVersion", "") is None:
        why = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
        raise BadRequest(f'{kind} in version "" cannot be handled as a {kind}: {why}')


class _Pairs(list[tuple[str, Any]]):
    """An object whose fields are kept in order, including duplicates."""


def _is_unique(body: bytes, data: Any) -> bool:
    """Whether there are certainly no duplicate fields.

    Every field ends with a quotation mark and a colon, and the decoded data have a duplicate only
    once.
    """
    if b"\\" in body:
        return False  # a text may look like the end of a field
    try:
        kept = orjson.dumps(data)
    except orjson.JSONEncodeError:
        return False  # nested too deeply, for example
    return len(_FIELD_ENDS.findall(body)) == len(_FIELD_ENDS.findall(kept))


def _duplicates(body: bytes, data: Any) -> list[str]:
    if _is_unique(body, data):
        return []
    duplicates: list[str] = []
    _find(json.loads(body, object_pairs_hook=_Pairs), "", duplicates)
    return duplicates


def _find(value: Any, path: str, duplicates: list[str]) -> None:
    if isinstance(value, _Pairs):
        known: set[str] = set()
        for key, inner in value:
            where = f"{path}.{key}" if path else key
            if key in known:
                duplicates.append(f'duplicate field "{where}"')
            known.add(key)
            _find(inner, where, duplicates)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _find(inner, f"{path}[{i}]", duplicates)
