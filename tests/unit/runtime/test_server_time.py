"""The time of the API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kueuelib.errors import Forbidden
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import server_time
from kueuelib.runtime.http_connection import Headers


def client(answer: Any) -> Client:
    async def request(*_: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(headers=Headers(answer))

    return cast("Client", SimpleNamespace(transport=SimpleNamespace(request=request)))


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (b"date: Thu, 01 Jan 1970 02:00:00 GMT", 7200.0),
        (b"", 5.0),
        (b"date: yesterday", 5.0),
        (Forbidden("you may not ask"), 5.0),
    ],
)
async def test_the_server_says_what_time_it_is_and_our_clock_otherwise(
    answer: Any, seconds: float
) -> None:
    clock: Any = SimpleNamespace(now=lambda: 5.0)
    assert await server_time(client(answer), clock) == seconds
