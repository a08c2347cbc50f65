"""The page: the simulation, figures of all runs side by side and over time, and the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count

import attrs

from kueuelib.api.meta import Obj
from kueuelib.pages import number, style, templates
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.simulator.history import Use
from kueuelib.simulator.report import readable
from kueuelib.simulator.report.comparison import WAITS, Run, comparison, unit_of
from kueuelib.simulator.report.readable import (
    Scale,
    TimeUnit,
    bent,
    grid,
    log_ticks,
    means,
    moment,
    rounded_up,
    ticks,
    time_ticks,
)
from kueuelib.simulator.trace import SIZES

# ---- charts --------------------------------------------------------------------------------------

TOP, RIGHT, BOTTOM = 10.0, 14.0, 40.0
"""Margins of a chart; the left one depends on its labels."""

Values = Sequence[float | None]


@attrs.frozen
class Axis:
    """One side of a chart.

    Attributes:
        scale: the places of values.
        ticks: values with their labels.
        title: the meaning of the values; empty if the labels show it.
    """

    scale: Scale
    ticks: Sequence[tuple[float, str]]
    title: str = ""


@attrs.frozen
class Bar:
    """A bar from left to right: its class, what it shows, its place and its size."""

    kind: str
    text: str
    x: float
    y: float
    width: float
    height: float


@attrs.frozen
class Picture:
    """A chart with a description in words.

    Attributes:
        title: what it shows, in a few words.
        text: a description of its content.
        width: in pixels, if there is enough room.
        height: in pixels.
        across: the axis at the bottom.
        up: the axis at the left.
        paths: what is drawn, each with its class; empty ones are not.
        rows: bars below each other: the height and the text of a name, and the bars.
    """

    title: str
    text: str
    width: float
    height: float
    across: Axis
    up: Axis
    paths: Sequence[tuple[str, str]] = ()
    rows: Sequence[tuple[float, str, Sequence[Bar]]] = ()


@attrs.frozen
class Table:
    """The same as a picture in numbers.

    Attributes:
        title: what it shows.
        head: the names of the columns.
        rows: the cells; the first one of a row names it.
        texts: how many columns at the left are texts; the others are numbers.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1


@attrs.frozen
class ChartPanel:
    """A picture in a figure, below its title, with a table if it has one of its own."""

    title: str
    picture: Picture
    table: Table | None = None


def steps(borders: Sequence[float], values: Values, across: Axis, up: Axis) -> str:
    """A path that keeps each value for its interval; a gap where there is none.

    Args:
        borders: of the intervals, one more than values.
        values: by interval.
        across: the axis of the borders.
        up: the axis of the values.
    """
    parts: list[str] = []
    height: str | None = None
    for at, value in enumerate(values):
        now = None if value is None else number(up.scale(value))
        if now != height:
            x = number(across.scale(borders[at]))
            if height is not None:
                parts.append(f"H{x}")
            if now is not None:
                parts.append(f"M{x} {now}" if height is None else f"V{now}")
        height = now
    if height is not None:
        parts.append(f"H{number(across.scale(borders[len(values)]))}")
    return "".join(parts)


def area(borders: Sequence[float], values: Values, across: Axis, up: Axis) -> str:
    """The same as `steps`, filled down to 0."""
    path = steps(borders, values, across, up)
    return path and f"{path}V{number(up.scale(0.0))}H{number(across.scale(borders[0]))}Z"


# ---- the page ------------------------------------------------------------------------------------

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


# Figures about jobs: their waits, those that waited longest, and preemptions by ClusterQueue.

PARTS = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
"""The quantiles in the table below the chart of waits."""
ROW = 20.0
LONGEST_NAME = 22
CUT = 2.5
"""A picture of jobs spans at most this many times the longest wait; later parts are cut off."""
MOST_RIVALS = 30
"""The maximum number of ClusterQueues in the table of preemptions."""


def waits(runs: Sequence[Run]) -> ChartPanel:
    """The part of the jobs that waited no longer than a time, per run."""
    longest = max((run.waits[-1][0] for run in runs if run.waits), default=0.0)
    size = WHOLE, 260.0
    times = [(one, moment(one)) for one in log_ticks(longest)]
    axes = (
        Axis(
            Scale(0.0, max(longest, 1.0), 64.0, WHOLE - RIGHT, bent),
            times,
            "wait until the first start",
        ),
        Axis(
            Scale(0.0, 1.0, size[1] - BOTTOM, TOP), [(at / 4, f"{at / 4:.0%}") for at in range(5)]
        ),
    )
    paths = [(f"line {run.kind}", _cumulated(run, *axes)) for run in runs if run.waits]
    text = "; ".join(
        f"{run.name}: half of {readable.jobs(_count(run))} started within "
        f"{readable.seconds(_quantile(run, 0.5))}, "
        f"90 % within {readable.seconds(_quantile(run, 0.9))}"
        for run in runs
    )
    unit = unit_of({run.name: run.figures for run in runs})
    title = f"Time within which a given part of the started jobs did start, {unit.name}"
    rows = [[f"{part:.0%}", *(unit(_quantile(run, part)) for run in runs)] for part in PARTS]
    table = Table(title, ["jobs", *(run.name for run in runs)], rows)
    return ChartPanel("", Picture("Waits", f"{text}.", *size, *axes, paths), table)


