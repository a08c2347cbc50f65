"""Lists and streams ready-made objects over HTTP: `stream_server.py PLURAL LISTED STREAMED`.

It prints its port. A list answers LISTED objects; a watch sends STREAMED events about 1,000 objects
as fast as they are read, and stays open. A process of its own, so that only the reader is measured.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import orjson
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))

from samples import MAKERS

OBJECTS = 1000
CHUNK = 256 * 1024
READ = ["get", "list", "watch"]
RESOURCES = [
    {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True, "verbs": READ},
    {
        "name": "namespaces",
        "singularName": "",
        "kind": "Namespace",
        "namespaced": False,
        "verbs": READ,
    },
]
DISCOVERED = {
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": []},
    "/api/v1": {"groupVersion": "v1", "resources": RESOURCES},
}
"""What a client asks first that looks for the kinds of its handlers."""


def _listed(plural: str, count: int) -> bytes:
    items = [MAKERS[plural](index) for index in range(count)]
    first = MAKERS[plural](0)
    return orjson.dumps(
        {
            "apiVersion": first["apiVersion"],
            "kind": f"{first['kind']}List",
            "metadata": {"resourceVersion": "1"},
            "items": items,
        }
    )


def _streamed(plural: str, count: int) -> list[bytes]:
    """The stream, in chunks that do not end where lines end."""
    objects = [MAKERS[plural](index) for index in range(OBJECTS)]
    lines = []
    for number in range(count):
        obj = objects[number % OBJECTS]
        obj["metadata"]["resourceVersion"] = str(number + 2)
        kind = "ADDED" if number < OBJECTS else "MODIFIED"
        lines.append(orjson.dumps({"type": kind, "object": obj}) + b"\n")
    stream = b"".join(lines)
    return [stream[at : at + CHUNK] for at in range(0, len(stream), CHUNK)]


async def _serve(plural: str, listed: int, streamed: int) -> None:
    whole, chunks = _listed(plural, listed), _streamed(plural, streamed)

    async def handle(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith(plural):
            return web.json_response(DISCOVERED.get(request.path, {}))
        if "watch" not in request.query:
            return web.Response(body=whole, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await asyncio.Event().wait()
        return response

    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
