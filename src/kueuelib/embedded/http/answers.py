"""Answers: JSON, YAML, Status, warnings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

import orjson
from aiohttp import web

from kueuelib.embedded.http.negotiation import JSON, PLAIN, YAML, Form
from kueuelib.embedded.http.yaml_answers import to_yaml
from kueuelib.errors import ApiError

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
    wanted: Form = PLAIN,
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
    parts = parts_of(body)
    if wanted.format == YAML:
        parts = [to_yaml(orjson.loads(b"".join(parts)))]
    size = sum(map(len, parts))
    headers = [("Content-Type", media_type or wanted.format), ("Content-Length", str(size))]
    headers += warning_headers(warnings)
    body = _sent(parts) if size > PIECE else b"".join(parts)
    return web.Response(body=body, status=status, headers=headers)


def parts_of(body: Any) -> Parts:
    """The bytes of a body, which others may share."""
    if isinstance(body, list):
        return body
    return [body if isinstance(body, bytes) else orjson.dumps(body)]


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


def failure(error: ApiError, wanted: Form = PLAIN) -> web.Response:
    """The Status of a failure."""
    response = answer(error.status(), status=error.code, wanted=Form(wanted.format or JSON))
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return response


def success(details: dict[str, Any] | None = None, code: int = 0) -> dict[str, Any]:
    """A Status of success."""
    more = {key: value for key, value in (("details", details), ("code", code)) if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}
