"""Answers a watch with a stream of events: shared bytes, small buffers, bounded patience.

Lines of a watch are built around JSON that all watches share. The next batch is sent only after the
client has read most of the previous one, so a client that does not read costs one batch of
references and the buffers of its connection. After a while without reads its connection is closed,
as by kube-apiserver (`kueuelib.runtime.patience`); a client that returns lists and watches again.
"""

from __future__ import annotations

import asyncio
from itertools import chain

from aiohttp import web

from kueuelib.embedded.http.answers import pieces, warning_headers
from kueuelib.embedded.http.frames import Framer
from kueuelib.embedded.http.negotiation import JSON, VIEWS, Form, negotiate
from kueuelib.embedded.http.parameters import watch_options
from kueuelib.embedded.http.routes import Route
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.embedded.service import ApiService
from kueuelib.runtime.connections import Connection


async def watch(
    request: web.BaseRequest, service: ApiService, route: Route, kind: Kind, version: Version
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
    headers = [("Content-Type", Form(JSON, wanted.view, wanted.group, wanted.version).media_type)]
    if version.deprecation:
        headers += warning_headers([version.deprecation])
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        connection = request.protocol
        assert isinstance(connection, Connection), "a Site makes them"
        async for batch in stream.batches():
            size = sum(len(raw) for _, raw in batch) if wanted.view else 0
            lines = await service.large.work(size, list, map(frame, batch))
            for piece in pieces(chain.from_iterable(lines)):
                await response.write(piece)
                if not connection.flows:
                    await connection.drained()
                await asyncio.sleep(0)
        await response.write_eof()
    except ConnectionError:
        pass  # the client has left
    return response
