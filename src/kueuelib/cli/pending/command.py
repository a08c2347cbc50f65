"""`kueuelib pending`: the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import attrs

from kueuelib.api.ages import duration
from kueuelib.api.meta import Obj, format_time
from kueuelib.api.names import DEFAULT_NAMESPACE
from kueuelib.app.configuration import Configuration
from kueuelib.app.explaining.selection import Selection
from kueuelib.app.explaining.waiting import Listing, Waiting, list_pending
from kueuelib.app.part_settings import engine_settings
from kueuelib.app.running_configuration import given_configuration, running_configuration
from kueuelib.cli.columns import columns
from kueuelib.cli.explain.data import change_data
from kueuelib.cli.explain.text import smallest_text
from kueuelib.errors import ConfigError
from kueuelib.runtime import logs
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import reached

TITLES = ("CLUSTERQUEUE", "PLACE", "NAMESPACE", "WORKLOAD", "PRIORITY", "AGE", "VERDICT", "WHY")
WIDE = ("LOCALQUEUE", "OWNER", "SMALLEST CHANGE", "MESSAGE")


def run(
    local_queue: str,
    cluster_queue: str,
    namespace: str,
    output: str,
    changes: int,
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
        changes: for how many of them to search for the smallest change.
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
    given = given_configuration(config)
    selection = Selection(namespace, local_queue, cluster_queue)
    listing = anyio.run(
        _list,
        selection,
        everywhere or bool(cluster_queue and not namespace),
        kubeconfig,
        server_timeout,
        given,
        changes,
    )
    if output == "json":
        sys.stdout.write(json.dumps(to_data(listing), indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(to_text(listing, wide=output == "wide"))
    return 0


async def _list(
    selection: Selection,
    everywhere: bool,
    kubeconfig: Path | None,
    server_timeout: float,
    given: Configuration | None,
    changes: int,
) -> Listing:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-pending") as client:
        endpoint = await client.transport.endpoint()
        here = selection.namespace or endpoint.namespace or DEFAULT_NAMESPACE
        selection = attrs.evolve(selection, namespace="" if everywhere else here)
        running = await running_configuration(client, given)
        settings = engine_settings(running.configuration)
        listing = await list_pending(client, selection, SYSTEM_CLOCK.now(), settings, changes)
    return attrs.evolve(listing, notes=(*listing.notes, *running.notes))


def to_text(listing: Listing, *, wide: bool) -> str:
    """A table, followed by notes."""
    lines = [f"Note: {note}\n" for note in listing.notes]
    rows = (*listing.rows, *listing.awaiting)
    if not rows:
        return "".join(["Nothing waits.\n", *lines])
    titles = (*TITLES, *(WIDE if wide else WIDE[2:3]))
    table = columns(titles, [_cells(row, listing.now, wide=wide) for row in rows])
    return "".join([table, *lines])


def _cells(row: Waiting, now: float, *, wide: bool) -> tuple[str, ...]:
    created = row.workload.metadata.creation_timestamp
    cells = (
        row.cluster_queue,
        "" if row.place is None else str(row.place),
        row.key.namespace,
        row.key.name,
        str(row.workload.spec.priority or 0),
        "" if created is None else duration(now - created),
        row.verdict,
        row.why,
    )
    change = row.first_fix or ("" if row.change is None else smallest_text(row.change))
    if not wide:
        return (*cells, change)
    return (*cells, row.workload.spec.queue_name, row.owner, change, row.message)


def to_data(listing: Listing) -> Obj:
    """All of it, for machines."""
    return {
        "decided": listing.decided,
        "items": [_item(row) for row in (*listing.rows, *listing.awaiting)],
        "notes": list(listing.notes),
    }


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
