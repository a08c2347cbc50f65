"""Plays the demo: starts the processes, creates objects, watches them, and gives a verdict."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import anyio
import anyio.abc
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.meta import Obj
from kueuelib.api.phrases import counted
from kueuelib.cli.demo import racks, story
from kueuelib.cli.demo.story import QUOTA, Board
from kueuelib.cli.terminal import terminal
from kueuelib.errors import KueuelibError
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.kubeconfig import find_source
from kueuelib.runtime.transport import Transport
from kueuelib.testing.processes import LocalCluster, Processes

# ---- draws the board: a live table on a terminal, lines elsewhere, and the summary ---------------

COLOURS = {
    "Queued": "yellow",
    "Admitted": "cyan",
    "Running": "blue",
    "Finished": "green",
    "Failed": "red",
}
WIDE = 114
"""The terminal width at which every cause of a wait fits on one line."""
PICTURE_WIDTH = 85
QUIET_SECONDS = 0.3
"""How long a board stays the same before it is drawn for the picture."""


class Screen:
    """Shows the board while it changes.

    Args:
        console: where to draw.
        plain: lines instead of a live table; always on if the console is not a terminal.
    """

    def __init__(self, console: Console, *, plain: bool) -> None:
        self._console = console
        self._shown = 0
        self._moment: list[str] = []
        self._since = 0.0
        self._best: tuple[tuple[int, int], RenderableType] = ((0, 0), "")
        live = console.is_terminal and not plain
        self._live = Live(console=console, refresh_per_second=8) if live else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Prints one line about what the demo does."""
        self._console.print(text, highlight=False)

    def show(self, board: Board, seconds: float) -> None:
        """Shows the present state; `seconds` since the first Job."""
        moment = [str(row) for row in board.rows.values()]
        if moment != self._moment or not board.settled:
            self._moment, self._since = moment, seconds
        elif seconds - self._since >= QUIET_SECONDS:
            narrow = draw(board, seconds, PICTURE_WIDTH)
            self._best = max(self._best, (_variety(board), narrow), key=lambda one: one[0])
        if self._live:
            self._live.update(draw(board, seconds, self._console.width))
            return
        for line in board.lines[self._shown :]:
            self._console.print(f"{seconds:5.1f} s  {line}", highlight=False, soft_wrap=True)
        self._shown = len(board.lines)

    def picture(self) -> str:
        """An SVG of the live table at its fullest: with most states and reasons, when nothing
        changed for a while, so that rows, reasons and use are of one moment.
        """
        return picture_of(self._best[1])


def _variety(board: Board) -> tuple[int, int]:
    """How much a picture of the board shows: different states, and different reasons to wait."""
    rows = board.rows.values()
    return len({row.state for row in rows}), len({row.note for row in rows if row.note})