def _cumulated(run: Run, across: Axis, up: Axis) -> str:
    borders = [0.0, *(wait for wait, _ in run.waits), across.scale.high]
    return steps(borders, [0.0, *(count / _count(run) for _, count in run.waits)], across, up)


def _count(run: Run) -> int:
    return run.waits[-1][1] if run.waits else 0


def _quantile(run: Run, part: float) -> float | None:
    wanted = part * _count(run)
    return next((wait for wait, count in run.waits if count >= wanted), None)


def longest(runs: Sequence[Run]) -> tuple[list[ChartPanel], Table]:
    """The waits and runs of the jobs that waited longest, per run, from their arrival on."""
    waited = [(run, jobs) for run in runs if (jobs := run.figures["longest_waits"])]
    rows = [(run, one) for run, jobs in waited for one in jobs]
    most = CUT * max((one["wait_seconds"] for _, one in rows), default=0.0)
    span = min(max((_lasted(run, one) for run, one in rows), default=0.0), most)
    panels = [
        ChartPanel(run.name, _gantt(run, jobs, span, width_for(runs))) for run, jobs in waited
    ]
    unit = unit_of({run.name: run.figures for run in runs})
    times = (f"{what} {unit.name}" for what in ("arrived", "waited", "started", "ended"))
    head = ("run", "job", "ClusterQueue", *times, "preempted")
    return panels, Table("The longest waits", head, [_row(*row, unit) for row in rows], texts=3)


def _lasted(run: Run, one: Obj) -> float:
    """Seconds from the arrival of a job until its end, or until nothing more happened."""
    ended = run.history.borders[-1] if one["ended"] is None else one["ended"]
    return float(ended - one["arrived"])


def _row(run: Run, one: Obj, unit: TimeUnit) -> list[str]:
    began = run.history.borders[0]
    arrived, started, ended = (
        None if one[key] is None else one[key] - began for key in ("arrived", "started", "ended")
    )
    times = map(unit, (arrived, one["wait_seconds"], started, ended))
    return [run.name, one["job"], one["cluster_queue"] or "-", *times, f"{one['preemptions']:,}"]


def _gantt(run: Run, jobs: Sequence[Obj], span: float, width: float) -> Picture:
    height = TOP + ROW * len(jobs) + BOTTOM
    across = Scale(0.0, span, 150.0, width - RIGHT)
    ticks = [(one, moment(one)) for one in time_ticks(span, int((width - 150) / 95))]
    rows = []
    for at, one in enumerate(jobs):
        y = TOP + ROW * at
        rows.append(
            (y + 14, _short(one["job"].removeprefix("default/")), _bars(run, one, across, y))
        )
    return Picture(
        f"Jobs that waited longest, {run.name}",
        f"The longest wait is {readable.seconds(jobs[0]['wait_seconds'])}, of {jobs[0]['job']}.",
        width,
        height,
        Axis(across, ticks, "time since the arrival of the job"),
        Axis(Scale(0.0, 1.0, height - BOTTOM, TOP), ()),
        rows=rows,
    )


def _bars(run: Run, one: Obj, across: Scale, y: float) -> list[Bar]:
    """The time in the queue as a thin bar, each run as a thick one; cut off at the edge."""
    bars = [("waits", _says(run, one), 0.0, _lasted(run, one), y + 8, 4)]
    for start, stop in one["ran"]:
        text = f"{one['job']} runs for {readable.seconds(stop - start)}"
        bars.append(("runs", text, start - one["arrived"], stop - one["arrived"], y + 3, 14))
    return [
        Bar(kind, text, across(begin), top, max(across(end) - across(begin), 1.0), thick)
        for kind, text, begin, end, top, thick in bars
        if begin < across.high
    ]


