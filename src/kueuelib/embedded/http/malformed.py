"""Answers requests that are not HTTP or have an unknown method, before the connection ends."""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

from kueuelib.embedded import failures
from kueuelib.embedded.http.answers import failure
from kueuelib.errors import BadRequest
from kueuelib.runtime.connections import Connection

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
