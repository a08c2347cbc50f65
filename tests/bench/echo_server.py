"""What the HTTP server under the API server can do at best: every request is answered at once.

`python echo_server.py CERTIFICATE KEY` listens with TLS on a free port, prints it, reads bodies and
sends them back. Figures of the API server are read next to it: both slow down on a busy machine.
"""

from __future__ import annotations

import asyncio
import ssl
import sys

from aiohttp import web


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    """The body of the request."""
    return web.Response(body=await request.read(), content_type="application/json")


async def main(certificate: str, key: str) -> None:
    """Serves until it is terminated."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    runner = web.ServerRunner(web.Server(echo, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
