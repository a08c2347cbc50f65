"""The log stays short whatever clients do."""

from __future__ import annotations

import logging

import pytest

from kueuelib.embedded.server import ApiServer
from kueuelib.runtime.logs import LogRateLimiter

CLOSED = "SSL connection is closed"
ASYNCIO = logging.getLogger("asyncio")


async def test_closed_connections_are_told_once_while_a_server_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ApiServer():
        for _ in range(1000):
            ASYNCIO.warning(CLOSED)
        ASYNCIO.warning("something else")
        ASYNCIO.warning("something else")
    assert caplog.messages == [CLOSED, "something else", "something else"]
    caplog.clear()
    ASYNCIO.warning(CLOSED)
    ASYNCIO.warning(CLOSED)
    assert caplog.messages == [CLOSED, CLOSED]


def test_a_minute_later_the_number_is_told() -> None:
    now = 0.0
    sparse = LogRateLimiter(lambda: now)

    def told() -> str | None:
        record = logging.LogRecord("asyncio", logging.WARNING, "", 0, CLOSED, None, None)
        return record.getMessage() if sparse.filter(record) else None

    assert [told() for _ in range(3)] == [CLOSED, None, None]
    now = 60.0
    assert [told(), told()] == [f"{CLOSED} (and 2 times before)", None]
    now = 120.0
    assert told() == f"{CLOSED} (and 1 times before)"
