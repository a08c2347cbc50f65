"""The whole answer about one Workload, as a part of the page that is shown on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kueuelib.api.quantity import format_amount
from kueuelib.cli.explain.changes import changes_by_end, then_checks
from kueuelib.cli.report.cells import names
from kueuelib.pages.markup import Markup, Node, join, tag
from kueuelib.pages.tables import table
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.scheduler.explain.rows import Row
from kueuelib.scheduler.explain.trial import Verdict
from kueuelib.scheduler.reasons import render

_HEAD = ("Pod set", "Resource", "Flavor", "Verdict", "Asks for", "Used", "Quota", "Available")


def explanation(answer: Explanation) -> Markup:
    """Why a Workload waits, the numbers, and every change that would help.

    Args:
        answer: of a Workload without quota.
    """
    return join(*_parts(answer))


def _parts(answer: Explanation) -> Iterator[Node]:
    place = f"place {answer.position} of {(answer.position or 0) + answer.behind}"
    yield tag("p", f"ClusterQueue {answer.cluster_queue or '-'}, {place}")
    reason = answer.when_first.reason if answer.when_first is not None else answer.reason
    if answer.reason is not None:
        yield tag("p", render(answer.reason))
    if reason is not None and reason is not answer.reason:
        yield tag("p", f"If it were first: {render(reason)}")
    if answer.ahead:
        yield tag("p", f"Ahead of it: {names(answer.ahead)}")
    if answer.rows:
        yield table(_HEAD, map(_row, answer.rows), title="What it asks for, by flavor", texts=4)
    yield from _list(
        "What is wrong", (f"{one.subject}: {one.problem}; {one.fix}" for one in answer.problems)
    )
    if answer.verdict is Verdict.ADMITTED:
        yield tag("p", f"Nothing stands in its way.{then_checks(answer.checks)}")
        return
    for heading, texts in changes_by_end(answer.changes):
        yield from _list(heading.rstrip(":"), texts)
    if not answer.changes:
        yield tag("p", "No single change admits it.")
    if answer.tried:
        yield tag("p", f"Tried, one change at a time: {', '.join(answer.tried)}.", class_="soft")
    yield from (tag("p", f"The search was limited: {one}.", class_="soft") for one in answer.limits)
    yield from _list("Not done by this version", (one.text for one in answer.unhonoured))


def _list(title: str, texts: Iterable[str]) -> Iterator[Markup]:
    items = [tag("li", text) for text in texts]
    if items:
        yield tag("h4", title)
        yield tag("ul", *items)


def _row(row: Row) -> list[str]:
    amounts = (row.requested, row.used, row.nominal, row.available)
    texts = [format_amount(row.resource, one) for one in amounts]
    return [row.pod_set, row.resource, row.flavor or "-", row.fit.value, *texts]
