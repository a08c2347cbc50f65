"""Figures about time: use against nominal quota, queue length and fairness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kueuelib.pages.markup import Markup, join, tag
from kueuelib.pages.tables import folded, table
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.simulator.history import Use
from kueuelib.simulator.report import readable
from kueuelib.simulator.report.chart import (
    BOTTOM,
    RIGHT,
    TOP,
    Axis,
    Names,
    area,
    axes,
    legend,
    picture,
    steps,
)
from kueuelib.simulator.report.run import Run
from kueuelib.simulator.report.scales import Scale, moment, rounded_up, ticks, time_ticks
from kueuelib.simulator.report.tables import grid, means

WHOLE, HALF = 960.0, 470.0
"""The width in pixels of a picture alone, and of one next to others."""
LEFT, LETTER, MARGIN = 64.0, 7.5, 10.0
"""In pixels: the least room for the labels of values, a letter, and the margin."""
FAR = 10.0
"""Nominal quota above this many times the largest usage is not drawn, to keep the usage visible."""
SINCE = "time since the first arrival"
Show = Callable[[float], str]


def width_for(runs: Sequence[Run]) -> float:
    """The width of a picture when each run has its own."""
    return WHOLE if len(runs) == 1 else HALF


def span_of(runs: Sequence[Run]) -> float:
    """The duration of the longest run, in seconds."""
    return max(run.borders[-1] for run in runs)


def frame(
    width: float, height: float, span: float, top: float, show: Show, resource: str
) -> tuple[Axis, Axis]:
    """The axes of time and of values; the labels of values get the room that they need.

    Args:
        width: of the picture in pixels.
        height: of the picture in pixels.
        span: where time ends, in seconds.
        top: where values end.
        show: a value as text.
        resource: of the amounts; empty if the values are not amounts.
    """
    labels = [(one, show(one)) for one in ticks(top, unit=readable.unit(top, resource))]
    left = max(LEFT, LETTER * max(len(label) for _, label in labels) + MARGIN)
    across = Scale(0.0, span, left, width - RIGHT)
    return (
        Axis(across, [(one, moment(one)) for one in time_ticks(span, int(width / 95))], SINCE),
        Axis(Scale(0.0, top, height - BOTTOM, TOP), labels),
    )


def lines(
    names: Names,
    title: str,
    text: str,
    series: Sequence[tuple[Run, Sequence[float | None]]],
    *,
    show: Show,
    resource: str = "",
    most: float | None = None,
    dashed: Sequence[tuple[Run, Sequence[float | None]]] = (),
    width: float = WHOLE,
    height: float = 240.0,
) -> Markup:
    """One picture with a line per run, and the same as a table.

    Args:
        names: of the page.
        title: what it shows, in a few words.
        text: a description of its content.
        series: the values by run.
        show: a value as text.
        resource: of the amounts; empty if the values are not amounts.
        most: the end of the axis; None: fits the values.
        dashed: further values, drawn as a dashed line.
        width: in pixels.
        height: in pixels.
    """
    span = span_of([run for run, _ in series])
    values = [one for _, line in (*series, *dashed) for one in line if one is not None]
    high = max(values, default=0.0)
    top = rounded_up(high, readable.unit(high, resource)) if most is None else most
    across, up = frame(width, height, span, top, show, resource)
    marks = [
        steps(run.borders, line, across.scale, up.scale, f"nominal {run.kind}")
        for run, line in dashed
    ]
    marks += [steps(run.borders, line, across.scale, up.scale, run.kind) for run, line in series]
    svg = picture(names, title, text, width, height, axes(across, up), *marks)
    ends = grid(span)
    columns = [(run.name, means(ends, run.borders, line)) for run, line in series]
    columns += [(f"{run.name}, nominal", means(ends, run.borders, line)) for run, line in dashed]
    return join(svg, folded(_table(title, ends, columns, show)))


def _table(
    title: str,
    ends: Sequence[float],
    columns: Sequence[tuple[str, Sequence[float | None]]],
    show: Show,
) -> Markup:
    unit = readable.time_unit(ends[:1])
    head = [f"until {unit.name}", *(name for name, _ in columns)]
    rows = [
        [unit(end), *("-" if (one := column[at]) is None else show(one) for _, column in columns)]
        for at, end in enumerate(ends)
    ]
    return table(head, rows, title=f"{title}: means")


def use(names: Names, pair: FlavorResource, runs: Sequence[Run]) -> Markup:
    """The usage of one resource in one flavor by all ClusterQueues, against nominal quota."""
    uses = [(run, run.history.total()[pair]) for run in runs if pair in run.history.total()]
    span, width = span_of(runs), width_for(runs)
    most = max(max(one.used, default=0.0) for _, one in uses)
    nominal = max(max(one.nominal, default=0.0) for _, one in uses)
    high = max(most, nominal) if nominal < FAR * most else most or nominal
    top = rounded_up(high, readable.unit(high, pair.resource))
    panels = []
    ends = grid(span)
    columns = []
    for run, one in uses:
        title = f"Use of {pair}, {run.name}"
        panels.append(_use_panel(names, title, pair.resource, run, one, span, top, width))
        for name, values in (
            ("used", one.used),
            ("borrowed", one.borrowed),
            ("nominal", one.nominal),
        ):
            columns.append((f"{run.name}, {name}", means(ends, run.borders, values)))
    key = legend(
        [
            ("area own", "used within nominal quota"),
            ("area borrowed", "borrowed"),
            ("nominal", "nominal quota, with that of cohorts"),
        ]
    )
    show = partial(readable.amount, resource=pair.resource)
    numbers = folded(_table(f"Use of {pair}", ends, columns, show))
    return tag("figure", tag("h3", str(pair)), key, _side_by_side(panels), numbers)


def _use_panel(
    names: Names,
    title: str,
    resource: str,
    run: Run,
    usage: Use,
    span: float,
    top: float,
    width: float,
) -> Markup:
    height = 220.0
    show = partial(readable.amount, resource=resource)
    across, up = frame(width, height, span, top, show, resource)
    own = [used - borrowed for used, borrowed in zip(usage.used, usage.borrowed, strict=True)]
    marks = (
        area(run.borders, usage.used, across.scale, up.scale, "borrowed"),
        area(run.borders, own, across.scale, up.scale, "own"),
        steps(
            run.borders,
            [one if one <= top else None for one in usage.nominal],
            across.scale,
            up.scale,
            "nominal",
        ),
    )
    mean = _mean(run, usage.used), _mean(run, usage.borrowed), _mean(run, usage.nominal)
    text = "On average {} of {} are used, {} of them borrowed.".format(
        *(show(mean[at]) for at in (0, 2, 1))
    )
    if max(usage.nominal, default=0.0) > top:
        text += " Nominal quota is too far above the use to be drawn."
    svg = picture(names, title, text, width, height, axes(across, up), *marks)
    return tag("div", tag("h4", run.name), svg, tag("p", text))


def _mean(run: Run, values: Sequence[float]) -> float:
    (mean,) = means(run.borders[-1:], run.borders, values) or [0.0]
    return mean or 0.0


def _side_by_side(panels: Sequence[Markup]) -> Markup:
    return tag("div", *panels, class_="panels")


def waiting(names: Names, runs: Sequence[Run]) -> Markup:
    """The number of waiting jobs in all ClusterQueues."""
    text = "; ".join(
        f"{run.name}: {readable.plain(_mean(run, run.history.waiting()))} jobs on average"
        for run in runs
    )
    series = [(run, run.history.waiting()) for run in runs]
    drawn = lines(names, "Jobs that wait for quota", f"{text}.", series, show=readable.plain)
    return tag("figure", run_legend(runs), drawn)


def fairness(names: Names, runs: Sequence[Run]) -> Markup:
    """Jain's index of the ClusterQueues that have jobs, over time."""
    text = "; ".join(
        f"{run.name}: {readable.plain(run.figures['jain_index'])} over the whole run"
        for run in runs
    )
    series = [(run, run.history.jain()) for run in runs]
    drawn = lines(names, "Jain's index", f"{text}.", series, show=readable.plain, most=1.0)
    return tag("figure", run_legend(runs), drawn)


