"""The quota of the trees: a table per tree, with a bar per flavor and resource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kueuelib.api.phrases import counted
from kueuelib.app.overview.trees import COHORT
from kueuelib.app.overview.values import Place, QuotaUse, Tree
from kueuelib.cli.report.cells import amount, lines
from kueuelib.cli.report.parts import Part, identifier, table
from kueuelib.pages.markup import Markup, Node, join, number, tag

WIDE, HIGH = 220.0, 18.0
"""A bar, in pixels."""
_THICK = 11.0
_HEAD = (
    ("ClusterQueue or cohort", "text"),
    ("Flavor", "text"),
    ("Resource", "text"),
    ("Use of the quota", "text bars"),
    ("Quota", ""),
    ("Own", ""),
    ("Borrowed", ""),
    ("Lent", ""),
    ("Free", ""),
    ("Waiting", ""),
)
_OTHERS = "alone"
KINDS = (
    ("own", "own: used of its own quota"),
    ("borrowed", "borrowed: used beyond its own quota"),
    ("lent", "lent: others use its quota"),
    ("free", "free: unused"),
    ("waiting", "waiting: what Workloads without quota ask for, cut off at the end of the bar"),
)


def trees(all_trees: Iterable[Tree]) -> Iterator[Part]:
    """A section for each tree; ClusterQueues without a cohort, and idle trees, share one."""
    others: list[Place] = []
    for tree in all_trees:
        if tree.places[0].kind == COHORT and not all(place.idle for place in tree.places):
            yield _section(f"Cohort {tree.name}", identifier("tree", tree.name), tree.places)
        else:
            others += tree.places
    if others:
        idle = any(place.kind == COHORT for place in others)
        title = "ClusterQueues without a cohort" + idle * ", and idle cohorts"
        yield _section(title, _OTHERS, others)


def _section(title: str, name: str, places: Sequence[Place]) -> Part:
    idle, rows = list[Place](), list[Part]()
    for place in places:
        if place.idle and (place.depth or name == _OTHERS):
            idle.append(place)
        else:
            rows += _rows(name, place)
    if idle:
        rows.append(_folded(f"{name}/idle", idle, more=bool(rows)))
    return table(name, title, f"Quota of {title}", _HEAD, rows, kind="quotas")


def _folded(name: str, places: Sequence[Place], *, more: bool) -> Part:
    """One row for all places where nothing happens; it is open if it is the only one."""
    word = "more " if more else ""
    cohorts = sum(place.kind == COHORT for place in places)
    counts = (
        counted(count, f"{word}{kind}")
        for count, kind in ((cohorts, "cohort"), (len(places) - cohorts, "queue"))
        if count
    )
    summary = tag("summary", f"{' and '.join(counts)}: nothing waits, nothing runs")
    content = tag("details", summary, lines(map(_owned, places)), open=None if more else "")
    head = tag(
        "th", content, scope="row", colspan=f"{len(_HEAD)}", class_="text idle", role="rowheader"
    )
    return Part(name, tag("tr", head, id=name, role="row"))


def _owned(place: Place) -> str:
    """A place with its quota, and how much of it others use."""
    quota = (
        f"{use.pair.flavor}: {amount(use.pair, use.nominal)} {use.pair.resource}"
        f"{f', {amount(use.pair, use.lent)} of it lent' if use.lent else ''}"
        for use in place.uses
        if use.nominal
    )
    kind = "cohort " if place.kind == COHORT else ""
    return f"{kind}{place.name}: {'; '.join(quota) or 'no quota'}"


def _rows(tree: str, place: Place) -> Iterator[Part]:
    uses = [use for use in place.uses if use != QuotaUse(use.pair)]
    for at, use in enumerate(uses or (None,)):
        pair = () if use is None else use.pair
        name = f"{tree}/{identifier(place.kind, place.name, *pair)}"
        head = tag(
            "th",
            *_name(place, again=at > 0),
            scope="row",
            class_=f"text {_depth(place)}",
            role="rowheader",
        )
        if use is None:
            rest = tag("td", "no quota", colspan="9", class_="text soft", role="cell")
        else:
            rest = join(*_cells(use))
        yield Part(name, tag("tr", head, rest, id=name, role="row"))


def _depth(place: Place) -> str:
    return f"depth{min(place.depth, 6)}"


def _name(place: Place, *, again: bool) -> Iterator[Node]:
    kind = "cohort " if place.kind == COHORT else ""
    if again:
        yield tag("span", kind, place.name, class_="again")
        return
    yield tag("span", kind, class_="soft") if kind else ""
    yield place.name
    level = tag("span", f", level {place.depth + 1}", class_="hidden")
    counts = f"{counted(place.running, 'runs', 'run')}, {counted(place.waiting, 'waits', 'wait')}"
    yield join(level, tag("div", counts, class_="soft"))
    if zeros := [str(use.pair) for use in place.uses if use == QuotaUse(use.pair)]:
        yield tag("div", "no quota and no use: ", ", ".join(zeros), class_="soft")
    if place.problem:
        yield tag("div", "⚠ ", place.problem, class_="problem")


def _cells(use: QuotaUse) -> Iterator[Markup]:
    """The cells of a row. Roles are explicit, because a narrow page lays rows out as grids."""
    pair, (flavor, resource, _, *labels) = use.pair, (label for label, _ in _HEAD[1:])
    yield tag("td", pair.flavor, class_="text", role="cell", data_label=flavor)
    yield tag("td", pair.resource, class_="text", role="cell", data_label=resource)
    yield tag("td", bar(use), class_="bars", role="cell")
    values = (use.nominal, use.own, use.borrowed, use.lent, use.free, use.waiting)
    for value, label in zip(values, labels, strict=True):
        style = None if value else "soft"
        yield tag("td", amount(pair, value), class_=style, role="cell", data_label=label)


def bar(use: QuotaUse) -> Markup:
    """A picture of the numbers in the same row, hidden from screen readers.

    The quota ends at a line, and borrowed quota is beyond it. Waiting requests are below.
    """
    whole = max(use.nominal, use.own + use.lent) + use.borrowed
    marks = [tag("rect", x=0, y=0, width=WIDE, height=_THICK, class_="empty")]
    if whole:
        at = 0.0
        for kind, value in (("own", use.own), ("lent", use.lent), ("free", use.free)):
            marks += _part(at, value / whole, kind)
            at += value / whole
        marks += _part(at, use.borrowed / whole, "borrowed")
        end = number(WIDE * (1 - use.borrowed / whole))
        if use.borrowed:
            marks.append(tag("path", d=f"M{end} 0V{number(_THICK + 2)}", class_="quota"))
    if use.waiting:
        part = min(1.0, use.waiting / whole) if whole else 1.0
        top = {"y": _THICK + 2, "height": HIGH - _THICK - 2}
        marks.append(tag("rect", x=0, width=max(1.0, WIDE * part), class_="waiting", **top))
    box = f"0 0 {number(WIDE)} {number(HIGH)}"
    return tag("svg", *marks, viewBox=box, width=WIDE, height=HIGH, aria_hidden="true")


def _part(at: float, part: float, kind: str) -> list[Markup]:
    if not part:
        return []
    shape = {"x": WIDE * at, "y": 0.0, "width": max(1.0, WIDE * part), "height": _THICK}
    return [tag("rect", class_=kind, **shape)]


def legend() -> Markup:
    """The legend of the bars."""
    items = []
    for kind, text in KINDS:
        sample = tag("rect", x=0, y=0, width=22, height=11, class_=kind)
        svg = tag("svg", sample, viewBox="0 0 22 11", width=22, height=11, aria_hidden="true")
        items.append(tag("li", svg, text))
    return tag("ul", *items, class_="legend")


def patterns() -> Markup:
    """Patterns that distinguish the parts of bars without colours."""
    stripes = tag("path", d="M0 6L6 0M-1 1L1 -1M5 7L7 5", class_="stripe")
    dot = tag("circle", cx=2.5, cy=2.5, r=1.1, class_="dot")
    tiles = (("stripes", "of-borrowed", stripes, 6.0), ("dots", "of-lent", dot, 5.0))
    elements = [
        tag(
            "pattern",
            tag("rect", width=size, height=size, class_=kind),
            mark,
            id=name,
            width=size,
            height=size,
            patternUnits="userSpaceOnUse",
        )
        for name, kind, mark, size in tiles
    ]
    return tag("svg", tag("defs", *elements), width=0, height=0, aria_hidden="true", class_="defs")
