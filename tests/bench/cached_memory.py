"""Prints what a full informer costs: `cached_memory.py URL PLURAL COUNT HOW`.

HOW is `rss`: growth of this process's resident memory, or `traced`: what tracemalloc saw. A process
of its own, because memory that was used and freed before would hide the growth.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import resident

from kueuelib.api.kinds import JOBS, PODS, WORKLOADS
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint, FixedSource
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.transport import Transport

KINDS = {kind.plural: kind for kind in (PODS, WORKLOADS, JOBS)}


async def _measure(url: str, plural: str, count: int, how: str) -> None:
    async with Client(Transport(FixedSource(Endpoint(url)))) as client:
        await client.request("GET", "/version")  # loads what is lazy
        gc.collect()
        before = resident(os.getpid()) * 2**20
        if how == "traced":
            tracemalloc.start(1)
        informer = Informer(client, KINDS[plural])
        task = asyncio.create_task(informer.run())
        await informer.wait_synced(60)
        await asyncio.sleep(0.2)
        gc.collect()
        if how == "traced":
            grown = float(tracemalloc.get_traced_memory()[0])
        else:
            grown = resident(os.getpid()) * 2**20 - before
        assert len(informer.store) == count
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    sys.stdout.write(f"{grown / count:.0f}\n")


if __name__ == "__main__":
    asyncio.run(_measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
