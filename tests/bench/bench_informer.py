"""What an informer costs above reading and decoding the same bytes, and what it keeps in memory."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest
from figures import show
from samples import MAKERS

from kueuelib.api.kinds import PODS
from kueuelib.app.wiring import GC_THRESHOLDS
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint, FixedSource
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.transport import Transport

FOLDER = Path(__file__).parent
EVENTS = 20_000
OBJECTS = 5_000
ROUNDS = 3


@contextmanager
def streaming(plural: str, listed: int, streamed: int) -> Iterator[str]:
    """The URL of a `stream_server.py`."""
    args = [sys.executable, str(FOLDER / "stream_server.py"), plural, str(listed), str(streamed)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@contextmanager
def collector(*thresholds: int) -> Iterator[None]:
    """Other settings of the garbage collector for a while."""
    before = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _raw(url: str) -> int:
    """Reads and decodes the stream, and does nothing else with it."""
    seen, rest = 0, b""
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=2**20) as session,
        session.get(f"{url}/api/v1/pods?watch=true") as response,
    ):
        while seen < EVENTS:
            *lines, rest = (rest + await response.content.readany()).split(b"\n")
            for line in lines:
                orjson.loads(line)
            seen += len(lines)
    return seen


async def _informed(url: str) -> int:
    """The whole way: transport, reflector, store, handler."""
    seen, done = 0, asyncio.Event()
    async with Client(Transport(FixedSource(Endpoint(url)))) as client:
        informer = Informer(client, PODS)

        def handler(delta: Delta) -> None:
            nonlocal seen
            seen += 1
            if seen == EVENTS:
                done.set()

        informer.add_handler(handler)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(done.wait(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(informer.store) == 1000
    return seen


async def _timed(run: Callable[[str], Awaitable[int]], url: str) -> float:
    """Events per second of own processor time, which others on the machine disturb less."""
    started = time.process_time()
    count = await run(url)
    assert count >= EVENTS
    return count / (time.process_time() - started)


async def test_events_through_an_informer() -> None:
    with streaming("pods", 0, EVENTS) as url:
        raw = [await _timed(_raw, url) for _ in range(ROUNDS)]
        plain = [await _timed(_informed, url) for _ in range(ROUNDS)]
        with collector(*GC_THRESHOLDS):
            tuned = [await _timed(_informed, url) for _ in range(ROUNDS)]
    size = len(orjson.dumps(MAKERS["pods"](1)))
    rates = {
        "read and decode only": raw,
        "informer with a handler, Python's own collector settings": plain,
        "informer with a handler, the manager's collector settings": tuned,
    }
    best = max(raw)
    show(
        f"informer: {EVENTS:,} events about 1,000 Pods of {size:,} bytes, best of {ROUNDS}",
        [
            (
                name,
                f"{max(series):>7,.0f} events per processor second, ratio {max(series) / best:.2f}",
            )
            for name, series in rates.items()
        ],
    )


@pytest.mark.parametrize("plural", sorted(MAKERS))
def test_bytes_per_cached_object(plural: str) -> None:
    sizes = {}
    with streaming(plural, OBJECTS, 0) as url:
        for how in ("rss", "traced"):
            args = [str(FOLDER / "cached_memory.py"), url, plural, str(OBJECTS), how]
            answer = subprocess.run(
                [sys.executable, *args], check=True, capture_output=True, text=True, timeout=90
            )
            sizes[how] = int(answer.stdout)
    size = len(orjson.dumps(MAKERS[plural](1)))
    show(
        f"informer: memory per cached object, {OBJECTS:,} {plural}",
        [
            ("as JSON on the wire", f"{size:,} bytes"),
            ("resident, after one list in one piece", f"{sizes['rss']:,} bytes"),
            ("traced", f"{sizes['traced']:,} bytes"),
        ],
    )
    assert sizes["traced"] > 0
