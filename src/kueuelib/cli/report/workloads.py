"""The Workloads of the page: waiting, running and evicted ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.api.phrases import counted
from kueuelib.app.explaining.short_verdicts import FITS, WAITS_FOR_CHECKS
from kueuelib.app.explaining.waiting import Waiting
from kueuelib.app.overview.values import Eviction, Running, Threat
from kueuelib.cli.explain.changes import smallest_text
from kueuelib.cli.report.cells import (
    MOST_NAMES,
    NONE,
    age,
    amount,
    lines,
    names,
    unfolded,
)
from kueuelib.cli.report.parts import Part, identifier, table
from kueuelib.pages.markup import Markup, Node, tag
from kueuelib.scheduler.explain.tried_change import TriedChange

WAITING = (
    ("Place", ""),
    ("Workload", "text"),
    ("LocalQueue", "text"),
    ("Priority", ""),
    ("Age", ""),
    ("Verdict", "text"),
    ("Smallest verified change", "text"),
)
RUNNING = (
    ("Workload", "text"),
    ("ClusterQueue", "text"),
    ("Uses", "text"),
    ("Priority", ""),
    ("Held for", ""),
    ("State", "text"),
    ("Can be preempted by", "text"),
)
EVICTED = (
    ("Ago", ""),
    ("Workload", "text"),
    ("Reason", "text"),
    ("Preempted for", "text"),
    ("Why", "text"),
)
NOT_SEARCHED = "not searched"
NOT_SEARCHED_YET = "not searched yet"


@attrs.frozen
class VerifiedChange:
    """The smallest change for a Workload that waits.

    Attributes:
        change: what to do; None when nothing helps.
        at: when it was verified, in seconds since the epoch.
    """

    change: TriedChange | None
    at: float


def waiting(
    rows: Iterable[Waiting],
    verified: Mapping[ObjectKey, VerifiedChange],
    now: float | None,
    *,
    on_demand: bool,
) -> Iterator[Part]:
    """A section per ClusterQueue, its Workloads in the order of the queue.

    Args:
        rows: by ClusterQueue.
        verified: the changes that were found.
        now: seconds since the epoch; None if the script fills in ages.
        on_demand: whether a button requests the whole answer.
    """
    queues: dict[str, list[Part]] = {}
    for row in rows:
        part = _waits(row, verified.get(row.key), now, on_demand=on_demand)
        queues.setdefault(row.cluster_queue, []).append(part)
    for queue, parts in queues.items():
        title = f"ClusterQueue {queue}" if queue else "In no ClusterQueue"
        yield _section(identifier("queue", queue), title, parts)


def _section(name: str, title: str, parts: Sequence[Part]) -> Part:
    count = counted(len(parts), "Workload waits", "Workloads wait")
    said = f"Waiting in {title}, in the order of the queue"
    return table(name, title, said, WAITING, parts, kind="rows queue", text=count)


def _waits(
    row: Waiting, known: VerifiedChange | None, now: float | None, *, on_demand: bool
) -> Part:
    part = _waiting_row(
        row.key,
        row.owner,
        row.workload.spec.queue_name,
        row.workload.spec.priority or 0,
        row.workload.metadata.creation_timestamp,
        _verdict(row),
        "" if row.message == row.why else row.message,
        _said(row, known, NOT_SEARCHED_YET if on_demand else NOT_SEARCHED),
        None if known is None or known.change is None or row.first_fix else known.at,
        now,
        on_demand,
    )
    return attrs.evolve(part, mark="-" if row.place is None else str(row.place))


@lru_cache(maxsize=16384, typed=True)
def _waiting_row(
    key: ObjectKey,
    owner: str,
    queue: str,
    priority: int,
    created: float | None,
    verdict: str,
    message: str,
    change: str | Markup,
    verified_at: float | None,
    now: float | None,
    on_demand: bool,
) -> Part:
    """A row without its place in the queue, so that most rows stay equal in the next state."""
    name = identifier("waits", key.namespace, key.name)
    cells = (
        _cell(),
        _workload(key, owner),
        _cell(queue, class_="text"),
        _cell(str(priority)),
        _cell(age(created, now)),
        _cell(unfolded(verdict, message), class_="text verdict"),
        _cell(change, *_beside(key, name, verified_at, now, on_demand), class_="text change"),
    )
    return _row(name, cells, _find(key, owner))


def _verdict(row: Waiting) -> str:
    """The verdict with its reason in short."""
    why = row.why
    return f"{row.verdict}: {why}" if why and not why.startswith(row.verdict) else row.verdict


def _said(row: Waiting, known: VerifiedChange | None, unknown: str) -> Node:
    """The cell about a change that admits a Workload."""
    if row.verdict == FITS:
        return tag("span", "none is needed", class_="soft")
    if row.first_fix:
        return row.first_fix
    if known is None:
        return tag("span", unknown, class_="soft")
    return "no single change admits it" if known.change is None else smallest_text(known.change)


def _beside(
    key: ObjectKey, name: str, verified_at: float | None, now: float | None, on_demand: bool
) -> Iterator[Node]:
    """When a change was verified, and the button for more."""
    if verified_at is not None:
        yield tag("div", "verified ", age(verified_at, now), " ago", class_="soft")
    if on_demand:
        label = f"Explain {key}"
        where = f"/explain/{identifier('', key.namespace, key.name).lstrip('/')}"
        yield " "
        yield tag(
            "button", "Explain", type="button", aria_label=label, data_explain=where, id=f"{name}/b"
        )


def _workload(key: ObjectKey, owner: str) -> Markup:
    said = tag("div", owner, class_="soft") if owner else ""
    return tag("th", str(key), said, scope="row", class_="text", role="rowheader")


def _cell(*children: Node, class_: str | None = None) -> Markup:
    """A cell with an explicit role, because not all browsers keep roles in rows laid out as
    grids.
    """
    return tag("td", *children, class_=class_, role="cell")


def _row(name: str, cells: Iterable[Markup], find: str) -> Part:
    """A row of a table as a part of the page; a mark goes into its first cell."""
    head, end, tail = tag("tr", *cells, id=name, data_find=find, role="row").partition("</t")
    return Part(name, head, f"{end}{tail}")


def _find(key: ObjectKey, *more: str) -> str:
    """The text that the filter of the page searches."""
    return " ".join((str(key), *more)).lower()


def running(rows: Iterable[Running], now: float | None) -> Iterator[Part]:
    """A row for each Workload that holds quota."""
    for row in rows:
        name = identifier("awaits" if row.awaited else "runs", row.key.namespace, row.key.name)
        owner = row.workload.metadata.controller
        owned = "" if owner is None else f"{owner.kind}/{owner.name}"
        cells = (
            _workload(row.key, owned),
            _cell(row.cluster_queue, class_="text"),
            _cell(lines(_use(row)) or NONE, class_="text"),
            _cell(str(row.workload.spec.priority or 0)),
            _cell(age(row.since, now)),
            _cell(*_state(row, now), class_="text"),
            _cell(lines(_threats(row)) or "none", class_="text threats"),
        )
        yield _row(name, cells, _find(row.key, owned, row.cluster_queue))


def _use(row: Running) -> Iterator[str]:
    for pair, value in row.uses:
        yield f"{pair.flavor}: {amount(pair, value)} {pair.resource}"


def _state(row: Running, now: float | None) -> Iterator[Node]:
    if row.leaving:
        yield "being evicted"
    elif row.admitted:
        yield "admitted"
    else:
        yield WAITS_FOR_CHECKS
    for one in row.awaited:
        yield tag("div", one.who, ", for ", age(one.since, now))


def _threats(row: Running) -> Iterator[Node]:
    if row.wanted_by:
        yield tag("strong", f"preempted now by {names(row.wanted_by)}")
    for threat in row.threats[:MOST_NAMES]:
        yield threat_text(threat)
    more = len(row.threats) - MOST_NAMES
    if more > 0:
        yield f"{counted(more, 'more ClusterQueue', 'more ClusterQueues')}"


def threat_text(threat: Threat) -> str:
    """Which Workloads of a ClusterQueue can preempt another one, and how many of them wait."""
    if threat.above is None:
        which = "any priority"
    elif threat.or_older:
        which = f"priority above {threat.above}, or equal and queued earlier"
    else:
        which = f"priority above {threat.above}"
    count = f" ({threat.waiting:,} waiting)" if threat.waiting else ""
    return f"{threat.cluster_queue}: {which}{count}"


def evicted(rows: Iterable[Eviction], now: float | None) -> Iterator[Part]:
    """A row for each eviction."""
    for row in rows:
        name = identifier("left", row.key.namespace, row.key.name)
        when = tag("div", "has quota again", class_="soft") if row.over else ""
        times = counted(row.times, "eviction", "evictions") if row.times else ""
        often = tag("div", f"{times} for this reason", class_="soft") if row.times > 1 else ""
        cells = (
            _cell(age(row.at, now), when),
            _workload(row.key, ""),
            _cell(row.reason, often, class_="text"),
            _cell(row.preemptor or NONE, class_="text"),
            _cell(row.why, class_="text why"),
        )
        yield _row(name, cells, _find(row.key, row.preemptor))
