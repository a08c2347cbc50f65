"""Removes events an hour after they were last written, as Kubernetes does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.kinds import EVENTS
from kueuelib.api.meta import parse_time
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.storage import StaleWrite

LIFETIME: Final = 3600.0
PAUSE: Final = 300.0
_BATCH: Final = 200
"""The number of events that are checked before other tasks run."""


def last_written(event: Mapping[str, Any]) -> float:
    """When an event last occurred, in seconds since the epoch; 0 if it does not say."""
    texts = (
        event["metadata"].get("creationTimestamp"),
        event.get("eventTime"),
        event.get("lastTimestamp"),
        (event.get("series") or {}).get("lastObservedTime"),
    )
    return max((parse_time(text) for text in texts if text), default=0.0)


async def expire_events(service: ApiService) -> int:
    """Removes expired events without calling webhooks; returns their number."""
    kind, _ = service.registry.require(EVENTS)
    oldest = service.now() - LIFETIME
    removed = 0
    for number, entry in enumerate(list(service.storage.table(kind.table).entries()), 1):
        if number % _BATCH == 0:
            await asyncio.sleep(0)
        obj = entry.obj()
        if last_written(obj) > oldest:
            continue
        try:
            service.commits.remove(kind, obj, entry)
        except StaleWrite:
            continue
        removed += 1
    return removed


async def keep_expiring(service: ApiService) -> None:
    """Removes expired events every few minutes until cancelled."""
    while True:
        await asyncio.sleep(PAUSE)
        await expire_events(service)