def picture_of(table: RenderableType) -> str:
    """A table as SVG; it refers to nothing outside the file."""
    console = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(table)
    text = console.export_svg(title="kueuelib demo", unique_id="demo")
    text = re.sub(r"@font-face \{.*?\}", "", text, flags=re.DOTALL)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def draw(board: Board, seconds: float, width: int) -> RenderableType:
    """The live view: one row per Job, and the use of each flavor; narrow if necessary."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("Job", "Queue", "Request", "State", "Flavor", "Why it waited when last tried"):
        table.add_column(column, no_wrap=True)
    for name in sorted(board.rows):
        row = board.rows[name]
        state = Text(row.state, style=COLOURS.get(row.state, ""))
        note = row.note if width >= WIDE else row.note.replace("; ", "\n")
        table.add_row(row.name, row.queue, row.request, state, row.flavors, note)
    return Group(table, Text(_usage(board, seconds)))


def _usage(board: Board, seconds: float) -> str:
    """The sums of the rows above it."""
    holders = [row for row in board.rows.values() if row.holds]
    flavors = []
    for flavor in next(iter(QUOTA.values())):
        limit = sum(each[flavor] for each in QUOTA.values())
        used = sum(board.usage.get(row.name, {}).get(flavor, 0) for row in holders) / 1000
        flavors.append(f"{flavor}: {used:g} of {limit} CPUs in use")
    queues = []
    for name in QUOTA:
        waiting = sum(row.queue == name and row.waits for row in board.rows.values())
        having = sum(row.queue == name for row in holders)
        words = counted(waiting, "waits", "wait"), counted(having, "has quota", "have quota")
        queues.append(f"{name}: {', '.join(words)}")
    return "\n".join(("", "   ".join([*flavors, f"{seconds:.1f} s"]), "   ".join(queues)))


def summary(board: Board, seconds: float) -> RenderableType:
    """The table at the end."""
    table = Table(title="Summary", title_justify="left", expand=False)
    for column in ("Job", "Queue", "Request", "Flavor", "Waited", "State"):
        table.add_column(column, no_wrap=True, justify="right" if column == "Waited" else "left")
    for name in sorted(board.rows):
        row = board.rows[name]
        seconds_waited = "-" if row.waited is None else f"{row.waited:.0f} s"
        table.add_row(row.name, row.queue, row.request, row.flavors, seconds_waited, row.state)
    peaks = ", ".join(
        f"{flavor} {board.peak.get(flavor, 0)} of {sum(f[flavor] for f in QUOTA.values())} CPUs"
        for flavor in next(iter(QUOTA.values()))
    )
    finished = sum(row.state == "Finished" for row in board.rows.values())
    waited = sum(row.had_to_wait for row in board.rows.values())
    text = (
        f"{finished} of {len(board.wanted)} Jobs finished in {seconds:.1f} s, "
        f"{waited} had to wait; peak use: {peaks}"
    )
    return Group(table, Text(text))


# --------------------------------------------------------------------------------------------------

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
    return _run(partial(_play, jobs, console, plain=plain, picture=picture), console, keep=keep)


def run_processes(*, keep: bool, picture: Path | None = None) -> int:
    """Plays the demo whose pods are local processes; arguments and result are those of `run`."""
    from kueuelib.cli.demo import real

    console = terminal()
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    async def play(folder: Path) -> int:
        faults = await real.play(folder, say)
        if picture is not None:
            await anyio.Path(picture).write_text(picture_of(Text("\n".join(lines))))
        return _verdict(faults, console)

    return _run(play, console, keep=keep)


def _run(play: Callable[[Path], Awaitable[int]], console: Console, *, keep: bool) -> int:
    folder = Path(tempfile.mkdtemp(prefix="kueuelib-demo-"))
    try:
        return anyio.run(play, folder)
    except* (KueuelibError, TimeoutError) as group:
        for error in _leaves(group):
            console.print(f"the demo failed: {error}", highlight=False, markup=False)
    finally:
        if keep:
            console.print(f"log files: {folder}", highlight=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _play(
    jobs: int, console: Console, folder: Path, *, plain: bool, picture: Path | None
) -> int:
    board = story.Board(tuple(story.job(i)["metadata"]["name"] for i in range(jobs)))
    with Processes(folder) as processes:
        cluster = LocalCluster(processes)
        with Screen(console, plain=plain) as screen:
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
        if not faults:
            async with await connect(cluster.kubeconfig) as client:
                faults = await racks.play(client, screen.say)
    return _verdict(faults, console)


def _verdict(faults: list[str], console: Console) -> int:
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
        cache.informer(resource, namespace=story.NAMESPACE).add_handler(partial(_show, see))
    cache.informer(WORKLOADS, namespace=story.NAMESPACE).add_handler(partial(_show_end, board))
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


def _show(see: Callable[[Obj], None], delta: Delta[Obj]) -> None:
    if delta.new is not None:
        see(delta.new)


def _show_end(board: story.Board, delta: Delta[Obj]) -> None:
    if delta.kind is DeltaKind.DELETED and delta.old is not None:
        board.see_workload(delta.old, deleted=True)
