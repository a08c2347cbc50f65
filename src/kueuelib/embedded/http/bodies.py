"""Parses the bytes of a request as JSON data."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from kueuelib.embedded import failures
from kueuelib.embedded.http import protobuf
from kueuelib.embedded.http.unreadable import Unreadable, mended, not_json, unrecognized
from kueuelib.embedded.http.yaml_bodies import parse_yaml
from kueuelib.embedded.registry.kind import Kind
from kueuelib.embedded.schema.mismatch import HEAD, json_type
from kueuelib.errors import BadRequest, TooLarge

LIMIT = 3 * 2**20
VALUES = 100_000
"""The maximum number of items and fields in a body, because each is work for the server."""
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
        TooLarge: it has too many values.
    """
    media = media_type(content_type)
    if media == protobuf.MEDIA_TYPE:
        return protobuf.parse_protobuf(body), []
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
    if sum(map(body.count, (b",", b"[", b"{"))) > VALUES and _size(data) > VALUES:
        raise TooLarge(f"Request entity too large: more than {VALUES} values")
    return data, _duplicates(body, data) if notice_duplicates else []


def _size(data: Any) -> int:
    """The number of items and fields."""
    count, rest = 0, [data]
    while rest:
        inner = rest.pop()
        count += len(inner)
        values = inner.values() if isinstance(inner, dict) else inner
        rest += [each for each in values if isinstance(each, dict | list)]
    return count


def check_object_type(content_type: str) -> None:
    """Check the type of a body that is not a patch.

    Raises:
        UnsupportedMediaType: it is neither JSON nor YAML nor protobuf, or that of a patch.
    """
    if media_type(content_type) not in ("", *JSON_TYPES, *YAML_TYPES[:2], protobuf.MEDIA_TYPE):
        shown = (JSON_TYPES[0], YAML_TYPES[0], protobuf.MEDIA_TYPE)
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
    raise Unreadable(why).of_object(body, kind.kind)


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
    seen = False

    def check(pairs: list[tuple[str, Any]]) -> None:
        nonlocal seen
        if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
            seen = True

    json.loads(body, object_pairs_hook=check)
    if not seen:
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
