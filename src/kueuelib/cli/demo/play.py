"""Plays the demo: starts the processes, creates objects, watches them, and gives a verdict."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
from rich.console import Console

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.meta import Obj
from kueuelib.cli.demo import story
from kueuelib.cli.demo.screen import Screen, summary
from kueuelib.cli.terminal import terminal
from kueuelib.errors import KueuelibError
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.kubeconfig import find_source
from kueuelib.runtime.transport import Transport
from kueuelib.testing.processes import LocalCluster, Processes

SECONDS_PER_JOB = 1.2
GRACE_SECONDS = 12.0
"""The demo gives up after this, plus some time for each Job."""

FRAME_SECONDS = 0.1
WIDTH = 120


def run(jobs: int, *, plain: bool, keep: bool, picture: Path | None = None) -> int:
    """Plays the demo.

    Args:
        jobs: how many Jobs are queued.
        plain: lines instead of a live table.
        keep: keeps the log files of the servers.
        picture: a file for an SVG of the live table, at its most interesting moment.

    Returns:
        The exit code: 0 if everything expected happened.
    """
    console = terminal()
    folder = Path(tempfile.mkdtemp(prefix="kueuelib-demo-"))
    try:
        return anyio.run(_play, jobs, console, folder, plain, picture)
    except* KueuelibError as group:
        for error in _leaves(group):
            console.print(f"the demo failed: {error}", highlight=False, markup=False)
    finally:
        if keep:
            console.print(f"log files: {folder}", highlight=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1


def _leaves(group: BaseExceptionGroup[KueuelibError]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _play(
    jobs: int, console: Console, folder: Path, plain: bool, picture: Path | None
) -> int:
    board = story.Board(tuple(story.job(i)["metadata"]["name"] for i in range(jobs)))
    with Screen(console, plain=plain) as screen, Processes(folder) as processes:
        cluster = LocalCluster(processes)
        begin = time.monotonic()
        screen.say("starting the API server, installing the CRDs, starting the manager ...")
        await anyio.to_thread.run_sync(cluster.start)
        screen.say(f"ready after {time.monotonic() - begin:.1f} s; queueing {jobs} Jobs")
        transport = Transport(find_source(cluster.kubeconfig))
        async with Client(transport, field_manager="kueuelib-demo") as client:
            for resource, obj in story.setup():
                await client.create(resource, obj)
            first = time.monotonic()
            await _watch(client, board, screen, processes, jobs, first)
            seconds = time.monotonic() - first
    console.print(summary(board, seconds))
    if picture is not None:
        await anyio.Path(picture).write_text(screen.picture())
    faults = board.verdict()
    for fault in faults:
        console.print(f"unexpected: {fault}", highlight=False, markup=False)
    console.print("all as expected" if not faults else "NOT as expected")
    return 1 if faults else 0


async def _watch(
    client: Client,
    board: story.Board,
    screen: Screen,
    processes: Processes,
    jobs: int,
    first: float,
) -> None:
    """Creates the Jobs and shows what the watches report, until all is done or time is up."""
    cache = Cache(client)
    for resource, see in ((JOBS, board.see_job), (WORKLOADS, board.see_workload)):
        cache.informer(resource, namespace=story.NAMESPACE).add_handler(partial(_tell, see))
    cache.informer(WORKLOADS, namespace=story.NAMESPACE).add_handler(partial(_tell_end, board))
    deadline = first + GRACE_SECONDS + SECONDS_PER_JOB * jobs
    async with anyio.create_task_group() as tasks:
        await tasks.start(_run_cache, cache)
        for index in range(jobs):
            await client.create(JOBS, story.job(index))
        while not board.done and time.monotonic() < deadline:
            processes.check()
            screen.show(board, time.monotonic() - first)
            await anyio.sleep(FRAME_SECONDS)
        screen.show(board, time.monotonic() - first)
        tasks.cancel_scope.cancel()


async def _run_cache(
    cache: Cache, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    await cache.run(task_status.started)


def _tell(see: Callable[[Obj], None], delta: Delta[Obj]) -> None:
    if delta.new is not None:
        see(delta.new)


def _tell_end(board: story.Board, delta: Delta[Obj]) -> None:
    if delta.kind is DeltaKind.DELETED and delta.old is not None:
        board.see_workload(delta.old, deleted=True)
