"""Clients that hold a connection and do nothing with it, or next to nothing."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HALF = b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
SLOW_SECONDS = 0.5


@asynccontextmanager
async def silent_crowd(port: int, asked: bytes, count: int) -> AsyncIterator[None]:
    """So many clients, as long as the context is entered.

    A third finishes no TLS handshake, a third is silent or stops in the middle of a request, and a
    third asks without reading the answer or sends a byte now and then.

    Args:
        port: of the server.
        asked: a request with a long or endless answer.
        count: of clients.
    """
    logger = logging.getLogger("asyncio")
    level = logger.level
    logger.setLevel(logging.ERROR)  # connections that are cut off
    context = ssl._create_unverified_context()
    gate, writers, slow = asyncio.Semaphore(20), [], []

    async def one(number: int) -> None:
        async with gate:
            part, kind = number % 3, number // 3 % 3
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context if part else None, limit=1
            )
            writers.append(writer)
            if part == 0:
                writer.write((b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n")[kind])
            elif part == 1:
                writer.write((b"", b"GET /api", HALF)[kind])
            elif kind:
                writer.write(asked)
            else:
                slow.append(writer)

    async def trickle() -> None:
        while True:
            for each in slow:
                if not each.is_closing():
                    each.write(b"G")
            await asyncio.sleep(SLOW_SECONDS)

    await asyncio.gather(*(one(each) for each in range(count)), return_exceptions=True)
    trickling = asyncio.create_task(trickle())
    try:
        yield
    finally:
        trickling.cancel()
        for each in writers:
            each.transport.abort()
        logger.setLevel(level)
