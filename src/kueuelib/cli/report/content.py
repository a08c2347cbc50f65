"""The content of a page, as parts: quota, Workloads that wait, run or were evicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.api.phrases import counted
from kueuelib.app.explaining.short_verdicts import FITS
from kueuelib.app.explaining.waiting import Waiting
from kueuelib.app.overview.trees import COHORT
from kueuelib.app.overview.values import Overview, Place, QuotaUse, Running, Tree
from kueuelib.cli.explain.changes import smallest_text
from kueuelib.cli.report.parts import Part, drawn, identifier, table

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.tried_change import TriedChange

_OTHERS = "alone"
_row = lru_cache(maxsize=16384, typed=True)(drawn)
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

    def containers(self, now: float | None) -> dict[str, tuple[Part, ...]]:
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
            "waiting": tuple(self._waiting(now)),
            "awaiting": _listed("checks", checked, awaits, "rows holders"),
            "running": _listed("holders", "Workloads with quota", runs, "rows holders"),
            "evicted": _listed("evictions", "Last evictions", left, "rows evictions"),
        }

    def _waiting(self, now: float | None) -> Iterator[Part]:
        """A section per ClusterQueue, its Workloads in the order of the queue."""
        queues: dict[str, list[Part]] = {}
        for row in self.facts.waiting:
            queues.setdefault(row.cluster_queue, []).append(self._waits(row, now))
        for queue, parts in queues.items():
            title = f"ClusterQueue {queue}" if queue else "In no ClusterQueue"
            said = f"Waiting in {title}, in the order of the queue"
            count = counted(len(parts), "Workload waits", "Workloads wait")
            yield table(identifier("queue", queue), title, said, parts, "rows queue", count)

    def _waits(self, row: Waiting, now: float | None) -> Part:
        known = self.verified.get(row.key)
        text, soft = self._change(row, known)
        why = row.why
        verdict = (
            f"{row.verdict}: {why}" if why and not why.startswith(row.verdict) else row.verdict
        )
        part = _row(
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


def _runs(kind: str, row: Running, now: float | None) -> Part:
    return drawn("runs", identifier(kind, *row.key), row, now)


def _listed(name: str, title: str, rows: Sequence[Part], kind: str) -> tuple[Part, ...]:
    return (table(name, title, title, rows, kind),) if rows else ()


def _trees(trees: Iterable[Tree]) -> Iterator[Part]:
    """A section for each tree; ClusterQueues without a cohort, and idle trees, share one."""
    others: list[Place] = []
    for tree in trees:
        if tree.places[0].kind == COHORT and not all(place.idle for place in tree.places):
            yield _tree(f"Cohort {tree.name}", identifier("tree", tree.name), tree.places)
        else:
            others += tree.places
    if others:
        idle = any(place.kind == COHORT for place in others)
        yield _tree("ClusterQueues without a cohort" + idle * ", and idle cohorts", _OTHERS, others)


def _tree(title: str, name: str, places: Sequence[Place]) -> Part:
    idle = [place for place in places if place.idle and (place.depth or name == _OTHERS)]
    rows = [row for place in places if place not in idle for row in _place(name, place)]
    if idle:
        rows.append(drawn("idle", f"{name}/idle", idle, bool(rows)))
    return table(name, title, f"Quota of {title}", rows, "quotas")


def _place(tree: str, place: Place) -> Iterator[Part]:
    """A row for each flavor and resource with any amount, or one that says that there is none."""
    zeros = [use.pair for use in place.uses if use == QuotaUse(use.pair)]
    uses = [use for use in place.uses if use.pair not in zeros]
    for at, use in enumerate(uses or (None,)):
        name = f"{tree}/{identifier(place.kind, place.name, *(use.pair if use else ()))}"
        yield drawn("place", name, place, use, at > 0, zeros)