def one_queue(names: Names, queue: str, runs: Sequence[Run]) -> Markup:
    """One ClusterQueue: its waiting jobs, and its usage per flavor and resource."""
    mine = [(run, run.history.queues[queue]) for run in runs if queue in run.history.queues]
    panels = [
        lines(
            names,
            f"{queue}: jobs that wait",
            "Means over time, one line per run.",
            [(run, history.waiting) for run, history in mine],
            show=readable.plain,
            width=HALF,
            height=180.0,
        )
    ]
    for pair in sorted({pair for _, history in mine for pair in history.use}):
        used = [(run, history.use[pair]) for run, history in mine if pair in history.use]
        panels.append(
            lines(
                names,
                f"{queue}: use of {pair}",
                "Means over time, one line per run; thin and dotted: nominal quota.",
                [(run, usage.used) for run, usage in used],
                dashed=[(run, usage.nominal) for run, usage in used],
                show=partial(readable.amount, resource=pair.resource),
                resource=pair.resource,
                width=HALF,
                height=180.0,
            )
        )
    shown = [
        tag("div", tag("h4", heading), panel)
        for heading, panel in zip(
            ("jobs that wait", *map(str, sorted({p for _, f in mine for p in f.use}))),
            panels,
            strict=True,
        )
    ]
    return tag("figure", tag("h3", queue), _side_by_side(shown))


def run_legend(runs: Sequence[Run]) -> Markup:
    """The legend of the runs."""
    return legend([(run.kind, run.name) for run in runs])
