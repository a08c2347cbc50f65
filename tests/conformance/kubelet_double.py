"""A kubelet that misbehaves, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from kueuelib.embedded import credentials as tls

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class KubeletDouble:
    """Answers as it is written for each path.

    Args:
        ca: the signer of clients' certificates.
        answer: is awaited with reader, writer and the head of the request.
        plain: whether it does not speak TLS.

    Attributes:
        asked: the heads of requests.
        names: the subjects of clients' certificates.
        open: the number of its connections.
    """

    def __init__(self, ca, answer, *, plain=False):
        self._answer = answer
        self._tls = None
        if not plain:
            self._tls = tls.credentials(time.time(), ("127.0.0.1",), "a", "b").server_context()
            self._tls.load_verify_locations(cadata=ca.decode())
        self.asked = []
        self.names = []
        self.open = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        self.open += 1
        try:
            head = b""
            if self._tls is not None:
                shown = writer.get_extra_info("peercert") or {}
                self.names.append(dict(part[0] for part in shown.get("subject", ())))
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.asked.append(head)
            await self._answer(reader, writer, head)
        except (OSError, EOFError):
            pass
        finally:
            self.open -= 1
            writer.close()


async def silent(reader, writer, head):
    """Says nothing."""
    with suppress(OSError):
        await reader.read()


def saying(*parts):
    """Sends these bytes, and closes."""

    async def answer(reader, writer, head):
        for part in parts:
            writer.write(part)
            await writer.drain()
        await asyncio.sleep(0.05)

    return answer


async def echo(reader, writer, head):
    """Changes the protocol, and returns what it gets."""
    writer.write(SWITCH + b"hello ")
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()


async def deaf(reader, writer, head):
    """Changes the protocol, and reads nothing until the other side is gone."""
    writer.write(SWITCH)
    await writer.drain()
    while not reader.at_eof() and not writer.is_closing():
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.05)
