"""The page: its whole appearance, from the facts; and whole answers, which it shows on demand."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

from kueuelib.api.meta import format_time
from kueuelib.api.quantity import format_amount
from kueuelib.cli.explain.changes import changes_by_end, then_checks
from kueuelib.cli.report.content import View
from kueuelib.cli.report.parts import TEMPLATES
from kueuelib.pages.templates import resource, style
from kueuelib.scheduler.reasons import render

if TYPE_CHECKING:
    from kueuelib.scheduler.explain.answer import Explanation
    from kueuelib.scheduler.explain.rows import Row

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
