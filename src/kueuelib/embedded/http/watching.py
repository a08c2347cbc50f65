"""Answers a watch with a stream of events: shared bytes, small buffers, bounded patience.

Lines of a watch are built around JSON that all watches share. The next batch is sent only after the
client has read most of the previous one, so a client that does not read costs one batch of
references and the buffers of its connection. After a while without reads its connection is closed,
as by kube-apiserver (`kueuelib.runtime.server_limits`); a client that returns lists and watches
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain

import attrs
import orjson
from aiohttp import web

from kueuelib.api.meta import Obj
from kueuelib.embedded.http import views
from kueuelib.embedded.http.answers import (
    JSON,
    VIEWS,
    MediaForm,
    negotiate,
    pieces,
    warning_headers,
)
from kueuelib.embedded.http.requests import Route, watch_options
from kueuelib.embedded.reading import Frame
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.service import ApiService
from kueuelib.runtime.server_limits import Connection

# ---- the lines of a watch ------------------------------------------------------------------------

Line = tuple[bytes, bytes, bytes]
"""The prefix, the JSON, and the suffix."""

_HEADS = {
    type_: b'{"type":"%b","object":' % type_.encode()
    for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


@attrs.define(eq=False)
class Framer:
    """One watch event as a line."""

    _kind: Kind
    _version: KindVersion
    _wanted: MediaForm
    _include: str
    _now: Callable[[], float]
    _headings: bool = attrs.field(init=False, default=True)

    def __call__(self, event: Frame) -> Line:
        """The parts of the line of an event."""
        type_, raw = event
        if self._wanted.view and type_ not in ("ERROR", "BOOKMARK"):
            raw = orjson.dumps(self._view(orjson.loads(raw)))
        elif self._wanted.view and type_ == "BOOKMARK":
            raw = orjson.dumps(self._view_bookmark(orjson.loads(raw)))
        return _HEADS[type_], raw, b"}\n"

    def _view(self, obj: Obj) -> Obj:
        if self._wanted.view != "Table":
            return views.partial(obj, self._wanted.version)
        headings, self._headings = self._headings, False
        kind, version, wanted = self._kind, self._version, self._wanted
        rows = [views.row(kind, version, wanted, self._now(), self._include, obj)]
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return views.table(kind, version, rows, wanted, meta, headings=headings)

    def _view_bookmark(self, obj: Obj) -> Obj:
        if self._wanted.view != "Table":
            return views.partial(obj, self._wanted.version)
        row = {"cells": [], "object": views.partial(obj, self._wanted.version)}
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._wanted.version}",
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "columnDefinitions": None,
            "rows": [row],
        }


# --------------------------------------------------------------------------------------------------


async def watch(
    request: web.BaseRequest, service: ApiService, route: Route, kind: Kind, version: KindVersion
) -> web.StreamResponse:
    """Send changes as a stream until it ends or the client leaves.

    Raises:
        ApiError: the options of the watch are wrong.
    """
    accept = request.headers.get("Accept", "")
    wanted = negotiate(accept, VIEWS)
    options = watch_options(request.query, route.name)
    stream = service.stream(kind, version, route.namespace, options)
    include = request.query.get("includeObject", "Metadata")
    frame = Framer(kind, version, wanted, include, service.now)
    headers = [
        ("Content-Type", MediaForm(JSON, wanted.view, wanted.group, wanted.version).media_type)
    ]
    if version.deprecation:
        headers += warning_headers([version.deprecation])
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        connection = request.protocol
        assert isinstance(connection, Connection), "a Site makes them"
        async for batch in stream.batches():
            for piece in pieces(chain.from_iterable(map(frame, batch))):
                await response.write(piece)
                if not connection.flows:
                    await connection.drained()
                await asyncio.sleep(0)
        await response.write_eof()
    except ConnectionError:
        pass  # the client has left
    return response
