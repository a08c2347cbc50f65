"""Answers: their form, JSON, YAML, Status, warnings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import attrs
import orjson
from aiohttp import web

from kueuelib.embedded import failures
from kueuelib.errors import ApiError, BadRequest, NotAcceptable
from kueuelib.runtime.server_limits import Connection

# ---- writes JSON data as YAML; libraries take a hundred times as long for large objects ----------

_PLAIN: Final = re.compile(r"[A-Za-z/][\w./-]*(?: [\w./-]+)*", re.ASCII).fullmatch
_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
"""Plain texts that are not texts in YAML, in small letters."""
_ODD: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def to_yaml(value: Any) -> bytes:
    """JSON data as YAML, with sorted keys."""
    lines: list[str] = []
    _write(value, "", lines)
    return "".join(lines).encode()


def _write(value: Any, indent: str, lines: list[str]) -> None:
    if not value or not isinstance(value, dict | list):
        lines.append(f"{_scalar(value)}\n")
    elif isinstance(value, dict):
        for key in sorted(value):
            inner = value[key]
            if inner and isinstance(inner, dict | list):
                lines.append(f"{indent}{_scalar(key)}:\n")
                _write(inner, indent + "  " * isinstance(inner, dict), lines)
            else:
                lines.append(f"{indent}{_scalar(key)}: {_scalar(inner)}\n")
    else:
        for inner in value:
            if inner and isinstance(inner, dict | list):
                first = len(lines)
                _write(inner, f"{indent}  ", lines)
                lines[first] = f"{indent}- {lines[first][len(indent) + 2 :]}"
            else:
                lines.append(f"{indent}- {_scalar(inner)}\n")


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN(value) and value.lower() not in _WORDS:
        return value
    text = orjson.dumps(value).decode()
    return _ODD.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# ---- negotiates the form of an answer ------------------------------------------------------------

JSON = "application/json"
YAML = "application/yaml"
_FORMATS = {JSON: JSON, YAML: YAML, "application/*": JSON, "*/*": JSON, "text/yaml": YAML}


@attrs.frozen
class MediaForm:
    """One accepted form.

    Attributes:
        format: `application/json` or `application/yaml`.
        view: `Table`, `PartialObjectMetadata`, `PartialObjectMetadataList`, another `as`, or empty.
        group: the group of the view.
        version: the version of the view.
    """

    format: str = JSON
    view: str = ""
    group: str = ""
    version: str = ""

    @property
    def media_type(self) -> str:
        """The form with its parameters, for `Content-Type`."""
        if not self.view:
            return self.format
        return f"{self.format};g={self.group};v={self.version};as={self.view}"


_NOTHING_KNOWN = (
    f"406: Not Acceptable\n\nAvailable representations: {JSON}, {YAML}, "
    "application/vnd.kubernetes.protobuf"
)
PLAIN = MediaForm()
"""Plain JSON."""

VIEWS = frozenset(
    (view, "meta.k8s.io", version)
    for view in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
    for version in ("v1", "v1beta1")
)
DISCOVERY_VIEWS = frozenset(
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", version) for version in ("v2", "v2beta1")
)


@lru_cache(256)
def negotiate(accept: str, views: frozenset[tuple[str, str, str]] = frozenset()) -> MediaForm:
    """The first form of an `Accept` header that the server supports.

    Args:
        accept: the header; empty for any form.
        views: the offered `(as, group, version)`.

    Raises:
        NotAcceptable: there is none.
    """
    if not accept.strip():
        return MediaForm()
    ranked: list[tuple[float, int, MediaForm]] = []
    known = False
    for place, clause in enumerate(accept.split(",")):
        media, *rest = (part.strip() for part in clause.split(";"))
        format_ = _FORMATS.get(media.lower())
        if format_ is None:
            continue
        known = True
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        view = parameters.get("as", "")
        group, version = parameters.get("g", ""), parameters.get("v", "")
        if view and (view, group, version) not in views:
            continue
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 1.0
        wanted = MediaForm(format_, view, group, version) if view else MediaForm(format_)
        ranked.append((-quality, place, wanted))
    if not known:
        raise NotAcceptable(_NOTHING_KNOWN, details={})
    if not ranked:
        raise NotAcceptable(f"only the following media types are accepted: {JSON}, {YAML}")
    return min(ranked, key=lambda each: each[:2])[2]


# --------------------------------------------------------------------------------------------------

PIECE: Final = 64 * 1024
Parts = list[bytes | memoryview]
"""A body that is joined only while it is sent, as its parts may be those of the storage."""
WARNING_LIMIT = 256
WARNINGS_LIMIT = 4096
"""The maximum number of characters in one warning, and of all together, as in kube-apiserver."""


def warning_headers(warnings: Iterable[str]) -> list[tuple[str, str]]:
    """One `Warning` header per warning, without duplicates, up to the limit."""
    headers: list[tuple[str, str]] = []
    room = WARNINGS_LIMIT
    for text in dict.fromkeys(warnings):
        plain = "".join(letter for letter in text if letter.isprintable())[:WARNING_LIMIT]
        room -= len(plain)
        if room < 0:
            break
        quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
        headers.append(("Warning", f'299 - "{quoted}"'))
    return headers


def answer(
    body: Any,
    *,
    status: int = 200,
    wanted: MediaForm = PLAIN,
    warnings: Iterable[str] = (),
    media_type: str = "",
) -> web.Response:
    """An answer in the negotiated form.

    Args:
        body: JSON data, or bytes of JSON, perhaps in parts.
        status: the HTTP status.
        wanted: the form.
        warnings: texts for the client.
        media_type: overrides the form's own.
    """
    parts: Parts = (
        body
        if isinstance(body, list)
        else [body if isinstance(body, bytes) else orjson.dumps(body)]
    )
    if wanted.format == YAML:
        parts = [to_yaml(orjson.loads(b"".join(parts)))]
    size = sum(map(len, parts))
    headers = [("Content-Type", media_type or wanted.format), ("Content-Length", str(size))]
    headers += warning_headers(warnings)
    body = _sent(parts) if size > PIECE else b"".join(parts)
    return web.Response(body=body, status=status, headers=headers)


def pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same bytes in strings of at most `PIECE` bytes; small parts share one."""
    waiting: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        for start in range(0, len(part), PIECE):
            cut = part[start : start + PIECE]
            if waiting and size + len(cut) > PIECE:
                yield b"".join(waiting)
                waiting, size = [], 0
            waiting.append(cut)
            size += len(cut)
    if waiting:
        yield b"".join(waiting)


