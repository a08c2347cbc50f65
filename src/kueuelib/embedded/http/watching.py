"""Answers a watch with a stream of events."""

from __future__ import annotations

import asyncio

from aiohttp import web

from kueuelib.embedded.http.answers import warning_headers
from kueuelib.embedded.http.frames import Framer
from kueuelib.embedded.http.negotiation import JSON, VIEWS, Wanted, negotiate
from kueuelib.embedded.http.parameters import watch_options
from kueuelib.embedded.http.routes import Route
from kueuelib.embedded.http.sending import Sender
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.embedded.service import ApiService


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
    headers = [("Content-Type", Wanted(JSON, wanted.view, wanted.group, wanted.version).media_type)]
    if version.deprecation:
        headers += warning_headers([version.deprecation])
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        with Sender(request, response) as sender:
            async for batch in stream.batches():
                await sender.send([frame(event) for event in batch])
                await asyncio.sleep(0)
        await response.write_eof()
    except ConnectionError:
        pass  # the client has left
    return response
