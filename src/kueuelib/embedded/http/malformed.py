"""Answers requests that are not HTTP or have an unknown method, before the connection ends."""

from __future__ import annotations

import logging
import re
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError

from kueuelib.embedded import failures
from kueuelib.embedded.http.answers import failure
from kueuelib.errors import BadRequest
from kueuelib.runtime.connections import Connection

_LOG = logging.getLogger("kueuelib.embedded")
_REQUEST_LINE: Final = re.compile(r"'[A-Za-z-]+ /\S* HTTP/1\.[01]'")


class StatusConnection(Connection):
    """A connection that also answers malformed requests with a Status."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers 405 for an unknown method, and 400 for other malformed requests."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        _LOG.debug("a malformed request from %s", request.remote, exc_info=exc)
        if isinstance(exc, BadHttpMethod) and _REQUEST_LINE.search(exc.message):
            response = failure(failures.wrong_method())
        else:
            response = failure(BadRequest("the request is malformed"))
        response.force_close()
        return response
