"""The whole answer about one Workload, as a part of the page that is shown on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kueuelib.api.quantity import format_amount
from kueuelib.cli.explain.text import changes_by_end, then_checks
from kueuelib.cli.report.cells import names
from kueuelib.pages.markup import Markup, Node, join, tag
from kueuelib.pages.tables import table
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.scheduler.explain.rows import Row
from kueuelib.scheduler.explain.trial import Verdict
from kueuelib.scheduler.reasons import render

_HEAD = ("Pod set", "Resource", "Flavor", "Verdict", "Asks for", "Used", "Quota", "Available")


def explanation(found: Explanation) -> Markup:
    """Why a Workload waits, the numbers, and every change that was tried with success.

    Args:
        found: of a Workload without quota.
    """
    return join(*_parts(found))


def _parts(found: Explanation) -> Iterator[Node]:
    place = f"place {found.position} of {(found.position or 0) + found.behind}"
    yield tag("p", f"ClusterQueue {found.cluster_queue or '-'}, {place}")
    reason = found.when_first.reason if found.when_first is not None else found.reason
    if found.reason is not None:
        yield tag("p", render(found.reason))
    if reason is not None and reason is not found.reason:
        yield tag("p", f"If it were first: {render(reason)}")
    if found.ahead:
        yield tag("p", f"Ahead of it: {names(found.ahead)}")
    if found.rows:
        yield table(_HEAD, map(_row, found.rows), title="What it asks for, by flavor", texts=4)
    yield from _list(
        "What is wrong", (f"{one.subject}: {one.problem}; {one.fix}" for one in found.problems)
    )
    if found.verdict is Verdict.ADMITTED:
        yield tag("p", f"Nothing stands in its way.{then_checks(found.checks)}")
        return
    for heading, texts in changes_by_end(found.changes):
        yield from _list(heading.rstrip(":"), texts)
    if not found.changes:
        yield tag("p", "No single change admits it.")
    if found.tried:
        yield tag("p", f"Tried, one change at a time: {', '.join(found.tried)}.", class_="soft")
    yield from (tag("p", f"The search was limited: {one}.", class_="soft") for one in found.limits)
    yield from _list("Not done by this version", (one.text for one in found.unhonoured))


def _list(title: str, texts: Iterable[str]) -> Iterator[Markup]:
    items = [tag("li", text) for text in texts]
    if items:
        yield tag("h4", title)
        yield tag("ul", *items)


def _row(row: Row) -> list[str]:
    amounts = (row.requested, row.used, row.nominal, row.available)
    texts = [format_amount(row.resource, one) for one in amounts]
    return [row.pod_set, row.resource, row.flavor or "-", row.fit.value, *texts]
