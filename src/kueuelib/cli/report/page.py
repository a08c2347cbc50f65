"""The page: its whole appearance, from the facts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

import attrs

from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.api.phrases import counted
from kueuelib.app.explaining.short_verdicts import FITS
from kueuelib.app.overview.values import Overview
from kueuelib.cli.report import quota, workloads
from kueuelib.cli.report.parts import Part, Shown, shown, table
from kueuelib.cli.report.workloads import VerifiedChange
from kueuelib.pages.document import document
from kueuelib.pages.markup import Markup, Node, join, tag
from kueuelib.pages.style import RULES, colours

_LIGHT = {"lend": "#7a4fbf", "wait": "#8a929c", "none": "#ffffff", "alert": "#a40e26"}
_DARK = {"lend": "#b795ee", "wait": "#8b94a1", "none": "#14171c", "alert": "#ff8f8f"}
_AWAITS = "Workloads that wait for admission checks"
_SKIP = "Skip to the Workloads that wait"


def _resource(name: str) -> str:
    return files("kueuelib.cli.report").joinpath(name).read_text("utf-8")


def _hashed(text: str) -> str:
    """The source expression of a Content-Security-Policy that allows one inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


STYLE: Final = colours(_LIGHT, _DARK) + RULES + _resource("page.css")
SCRIPT: Final = _resource("page.js")
POLICY: Final = (
    f"default-src 'none'; script-src {_hashed(SCRIPT)}; style-src {_hashed(STYLE)}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
"""Nothing external, and no script or style other than those of the page."""


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

    def containers(self, now: float | None) -> dict[str, tuple[Part, ...]]:
        """The outermost parts, by the id of the element that holds them.

        Args:
            now: seconds since the epoch; None if the script of the page fills in ages.
        """
        facts = self.facts
        waiting = workloads.waiting(facts.waiting, self.verified, now, on_demand=self.on_demand)
        running = tuple(workloads.running((one for one in facts.running if not one.awaited), now))
        awaits = tuple(workloads.running((one for one in facts.running if one.awaited), now))
        evicted = tuple(workloads.evicted(facts.evictions, now))
        return {
            "summary": (Part("counts", tag("p", _counts(facts), id="counts")),),
            "notes": tuple(_notes(facts)),
            "trees": tuple(quota.trees(facts.trees)),
            "waiting": tuple(waiting),
            "awaiting": _listed("checks", _AWAITS, workloads.RUNNING, awaits, "rows holders"),
            "running": _listed("holders", "Workloads with quota", workloads.RUNNING, running),
            "evicted": _listed("evictions", "Last evictions", workloads.EVICTED, evicted),
        }

    def shown(self) -> Shown:
        """The parts of the page, for comparison with a later state."""
        return shown(self.containers(None))


def _listed(
    name: str,
    title: str,
    columns: tuple[tuple[str, str], ...],
    rows: tuple[Part, ...],
    kind: str = "",
) -> tuple[Part, ...]:
    return (table(name, title, title, columns, rows, kind=kind or f"rows {name}"),) if rows else ()


def _counts(facts: Overview) -> str:
    return ", ".join(
        (
            counted(len(facts.waiting), "Workload waits", "Workloads wait"),
            counted(len(facts.running), "holds quota", "hold quota"),
            counted(
                sum(1 for one in facts.running if one.leaving),
                "is being evicted",
                "are being evicted",
            ),
        )
    )


def _notes(facts: Overview) -> Iterator[Part]:
    for at, note in enumerate(facts.notes):
        name = f"note/{at}"
        yield Part(name, tag("li", note, id=name))


def page(view: View, now: float, live: str = "") -> str:
    """The page as HTML, well-formed XML but for its script; it refers to nothing outside itself.

    Args:
        view: what it shows.
        now: seconds since the epoch.
        live: where the page gets changes, and since which state; empty for a file.
    """
    holes = view.containers(now)
    inner = {name: Markup("".join(part.text() for part in parts)) for name, parts in holes.items()}
    main = tag("main", *_sections(view, inner), id="main", tabindex="-1")
    dialog = tag(
        "dialog",
        tag("h2", "", id="answer-title"),
        tag("div", id="answer"),
        tag("form", tag("button", "Close"), method="dialog"),
        id="answers",
        aria_labelledby="answer-title",
    )
    body = tag(
        "body",
        tag("a", _SKIP, href="#waits", class_="skip"),
        quota.patterns(),
        _header(inner, view.facts, live=bool(live)),
        main,
        tag("footer", tag("p", _footer(live=bool(live)), class_="soft")),
        dialog if live else "",
        tag("script", Markup(SCRIPT)),
        data_live=live or None,
    )
    return document(_title(view.facts), body, style=STYLE, policy=POLICY)


def _title(facts: Overview) -> str:
    return f"Queues of {facts.source[0]}" if facts.source else "Queues"


def _header(inner: Mapping[str, Markup], facts: Overview, *, live: bool) -> Markup:
    moment = format_time(facts.now)
    where = f" from {', '.join(facts.source[1:])}." if facts.source[1:] else "."
    read = tag("p", "Read at ", tag("span", moment, id="read"), where, class_="soft")
    links = (
        ("quota", "Quota"),
        ("waits", "Waiting"),
        ("awaits", "Waiting for checks"),
        ("runs", "Running"),
        ("left", "Evictions"),
    )
    nav = tag("nav", *(tag("a", text, href=f"#{name}") for name, text in links), aria_label="Parts")
    pause = tag("button", "Pause updates", type="button", id="pause", aria_pressed="false")
    status = tag("span", "", role="status", id="status")
    control = tag("p", pause, " ", status, class_="control") if live else ""
    field = join(
        tag("label", "Show only Workloads with ", for_="filter"),
        tag("input", type="search", id="filter", autocomplete="off"),
        " ",
        tag("span", "", role="status", id="found"),
    )
    return tag(
        "header",
        tag("h1", _title(facts)),
        tag("div", inner["summary"], id="summary"),
        read,
        tag("ul", inner["notes"], id="notes", class_="notes", aria_label="Notes"),
        control,
        nav,
        tag("p", field, class_="control", role="search"),
    )


def _sections(view: View, inner: Mapping[str, Markup]) -> Iterator[Markup]:
    quotas = "What every ClusterQueue and cohort may use, and what it uses. "
    if not view.facts.decided:
        quotas = "What the manager wrote into the status of the ClusterQueues. "
    spread = (
        "What a cohort lends is spread over those with unused quota, in proportion to it. What "
        "waits counts at the first flavor that its pods can use."
    )
    yield _section("quota", "Quota", quotas + spread, quota.legend(), inner["trees"], "trees")
    yield _section("waits", "Waiting", _searched(view), "", inner["waiting"], "waiting")
    says = "With quota, until the controllers of these admission checks have decided."
    yield _section("awaits", "Waiting for checks", says, "", inner["awaiting"], "awaiting")
    says = "The last column: ClusterQueues whose policies allow their Workloads to preempt it."
    yield _section("runs", "Running", says, "", inner["running"], "running")
    says = "The last eviction of every Workload that still exists, the latest first."
    yield _section("left", "Evictions", says, "", inner["evicted"], "evicted")


def _section(
    name: str, title: str, text: str, more: Node, content: Markup, container: str
) -> Markup:
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        tag("p", text, class_="soft"),
        more,
        tag("div", content, id=container, class_="parts"),
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _searched(view: View) -> str:
    if not view.facts.decided:
        return "By age, with the verdicts that the manager wrote last."
    first = "In the order of their queues. With its verified change the engine admits a Workload"
    if view.on_demand:
        later = "in the background for the first of each queue, for others with Explain"
        return f"{first}. The search runs {later}."
    if all(row.key in view.verified or row.verdict == FITS for row in view.facts.waiting):
        return f"{first}. The search ran for all of them."
    if not view.verified:
        how = "kueuelib report --changes searches for all, kueuelib explain workload/NAME for one"
        return f"In the order of their queues. No search for changes ran: {how}."
    count = counted(len(view.verified), "Workload", "Workloads")
    return (
        f"{first}. The search ran only for {count}, starting with the first of each queue; "
        "kueuelib explain workload/NAME searches for others."
    )


def _footer(*, live: bool) -> str:
    if live:
        return "kueuelib report --serve reads with your kubeconfig, and writes nothing."
    return "kueuelib report: a snapshot. kueuelib report --serve shows the current state."
