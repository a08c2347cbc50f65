"""The page: its content, as parts, and its whole appearance, from the facts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import attrs

from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.api.phrases import counted
from kueuelib.api.quantity import format_amount
from kueuelib.app.explaining.waiting import FITS, Waiting
from kueuelib.app.overview.cohort_trees import COHORT
from kueuelib.app.overview.gathering import MOST_DOMAINS_SHOWN
from kueuelib.app.overview.values import (
    CohortTree,
    NodesOfFlavor,
    Overview,
    QueueOrCohort,
    QuotaUse,
    RunningWorkload,
)
from kueuelib.cli.explain.changes import changes_by_end, smallest_text, then_checks
from kueuelib.cli.report.parts import TEMPLATES, PageElement, drawn, identifier, table
from kueuelib.pages import resource, style
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.reasons import render

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.answer import Explanation
    from kueuelib.scheduler.explain.rows import Row
    from kueuelib.scheduler.explain.trial import TriedChange


# ---- the content of a page, as parts: quota, Workloads that wait, run or were evicted ------------

_OTHERS = "alone"
_cached_row = lru_cache(maxsize=16384, typed=True)(drawn)
"""A row without its place in the queue, so that most rows stay equal in the next state."""


@attrs.frozen
class VerifiedChange:
    """The smallest change for a Workload that waits.

    Attributes:
        change: what to do; None when nothing helps.
        at: when it was verified, in seconds since the epoch.
    """

    change: TriedChange | None
    at: float


@attrs.frozen
class View:
    """The content of a page.

    Attributes:
        facts: of the cluster.
        verified: the changes that were looked for.
        on_demand: whether the page can request whole answers.
    """

    facts: Overview
    verified: Mapping[ObjectKey, VerifiedChange]
    on_demand: bool = False

    @property
    def complete(self) -> bool:
        """Whether the search ran for all Workloads that need a change."""
        return all(row.key in self.verified or row.verdict == FITS for row in self.facts.waiting)

    def containers(self, now: float | None) -> dict[str, tuple[PageElement, ...]]:
        """The outermost parts, by the id of the element that holds them.

        Args:
            now: seconds since the epoch; None if the script of the page fills in ages.
        """
        facts = self.facts
        awaits = [_runs("awaits", one, now) for one in facts.running if one.awaited]
        runs = [_runs("runs", one, now) for one in facts.running if not one.awaited]
        left = [drawn("left", identifier("left", *one.key), one, now) for one in facts.evictions]
        checked = "Workloads that wait for admission checks"
        return {
            "summary": (drawn("counts", "counts", facts),),
            "notes": tuple(drawn("note", f"note/{at}", one) for at, one in enumerate(facts.notes)),
            "trees": tuple(_trees(facts.trees)),
            "topologies": tuple(map(_topology, facts.nodes)),
            "waiting": tuple(self._waiting(now)),
            "awaiting": _listed("checks", checked, awaits, "rows holders"),
            "running": _listed("holders", "Workloads with quota", runs, "rows holders"),
            "evicted": _listed("evictions", "Last evictions", left, "rows evictions"),
        }

    def _waiting(self, now: float | None) -> Iterator[PageElement]:
        """A section per ClusterQueue, its Workloads in the order of the queue."""
        queues: dict[str, list[PageElement]] = {}
        for row in self.facts.waiting:
            queues.setdefault(row.cluster_queue, []).append(self._waits(row, now))
        for queue, parts in queues.items():
            title = f"ClusterQueue {queue}" if queue else "In no ClusterQueue"
            said = f"Waiting in {title}, in the order of the queue"
            count = counted(len(parts), "Workload waits", "Workloads wait")
            yield table(identifier("queue", queue), title, said, parts, "rows queue", count)

    def _waits(self, row: Waiting, now: float | None) -> PageElement:
        known = self.verified.get(row.key)
        text, soft = self._change(row, known)
        why = row.why
        verdict = (
            f"{row.verdict}: {why}" if why and not why.startswith(row.verdict) else row.verdict
        )
        part = _cached_row(
            "waits",
            identifier("waits", *row.key),
            row.key,
            row.owner,
            row.workload.spec.queue_name,
            row.workload.spec.priority or 0,
            row.workload.metadata.creation_timestamp,
            verdict,
            "" if row.message in (why, verdict) else row.message,
            text,
            soft,
            None if known is None or known.change is None or row.first_fix else known.at,
            now,
            self.on_demand,
        )
        return attrs.evolve(part, mark="-" if row.place is None else str(row.place))

    def _change(self, row: Waiting, known: VerifiedChange | None) -> tuple[str, bool]:
        """What is said about a change that admits a Workload, and whether it is a side note."""
        if row.verdict == FITS:
            return "none is needed", True
        if row.first_fix:
            return row.first_fix, False
        if known is None:
            return "not searched yet" if self.on_demand else "not searched", True
        none = "no single change admits it"
        return none if known.change is None else smallest_text(known.change), False


def _runs(kind: str, row: RunningWorkload, now: float | None) -> PageElement:
    return drawn("runs", identifier(kind, *row.key), row, now)


def _listed(
    name: str, title: str, rows: Sequence[PageElement], kind: str
) -> tuple[PageElement, ...]:
    return (table(name, title, title, rows, kind),) if rows else ()


def _trees(trees: Iterable[CohortTree]) -> Iterator[PageElement]:
    """A section for each tree; ClusterQueues without a cohort, and idle trees, share one."""
    others: list[QueueOrCohort] = []
    for tree in trees:
        if tree.places[0].kind == COHORT and not all(place.idle for place in tree.places):
            yield _tree(f"Cohort {tree.name}", identifier("tree", tree.name), tree.places)
        else:
            others += tree.places
    if others:
        idle = any(place.kind == COHORT for place in others)
        yield _tree("ClusterQueues without a cohort" + idle * ", and idle cohorts", _OTHERS, others)


def _tree(title: str, name: str, places: Sequence[QueueOrCohort]) -> PageElement:
    idle = [place for place in places if place.idle and (place.depth or name == _OTHERS)]
    rows = [row for place in places if place not in idle for row in _place(name, place)]
    if idle:
        rows.append(drawn("idle", f"{name}/idle", idle, bool(rows)))
    return table(name, title, f"Quota of {title}", rows, "quotas")


def _place(tree: str, place: QueueOrCohort) -> Iterator[PageElement]:
    """A row for each flavor and resource with any amount, or one that says that there is none."""
    zeros = [use.pair for use in place.uses if use == QuotaUse(use.pair)]
    uses = [use for use in place.uses if use.pair not in zeros]
    for at, use in enumerate(uses or (None,)):
        name = f"{tree}/{identifier(place.kind, place.name, *(use.pair if use else ()))}"
        yield drawn("place", name, place, use, at > 0, zeros)


def _topology(nodes: NodesOfFlavor) -> PageElement:
    """A section for the nodes of a flavor: a row for each level and resource, and one for each
    domain of the first level, with all that is below.
    """
    flavor, levels = nodes.flavor, tuple(level for level, _ in nodes.levels)
    rows = []
    for level, number in nodes.levels:
        for at, room in enumerate(one for one in nodes.rooms if one.level == level):
            pair, used = FlavorResource(flavor, room.resource), room.capacity - room.free
            use = QuotaUse(pair, nominal=room.capacity, own=used)
            name = identifier("level", flavor, level, room.resource)
            rows.append(drawn("level", name, level, number, room, use, at > 0))
    shown = nodes.domains[:MOST_DOMAINS_SHOWN]
    for one in shown:
        name = identifier("domain", flavor, *one.path)
        rows.append(_cached_row("domains", name, one, levels, flavor))
    said = counted(nodes.levels[-1][1], nodes.leaf)
    if nodes.closed:
        said += f"; {nodes.closed:,} more, cordoned or not ready, take no pods now"
    if len(shown) < len(nodes.domains):
        of = f"{len(shown)} of {len(nodes.domains):,}"
        said += f"; only {of} domains of the first level are shown"
    title = f"Topology {nodes.topology}, flavor {flavor}"
    section = identifier("topology", flavor)
    return table(section, title, f"Nodes of {title}", rows, "quotas places", said)


# --------------------------------------------------------------------------------------------------

_PACKAGE = "kueuelib.cli.report"
_HEAD = ("Pod set", "Resource", "Flavor", "Verdict", "Asks for", "Used", "Quota", "Available")


def _hashed(text: str) -> str:
    """The source expression of a Content-Security-Policy that allows one inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


