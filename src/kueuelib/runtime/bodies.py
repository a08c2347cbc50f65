"""What goes over the wire: URLs, bodies, answers and failures, between values and bytes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

import attrs
import orjson

from kueuelib.api.models import encode_model, is_model
from kueuelib.errors import ApiError, FieldError, InvalidObject, TransportError, api_error
from kueuelib.runtime.framing import Headers

THREAD_DECODE = 256 * 1024
"""Bodies of more bytes are decoded in a worker thread."""
Params = Sequence[tuple[str, str]]
_SAFE: Final = "/:@!$&()*+,;=~"
_PLAIN: Final = re.compile(rf"[\w.\-{_SAFE}]*", re.ASCII)
"""Paths in which nothing is to be quoted: nearly all."""


@attrs.frozen
class Response:
    """An answer; unless it is part of an `ApiError`, a successful one.

    Attributes:
        status: the HTTP status.
        headers: all headers.
        body: the raw body.
    """

    status: int
    headers: Headers
    body: bytes


def target_of(path: str, params: Params) -> str:
    """Path and query of a request, quoted once."""
    quoted = path if _PLAIN.fullmatch(path) else quote(path, safe=_SAFE)
    return f"{quoted}?{_query(tuple(params))}" if params else quoted


@lru_cache(maxsize=256)
def _query(params: Params) -> str:
    return urlencode(params)


def failure(answer: Response) -> ApiError:
    """The error for an answer that is not a success.

    Its body is a `Status`, or anything a proxy may have sent.
    """
    body, retry_after = answer.body, answer.headers.first("Retry-After")
    try:
        decoded = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        decoded = None
    seconds = float(retry_after) if retry_after and retry_after.strip().isdigit() else None
    text = "" if isinstance(decoded, dict) else body[:200].decode("utf-8", "replace").strip()
    error = api_error(
        answer.status,
        decoded if isinstance(decoded, dict) else None,
        text=f"the server answered {answer.status}: {text}" if text else "",
        retry_after=seconds,
    )
    error.answer = answer
    return error


def encode_json(body: object) -> bytes:
    """A body of JSON, in which objects of any form may stand.

    Raises:
        TypeError: something in it is none, and has no form in JSON.
        InvalidObject: the same, in an object; or it has a time without a zone.
    """
    try:
        return orjson.dumps(body, default=_raw_part, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except orjson.JSONEncodeError as error:
        if not isinstance(body, Mapping) or not (zoneless := list(_zoneless(body))):
            raise
        name = str((body.get("metadata") or {}).get("name", ""))
        raise InvalidObject(str(body.get("kind", "object")), name, zoneless) from error


def _zoneless(value: object, path: str = "") -> Iterator[FieldError]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _zoneless(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, each in enumerate(value):
            yield from _zoneless(each, f"{path}[{number}]")
    elif isinstance(value, datetime) and value.tzinfo is None:
        problem = f"{value} has no time zone; make it with datetime.now(UTC), or add tzinfo=UTC"
        yield FieldError(path, "FieldValueInvalid", problem)


def _raw_part(value: object) -> Any:
    if isinstance(value, (date, time)) and not (isinstance(value, datetime) and not value.tzinfo):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if is_model(value):
        return encode_model(value)
    raise TypeError(type(value).__name__)


async def decode_json(body: bytes, what: str) -> Any:
    """Decode a body, in a thread when it is large.

    Raises:
        TransportError: it is not JSON.
    """
    try:
        if len(body) > THREAD_DECODE:
            return await asyncio.to_thread(orjson.loads, body)
        return orjson.loads(body)
    except json.JSONDecodeError as error:
        raise TransportError(what, f"the answer is not JSON ({error})") from error


def in_words(error: BaseException) -> str:
    """An error of the network as a readable text."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