def _says(run: Run, one: Obj) -> str:
    arrived = moment(one["arrived"] - run.history.borders[0])
    times = f", preempted {one['preemptions']:,} times" if one["preemptions"] else ""
    started = "" if one["started"] is not None else " and never started"
    waited = readable.seconds(one["wait_seconds"])
    return f"{one['job']} arrived at {arrived}, waited {waited}{started}{times}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def rivals(runs: Sequence[Run]) -> Iterator[tuple[str, list[str], Mapping[str, Obj], int, int]]:
    """Preemptions by the ClusterQueues of both sides, of the runs that have any.

    Per run its name, the most active ClusterQueues, the counts by the one that preempted and the
    one that lost, the largest of them, and how many further ClusterQueues there are.
    """
    for run in runs:
        if counts := run.figures["preempted_by"]:
            active = Counter[str]()
            for by, victims in counts.items():
                active.update(victims)
                active[by] += sum(victims.values())
            queues = sorted(active, key=lambda name: (-active[name], name))[:MOST_RIVALS]
            most = max(count for victims in counts.values() for count in victims.values())
            yield run.name, sorted(queues), counts, most, len(active) - len(queues)


# ---- the whole page ------------------------------------------------------------------------------

_PACKAGE = "kueuelib.simulator.report"
_TEMPLATES = templates(_PACKAGE, readable=readable, moment=moment)
MOST_QUEUES = 40
"""The maximum number of ClusterQueues with their own pictures: those with the most jobs."""
MOST_ROWS = 200
"""The maximum number of rows for groups of jobs, per table."""
_GROUPS = {
    "cluster_queues": "ClusterQueue",
    "local_queues": "LocalQueue",
    "priorities": "priority",
    "shapes": "shape",
    "sizes": "size",
}


def page(result: Obj, runs: Sequence[Run]) -> str:
    """The report as HTML that is well-formed XML, too; it refers to nothing outside itself.

    Args:
        result: the content of `result.json`.
        runs: those of the result, each with its history; at least one.
    """
    unit = unit_of(result["runs"])
    pairs = sorted({pair for run in runs for pair in run.history.total()})
    shown, known = _busiest(runs)
    return _TEMPLATES.get_template("page.html").render(
        style=style(_PACKAGE, "style.css"),
        number=count(1),
        result=result,
        runs=runs,
        figures=_figures(result, runs),
        groups=[_groups(kind, name, runs, unit) for kind, name in _GROUPS.items()],
        uses=[(pair, *use(pair, runs)) for pair in pairs],
        waiting=waiting(runs),
        waits=waits(runs),
        longest=longest(runs),
        rivals=[*rivals(runs)],
        fairness=fairness(runs),
        queues=[(queue, one_queue(queue, runs)) for queue in shown],
        known=known,
    )


def _figures(result: Obj, runs: Sequence[Run]) -> Table:
    rows = [[label, *texts] for label, texts in comparison(result["runs"], 0)]
    rows.append(["decisions", *(run.figures["decisions"][:12] for run in runs)])
    return Table("All runs", ["", *(run.name for run in runs)], rows)


def _groups(kind: str, name: str, runs: Sequence[Run], unit: TimeUnit) -> tuple[str, Table, int]:
    """The table of groups of jobs, with one row per group and run, and how many more there are."""
    keys = list(dict.fromkeys(key for run in runs for key in run.figures[kind]))
    if kind == "sizes":
        keys.sort(key=SIZES.index)
    head = [name, "run", "jobs", "started", *(f"wait {one} {unit.name}" for one in WAITS)]
    head += ["slowdown p50", "preempted", f"work lost {unit.name}"]
    rows = [
        [key, run.name, *_cells(run.figures[kind][key], unit)]
        for key in keys[:MOST_ROWS]
        for run in runs
        if key in run.figures[kind]
    ]
    return name, Table(f"Jobs by {name}", head, rows, texts=2), len(keys) - MOST_ROWS


def _cells(group: Obj, unit: TimeUnit) -> list[str]:
    return [
        f"{group['jobs']:,}",
        f"{group['started']:,}",
        *(unit(group["wait_seconds"][key]) for key in WAITS),
        readable.plain(group["bounded_slowdown"]["p50"]),
        f"{group['preemptions']:,}",
        unit(group["work_lost_seconds"]),
    ]


def _busiest(runs: Sequence[Run]) -> tuple[list[str], int]:
    """The ClusterQueues that have pictures, and how many there are."""
    jobs = Counter[str]()
    for run in runs:
        for queue in run.history.queues:
            group = run.figures["cluster_queues"].get(queue) or {"jobs": 0}
            jobs[queue] = max(jobs[queue], group["jobs"])
    busiest = sorted(jobs, key=lambda queue: (-jobs[queue], queue))[:MOST_QUEUES]
    return sorted(busiest), len(jobs)
