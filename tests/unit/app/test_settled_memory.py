"""The garbage collector leaves the caches alone while they are filled, and their content after."""

from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest

from kueuelib.app.wiring import SettledMemory
from kueuelib.runtime.cache import Cache


class Filling:
    """Caches that are full when told."""

    def __init__(self) -> None:
        self.full = asyncio.Event()

    async def wait_synced(self) -> None:
        await self.full.wait()


async def started(caches: Filling) -> asyncio.Task[None]:
    ready = asyncio.Event()
    running = asyncio.create_task(SettledMemory(cast(Cache, caches)).run(ready.set))
    await ready.wait()
    return running


async def test_nothing_is_collected_while_caches_are_filled():
    caches = Filling()
    running = await started(caches)  # without garbage: what is set aside below stays so
    assert not gc.isenabled()
    before, content = gc.get_freeze_count(), [[number] for number in range(1000)]
    caches.full.set()
    while not gc.isenabled():
        await asyncio.sleep(0)
    try:
        assert gc.get_freeze_count() - before > len(content)
    finally:
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gc.isenabled()


async def test_a_manager_that_ends_before_its_caches_are_full_collects_again():
    gc.collect()  # Python 3.12 sets immortal objects aside
    before = gc.get_freeze_count()
    running = await started(Filling())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gc.isenabled()
    assert gc.get_freeze_count() == before
