"""Figures about time: use against nominal quota, queue length and fairness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.simulator.history import Use
from kueuelib.simulator.report import readable
from kueuelib.simulator.report.chart import (
    BOTTOM,
    RIGHT,
    TOP,
    Axis,
    ChartPanel,
    Picture,
    Table,
    Values,
    area,
    steps,
)
from kueuelib.simulator.report.comparison import Run
from kueuelib.simulator.report.scales import (
    Scale,
    grid,
    means,
    moment,
    rounded_up,
    ticks,
    time_ticks,
)

WHOLE, HALF = 960.0, 470.0
"""The width in pixels of a picture alone, and of one next to others."""
LEFT, LETTER, MARGIN = 64.0, 7.5, 10.0
"""In pixels: the least room for the labels of values, a letter, and the margin."""
FAR = 10.0
"""Nominal quota above this many times the largest usage is not drawn, to keep the usage visible."""
Show = Callable[[float], str]


@attrs.frozen
class Series:
    """Values of a run over time: a column of a table, and a line with its class."""

    name: str
    run: Run
    values: Values
    kind: str = ""


def width_for(runs: Sequence[Run]) -> float:
    """The width of a picture when each run has its own."""
    return WHOLE if len(runs) == 1 else HALF


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
    times = [(one, moment(one)) for one in time_ticks(span, int(width / 95))]
    return (
        Axis(Scale(0.0, span, left, width - RIGHT), times, "time since the first arrival"),
        Axis(Scale(0.0, top, height - BOTTOM, TOP), labels),
    )


def lines(
    title: str,
    text: str,
    series: Sequence[Series],
    *,
    heading: str = "",
    resource: str = "",
    most: float | None = None,
    dashed: Sequence[Series] = (),
    width: float = WHOLE,
    height: float = 240.0,
) -> ChartPanel:
    """One picture with a line per run, and the same as a table.

    Args:
        title: what it shows, in a few words.
        text: a description of its content.
        series: the values by run.
        heading: above the picture.
        resource: of the amounts; empty if the values are not amounts.
        most: the end of the axis; None: fits the values.
        dashed: further values, drawn as a dashed line.
        width: in pixels.
        height: in pixels.
    """
    show = _shows(resource)
    values = [one for line in (*series, *dashed) for one in line.values if one is not None]
    high = max(values, default=0.0)
    top = rounded_up(high, readable.unit(high, resource)) if most is None else most
    across, up = frame(width, height, _span([one.run for one in series]), top, show, resource)
    paths = [
        (f"line {one.kind}", steps(one.run.borders, one.values, across, up))
        for one in (*dashed, *series)
    ]
    picture = Picture(title, text, width, height, across, up, paths)
    return ChartPanel(heading, picture, _table(title, (*series, *dashed), show))


def _shows(resource: str) -> Show:
    return partial(readable.amount, resource=resource) if resource else readable.plain


def _span(runs: Sequence[Run]) -> float:
    """The duration of the longest run, in seconds."""
    return max(run.borders[-1] for run in runs)


def _table(title: str, series: Sequence[Series], show: Show) -> Table:
    ends = grid(_span([one.run for one in series]))
    unit = readable.time_unit(ends[:1])
    columns = [means(ends, one.run.borders, one.values) for one in series]
    rows = [
        [unit(end), *("-" if one is None else show(one) for one in row)]
        for end, *row in zip(ends, *columns, strict=True)
    ]
    return Table(f"{title}: means", [f"until {unit.name}", *(one.name for one in series)], rows)


def use(pair: FlavorResource, runs: Sequence[Run]) -> tuple[list[ChartPanel], Table]:
    """The usage of one resource in one flavor by all ClusterQueues, against nominal quota."""
    totals = [(run, run.history.total()) for run in runs]
    uses = [(run, total[pair]) for run, total in totals if pair in total]
    most = max(max(one.used, default=0.0) for _, one in uses)
    nominal = max(max(one.nominal, default=0.0) for _, one in uses)
    high = max(most, nominal) if nominal < FAR * most else most or nominal
    top = rounded_up(high, readable.unit(high, pair.resource))
    size = width_for(runs), 220.0
    axes = frame(*size, _span(runs), top, _shows(pair.resource), pair.resource)
    panels = [_use_panel(pair, run, one, size, axes) for run, one in uses]
    columns = [
        Series(f"{run.name}, {name}", run, getattr(one, name))
        for run, one in uses
        for name in ("used", "borrowed", "nominal")
    ]
    return panels, _table(f"Use of {pair}", columns, _shows(pair.resource))


def _use_panel(
    pair: FlavorResource, run: Run, usage: Use, size: tuple[float, float], axes: tuple[Axis, Axis]
) -> ChartPanel:
    show, top = _shows(pair.resource), axes[1].scale.high
    own = [used - borrowed for used, borrowed in zip(usage.used, usage.borrowed, strict=True)]
    drawn = [one if one <= top else None for one in usage.nominal]
    paths = [
        ("area borrowed", area(run.borders, usage.used, *axes)),
        ("area own", area(run.borders, own, *axes)),
        ("line nominal", steps(run.borders, drawn, *axes)),
    ]
    used, borrowed, nominal = (
        show(_mean(run, values)) for values in (usage.used, usage.borrowed, usage.nominal)
    )
    text = f"On average {used} of {nominal} are used, {borrowed} of them borrowed."
    if max(usage.nominal, default=0.0) > top:
        text += " Nominal quota is too far above the use to be drawn."
    return ChartPanel(run.name, Picture(f"Use of {pair}, {run.name}", text, *size, *axes, paths))


def _mean(run: Run, values: Sequence[float]) -> float:
    (mean,) = means(run.borders[-1:], run.borders, values) or [0.0]
    return mean or 0.0


def waiting(runs: Sequence[Run]) -> ChartPanel:
    """The number of waiting jobs in all ClusterQueues."""
    series = [Series(run.name, run, run.history.waiting(), run.kind) for run in runs]
    text = "; ".join(
        f"{run.name}: {readable.plain(_mean(run, run.history.waiting()))} jobs on average"
        for run in runs
    )
    return lines("Jobs that wait for quota", f"{text}.", series)


def fairness(runs: Sequence[Run]) -> ChartPanel:
    """Jain's index of the ClusterQueues that have jobs, over time."""
    series = [Series(run.name, run, run.history.jain(), run.kind) for run in runs]
    text = "; ".join(
        f"{run.name}: {readable.plain(run.figures['jain_index'])} over the whole run"
        for run in runs
    )
    return lines("Jain's index", f"{text}.", series, most=1.0)


def one_queue(queue: str, runs: Sequence[Run]) -> list[ChartPanel]:
    """One ClusterQueue: its waiting jobs, and its usage per flavor and resource."""
    draw = partial(lines, width=HALF, height=180.0)
    mine = [(run, run.history.queues[queue]) for run in runs if queue in run.history.queues]
    waits = [Series(run.name, run, history.waiting, run.kind) for run, history in mine]
    text, title = "Means over time, one line per run", "jobs that wait"
    panels = [draw(f"{queue}: {title}", f"{text}.", waits, heading=title)]
    for pair in sorted({pair for _, history in mine for pair in history.use}):
        used = [(run, history.use[pair]) for run, history in mine if pair in history.use]
        panels.append(
            draw(
                f"{queue}: use of {pair}",
                f"{text}; thin and dotted: nominal quota.",
                [Series(run.name, run, one.used, run.kind) for run, one in used],
                heading=str(pair),
                resource=pair.resource,
                dashed=[
                    Series(f"{run.name}, nominal", run, one.nominal, f"nominal {run.kind}")
                    for run, one in used
                ],
            )
        )
    return panels