STYLE: Final = style(_PACKAGE, "page.css")
SCRIPT: Final = resource(_PACKAGE, "page.js")
POLICY: Final = (
    f"default-src 'none'; script-src {_hashed(SCRIPT)}; style-src {_hashed(STYLE)}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
"""Nothing external, and no script or style other than those of the page."""


def page(view: View, now: float, live: str = "") -> str:
    """The page as HTML, well-formed XML but for its script; it refers to nothing outside itself.

    Args:
        view: what it shows.
        now: seconds since the epoch.
        live: where the page gets changes, and since which state; empty for a file.
    """
    containers = view.containers(now).items()
    return TEMPLATES.get_template("page.html").render(
        policy=POLICY,
        style=STYLE,
        script=SCRIPT,
        facts=view.facts,
        moment=format_time(view.facts.now),
        inner={name: "".join(part.text() for part in parts) for name, parts in containers},
        on_demand=view.on_demand,
        complete=view.complete,
        searches=len(view.verified),
        live=live,
    )


def explanation(answer: Explanation) -> str:
    """Why a Workload waits, the numbers, and every change that would help.

    Args:
        answer: of a Workload without quota.
    """
    title, rows = "What it asks for, by flavor", [_row(row) for row in answer.rows]
    return TEMPLATES.get_template("explanation.html").render(
        it=answer,
        numbers={"title": title, "head": _HEAD, "rows": rows, "texts": 4},
        problems=[f"{one.subject}: {one.problem}; {one.fix}" for one in answer.problems],
        render=render,
        changes_by_end=changes_by_end,
        then_checks=then_checks,
    )


def _row(row: Row) -> list[str]:
    amounts = (row.requested, row.used, row.nominal, row.available)
    texts = [format_amount(row.resource, one) for one in amounts]
    return [row.pod_set, row.resource, row.flavor or "-", row.fit.value, *texts]