async def _sent(parts: Parts) -> AsyncIterator[bytes]:
    """The pieces of a body, between which others are answered."""
    for piece in pieces(parts):
        yield piece
        await asyncio.sleep(0)


def failure(error: ApiError, wanted: MediaForm = PLAIN) -> web.Response:
    """The Status of a failure."""
    response = answer(error.status(), status=error.code, wanted=MediaForm(wanted.format or JSON))
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return response


def success(details: dict[str, Any] | None = None, code: int = 0) -> dict[str, Any]:
    """A Status of success."""
    more = {key: value for key, value in (("details", details), ("code", code)) if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}


# ---- answers requests that are not HTTP or have an unknown method, before the connection ends ----

_KNOWN: Final = rb"GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|CONNECT|TRACE"
_UNKNOWN: Final = re.compile(rb"(?!(?:%b) )[A-Za-z-]+ /\S* HTTP/1\.[01]\r?\n" % _KNOWN)
_LONGEST: Final = 8190
"""Bytes of the longest request line that is looked at."""


class StatusConnection(Connection):
    """A connection that also answers malformed requests with a Status."""

    __slots__ = ("_head",)

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._head = b""

    def data_received(self, data: bytes) -> None:
        """Takes a part of a request, and remembers how it begins."""
        if self.rests_since is not None and len(self._head) < _LONGEST:
            self._head += data[:_LONGEST]
        super().data_received(data)

    def rests(self) -> None:
        """A request was answered."""
        self._head = b""
        super().rests()

    def malformed(self) -> web.StreamResponse:
        """Answers 405 for an unknown method, and 400 for other malformed requests."""
        if _UNKNOWN.match(self._head):
            return failure(failures.wrong_method())
        return failure(BadRequest("the request is malformed"))
