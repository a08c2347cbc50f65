"""A client of good will, in a process of its own: its times are those of the server alone."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import time
from typing import Any

PATIENCE = 20.0
PAUSE = 0.02


async def ask(streams: list[Any], port: int, data: bytes) -> tuple[int, str]:
    """Status and body of an answer; 0 when there is none."""
    head = ""
    try:
        async with asyncio.timeout(PATIENCE):
            if not streams:
                context = ssl._create_unverified_context()
                streams += await asyncio.open_connection("127.0.0.1", port, ssl=context)
            reader, writer = streams
            writer.write(data)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            size = re.search(r"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(size[1])) if size else b""
        if "connection: close" in head.lower() or not size:
            raise ConnectionResetError
        return int(head.split()[1]), body.decode(errors="replace")
    except (TimeoutError, asyncio.IncompleteReadError, OSError):
        hang_up(streams)
        return (int(head.split()[1]), "") if head else (0, "")


def hang_up(streams: list[Any]) -> None:
    """Ends the connection of a client."""
    for each in streams[1:]:
        each.transport.abort()
    streams.clear()


async def _main(port: int) -> None:
    """Asks what the first line of its input says until that ends; prints seconds and status."""
    loop = asyncio.get_running_loop()
    data = json.loads(await loop.run_in_executor(None, sys.stdin.readline)).encode("latin-1")
    ended = loop.run_in_executor(None, sys.stdin.read)
    streams: list[Any] = []
    while not ended.done():
        started = time.monotonic()
        status, _ = await ask(streams, port, data)
        print(time.monotonic() - started, status)
        await asyncio.sleep(PAUSE)
    hang_up(streams)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
