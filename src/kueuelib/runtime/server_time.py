"""The time of the API server, by which it writes and judges times in objects."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from kueuelib.errors import ApiError
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock


async def server_time(client: Client, clock: Clock = SYSTEM_CLOCK) -> float:
    """Seconds since the epoch by the clock of the API server; by ours if it does not say.

    Args:
        client: of the server.
        clock: ours.
    """
    try:
        answer = await client.transport.request("GET", "/version")
        return parsedate_to_datetime(answer.headers.first("Date") or "").timestamp()
    except (ApiError, ValueError):
        return clock.now()
