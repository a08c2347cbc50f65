"""`kueuelib report --serve`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from kueuelib.app.configuration import Configuration
from kueuelib.app.explaining.gather import ASK_DOCTOR
from kueuelib.cli.report.following import Following
from kueuelib.cli.report.reading import read
from kueuelib.cli.report.serving import LOOPBACK, Site
from kueuelib.errors import KueuelibError
from kueuelib.runtime.connection import reached
from kueuelib.runtime.entry import run_program
from kueuelib.runtime.http import serving

DRAIN = 1.0
"""Seconds that open pages have to end."""


def run(
    kubeconfig: Path | None,
    given: Configuration | None,
    namespace: str,
    changes: int,
    server_timeout: float,
    port: int,
) -> int:
    """Serves until SIGTERM or SIGINT; see `command.run`.

    Raises:
        KueuelibError: objects that are read as they are stored cannot be followed.
    """
    serve = partial(_serve, kubeconfig, given, namespace, changes, server_timeout, port)
    run_program(_until_signal, serve)
    return 0


async def _until_signal(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            async for _ in received:
                group.cancel_scope.cancel()
                break


async def _serve(
    kubeconfig: Path | None,
    given: Configuration | None,
    namespace: str,
    changes: int,
    server_timeout: float,
    port: int,
) -> None:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-report") as client:
        reading = await read(client, namespace, given)
        if reading.near.unconverted:
            why = next(iter(reading.near.unconverted.values()))
            fix = f"leave out --serve, or {ASK_DOCTOR}"
            raise KueuelibError(f"the API server cannot follow all objects: {why}; {fix}")
        following = Following(client, reading, namespace, changes)
        site, ready = Site(following), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(following.run, ready.set)
            await ready.wait()
            app = site.application()
            async with serving(app, LOOPBACK, port, drain=DRAIN, subject="--port") as site.port:
                sys.stdout.write(f"serving http://{LOOPBACK}:{site.port}/ until Ctrl-C\n")
                sys.stdout.flush()
                try:
                    await anyio.sleep_forever()
                finally:
                    site.close()
