"""Lateness of the event loop, and silence of watches, as metrics."""

from __future__ import annotations

import asyncio
import time

import pytest

from kueuelib.api.kinds import CONFIG_MAPS
from kueuelib.embedded import ApiServer
from kueuelib.runtime import Cache, Telemetry
from kueuelib.runtime.telemetry import LoopLag
from kueuelib.testing import eventually


def value(telemetry: Telemetry, name: str) -> float:
    for line in telemetry.render().decode().splitlines():
        if line.startswith(name):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"no {name}")


async def test_what_blocks_the_loop_shows_in_the_lag() -> None:
    telemetry = Telemetry()
    task = asyncio.create_task(LoopLag(telemetry, period=0.05).run(lambda: None))
    await asyncio.sleep(0.01)
    time.sleep(0.3)
    await eventually(lambda: value(telemetry, "kueuelib_loop_lag_seconds_sum") >= 0.2, within=5)
    late = value(telemetry, "kueuelib_loop_lag_seconds_count")
    late -= value(telemetry, 'kueuelib_loop_lag_seconds_bucket{le="0.1"}')
    assert late == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_quiet_watch_shows_for_how_long_it_is_quiet() -> None:
    telemetry = Telemetry()
    async with ApiServer() as server, server.client() as client:
        cache = Cache(client, telemetry=telemetry)
        informer = cache.informer(CONFIG_MAPS)
        assert value(telemetry, "kueuelib_watch_silence_seconds") == 0
        task = asyncio.create_task(cache.run(lambda: None))
        await informer.wait_synced()
        await eventually(lambda: value(telemetry, "kueuelib_watch_silence_seconds") > 0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
