"""`kueuelib pending`: the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import anyio
import attrs

from kueuelib.api.meta import Obj, format_time
from kueuelib.api.names import DEFAULT_NAMESPACE
from kueuelib.api.phrases import duration
from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.explaining.waiting import (
    Listing,
    Waiting,
    WorkloadSelection,
    ahead,
    list_pending,
    with_change,
)
from kueuelib.app.running_configuration import given_configuration, running_configuration
from kueuelib.cli.explain.changes import change_data, smallest_text
from kueuelib.cli.progress import SEARCHING, StepProgress
from kueuelib.errors import ConfigError
from kueuelib.runtime import logs
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import reached

# ---- tables of plain columns, as kubectl prints them ---------------------------------------------

GAP = 3


class Columns:
    """A table whose rows are printed one by one.

    Args:
        titles: of the columns.
        rows: the cells that are known before; the last cells may still be missing, because the last
            column is not padded.
    """

    def __init__(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = [titles, *map(_plain, rows)]
        self._widths = [
            max(len(row[number]) for row in table) + GAP for number in range(len(titles) - 1)
        ]

    def line(self, cells: Sequence[str]) -> str:
        """A line with its line break.

        Args:
            cells: of one row, or the titles; an empty one is shown as `-`.
        """
        *padded, last = _plain(cells)
        texts = (cell.ljust(width) for cell, width in zip(padded, self._widths, strict=True))
        return "".join((*texts, last, "\n"))


def _plain(cells: Sequence[str]) -> list[str]:
    return [cell.replace("\n", " ") or "-" for cell in cells]


# --------------------------------------------------------------------------------------------------

TITLES = ("CLUSTERQUEUE", "PLACE", "NAMESPACE", "WORKLOAD", "PRIORITY", "AGE", "VERDICT", "WHY")
WIDE = ("LOCALQUEUE", "OWNER", "MESSAGE")
CHANGE, FIX = "SMALLEST CHANGE", "FIX"
START = "STARTS WITHIN"


def run(
    local_queue: str,
    cluster_queue: str,
    namespace: str,
    output: str,
    changes: int | None,
    kubeconfig: Path | None,
    config: Path | None,
    server_timeout: float,
    *,
    everywhere: bool,
) -> int:
    """Prints the Workloads without quota, and those with quota that wait for checks.

    Args:
        local_queue: only those of this LocalQueue; empty for any.
        cluster_queue: only those of this ClusterQueue, of every namespace; empty for any.
        namespace: that of the kubeconfig's context when empty.
        output: `text`, `wide` or `json`.
        changes: for how many of them to search for the smallest change; None: for none.
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the manager's configuration file; found in the cluster when None.
        server_timeout: seconds to wait for a server that does not answer.
        everywhere: all namespaces.

    Raises:
        ConfigError: an argument or a file is not valid.
        KueuelibError: the queue does not exist, or the server refused something.
    """
    if everywhere and namespace:
        raise ConfigError("kueuelib pending", "-A and -n contradict each other", "leave one out")
    if local_queue and (everywhere or cluster_queue):
        problem = "a LocalQueue is in one namespace, and belongs to one ClusterQueue"
        raise ConfigError("kueuelib pending", problem, "give -q without -A and -c")
    logs.configure("console", "warning")
    changes = changes or 0
    given = given_configuration(config)
    selection = WorkloadSelection(namespace, local_queue, cluster_queue)
    listing = anyio.run(
        _list,
        selection,
        everywhere or bool(cluster_queue and not namespace),
        kubeconfig,
        server_timeout,
        given,
    )
    rows = with_changes(listing, changes)
    if output == "json":
        data = to_data(listing, rows)
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        return 0
    for line in to_lines(listing, rows, wide=output == "wide", searches=changes > 0):
        sys.stdout.write(line)
        sys.stdout.flush()
    return 0


async def _list(
    selection: WorkloadSelection,
    everywhere: bool,
    kubeconfig: Path | None,
    server_timeout: float,
    given: Configuration | None,
) -> Listing:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-pending") as client:
        endpoint = await client.transport.endpoint()
        here = selection.namespace or endpoint.namespace or DEFAULT_NAMESPACE
        selection = attrs.evolve(selection, namespace="" if everywhere else here)
        running = await running_configuration(client, given)
        settings = engine_settings(running.configuration)
        listing = await list_pending(client, selection, SYSTEM_CLOCK.now(), settings)
    notes = (*listing.notes, *running.warnings)
    return attrs.evolve(listing, notes=notes, partial=bool(running.ending))


def with_changes(listing: Listing, most: int) -> Iterator[Waiting]:
    """All Workloads in their order, each as soon as its change is known, with progress.

    Args:
        listing: the Workloads.
        most: for how many of them to search, those ahead in a queue first.
    """
    world = listing.world
    first = [] if world is None else ahead(listing.rows, world, most)
    keys = {row.key for row in first}
    with StepProgress(SEARCHING, len(first)) as progress:
        for row in listing.rows:
            if world is None or row.key not in keys:
                yield row
                continue
            progress.step(str(row.key))
            searched = with_change(world, row, listing.now)
            progress.clear()
            yield searched
    yield from listing.awaiting


def to_lines(
    listing: Listing, rows: Iterable[Waiting], *, wide: bool, searches: bool
) -> Iterator[str]:
    """The lines of a table, each as soon as its row is known, followed by notes.

    Args:
        listing: the Workloads.
        rows: the same ones in their order, with changes.
        wide: with more columns.
        searches: whether there is a column for changes; otherwise there is one for fixes, if a
            mistake in the set-up keeps a Workload from being tried.
    """
    known = (*listing.rows, *listing.awaiting)
    served = any(row.start for row in known)
    last = (CHANGE,) if searches else (FIX,) if any(row.first_fix for row in known) else ()
    titles = (*TITLES, *((START,) if served else ()), *(WIDE if wide else ()), *last)

    def cells(row: Waiting) -> tuple[str, ...]:
        return _cells(row, listing.now, wide=wide, served=served)

    table = Columns(titles, [cells(row) for row in known])
    if known:
        yield table.line(titles)
    for row in rows:
        change = row.first_fix or ("" if row.change is None else smallest_text(row.change))
        yield table.line((*cells(row), *(change for _ in last)))
    if not known:
        yield "Nothing that waits can be seen.\n" if listing.partial else "Nothing waits.\n"
    yield from (f"Note: {note}\n" for note in listing.notes)


def _cells(row: Waiting, now: float, *, wide: bool, served: bool) -> tuple[str, ...]:
    created = row.workload.metadata.creation_timestamp
    cells: tuple[str, ...] = (
        row.cluster_queue,
        "" if row.place is None else str(row.place),
        row.key.namespace,
        row.key.name,
        str(row.workload.spec.priority or 0),
        "" if created is None else duration(now - created),
        row.verdict,
        row.why,
    )
    if served:
        from kueuelib.jobs.client.progress import start_text

        cells = (*cells, start_text(*row.start, now) if row.start else "")
    return (*cells, row.workload.spec.queue_name, row.owner, row.message) if wide else cells


def to_data(listing: Listing, rows: Iterable[Waiting]) -> Obj:
    """All of it, for machines.

    Args:
        listing: the Workloads.
        rows: the same ones in their order, with changes.
    """
    return {
        "decided": listing.decided,
        "items": [_item(row) for row in rows],
        "notes": list(listing.notes),
    }


def _start(row: Waiting, which: int) -> str | None:
    at = None if row.start is None else row.start[which]
    return None if at is None else format_time(at)


def _item(row: Waiting) -> Obj:
    created = row.workload.metadata.creation_timestamp
    return {
        "namespace": row.key.namespace,
        "name": row.key.name,
        "owner": row.owner,
        "localQueue": row.workload.spec.queue_name,
        "clusterQueue": row.cluster_queue,
        "place": row.place,
        "placeInLocalQueue": row.place_in_local_queue,
        "p50": _start(row, 0),
        "p90": _start(row, 1),
        "priority": row.workload.spec.priority or 0,
        "creationTimestamp": None if created is None else format_time(created),
        "verdict": row.verdict,
        "reason": row.reason,
        "why": row.why,
        "message": row.message,
        "preempts": [str(key) for key in row.victims],
        "changesSearched": row.searched,
        "problems": [attrs.asdict(one) for one in row.problems],
        "smallestChange": None if row.change is None else change_data(row.change),
    }
