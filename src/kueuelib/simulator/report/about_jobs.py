"""Figures about jobs: their waits, those that waited longest, and preemptions by ClusterQueue."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.meta import Obj
from kueuelib.pages.markup import Markup, join, tag
from kueuelib.pages.tables import folded, table
from kueuelib.simulator.report import readable
from kueuelib.simulator.report.chart import (
    BOTTOM,
    RIGHT,
    TOP,
    Axis,
    Names,
    axes,
    legend,
    picture,
    steps,
)
from kueuelib.simulator.report.comparison import unit_of
from kueuelib.simulator.report.over_time import WHOLE, run_legend, width_for
from kueuelib.simulator.report.readable import TimeUnit
from kueuelib.simulator.report.run import Run
from kueuelib.simulator.report.scales import Scale, bent, log_ticks, moment, time_ticks

PARTS = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
"""The quantiles in the table below the chart of waits."""
ROW = 20.0
LONGEST_NAME = 22
CUT = 2.5
"""A picture of jobs spans at most this many times the longest wait; later parts are cut off."""
MOST_QUEUES = 30
"""The maximum number of ClusterQueues in the table of preemptions."""


def waits(names: Names, runs: Sequence[Run]) -> Markup:
    """The part of the jobs that waited no longer than a time, per run."""
    longest = max((run.waits[-1][0] for run in runs if run.waits), default=0.0)
    height = 260.0
    across = Scale(0.0, max(longest, 1.0), 64.0, WHOLE - RIGHT, bent)
    up = Scale(0.0, 1.0, height - BOTTOM, TOP)
    frame = axes(
        Axis(
            across, [(one, moment(one)) for one in log_ticks(longest)], "wait until the first start"
        ),
        Axis(up, [(at / 4, f"{at / 4:.0%}") for at in range(5)]),
    )
    drawn = [_cumulated(run, across, up) for run in runs if run.waits]
    text = "; ".join(
        f"{run.name}: half of {readable.jobs(_count(run))} started within "
        f"{readable.seconds(_quantile(run, 0.5))}, "
        f"90 % within {readable.seconds(_quantile(run, 0.9))}"
        for run in runs
    )
    svg = picture(names, "Waits", f"{text}.", WHOLE, height, frame, *drawn)
    unit = unit_of({run.name: run.figures for run in runs})
    rows = [[f"{part:.0%}", *(unit(_quantile(run, part)) for run in runs)] for part in PARTS]
    title = f"Time within which a given part of the started jobs did start, {unit.name}"
    numbers = folded(table(["jobs", *(run.name for run in runs)], rows, title=title))
    return tag("figure", run_legend(runs), svg, numbers)


def _cumulated(run: Run, across: Scale, up: Scale) -> Markup:
    borders = [0.0, *(wait for wait, _ in run.waits), across.high]
    parts = [0.0, *(count / _count(run) for _, count in run.waits)]
    return steps(borders, parts, across, up, run.kind)


def _count(run: Run) -> int:
    return run.waits[-1][1] if run.waits else 0


def _quantile(run: Run, part: float) -> float | None:
    wanted = part * _count(run)
    return next((wait for wait, count in run.waits if count >= wanted), None)


def longest(names: Names, runs: Sequence[Run]) -> Markup:
    """The waits and runs of the jobs that waited longest, per run, from their arrival on."""
    longest_waits = {run.name: run.figures["longest_waits"] for run in runs}
    everything = [_lasted(run, one) for run in runs for one in longest_waits[run.name]]
    if not everything:
        return tag("figure", tag("p", "No job waited."))
    most = max(one["wait_seconds"] for jobs in longest_waits.values() for one in jobs)
    span, width = min(max(everything), CUT * most), width_for(runs)
    panels = [
        tag("div", tag("h4", run.name), _gantt(names, run, span, width))
        for run in runs
        if longest_waits[run.name]
    ]
    unit = unit_of({run.name: run.figures for run in runs})
    times = (f"{what} {unit.name}" for what in ("arrived", "waited", "started", "ended"))
    head = ("run", "job", "ClusterQueue", *times, "preempted")
    rows = [_row(run, one, unit) for run in runs for one in longest_waits[run.name]]
    numbers = folded(table(head, rows, title="The longest waits", texts=3))
    key = legend([("area waits", "waits"), ("area runs", "runs")])
    return tag("figure", key, tag("div", *panels, class_="panels"), numbers)


def _lasted(run: Run, one: Obj) -> float:
    """Seconds from the arrival of a job until its end, or until nothing more happened."""
    ended = run.history.borders[-1] if one["ended"] is None else one["ended"]
    return float(ended - one["arrived"])


def _row(run: Run, one: Obj, unit: TimeUnit) -> list[str]:
    began = run.history.borders[0]
    times = ("-" if one[key] is None else unit(one[key] - began) for key in ("started", "ended"))
    return [
        run.name,
        one["job"],
        one["cluster_queue"] or "-",
        unit(one["arrived"] - began),
        unit(one["wait_seconds"]),
        *times,
        f"{one['preemptions']:,}",
    ]


def _gantt(names: Names, run: Run, span: float, width: float) -> Markup:
    jobs = run.figures["longest_waits"]
    height = TOP + ROW * len(jobs) + BOTTOM
    across = Scale(0.0, span, 150.0, width - RIGHT)
    marks = []
    for at, one in enumerate(jobs):
        y, arrived = TOP + ROW * at, one["arrived"]
        name = _short(one["job"].removeprefix("default/"))
        marks.append(tag("text", name, x=144.0, y=y + ROW / 2 + 4, text_anchor="end"))
        marks.append(_bar(across, (y + 8, 4), (0.0, _lasted(run, one)), "waits", _says(run, one)))
        for start, stop in one["ran"]:
            text = f"{one['job']} runs for {readable.seconds(stop - start)}"
            times = start - arrived, stop - arrived
            marks.append(_bar(across, (y + 3, 14), times, "runs", text))
    ticks = [(one, moment(one)) for one in time_ticks(span, int((width - 150) / 95))]
    up = Axis(Scale(0.0, 1.0, height - BOTTOM, TOP), ())
    frame = axes(Axis(across, ticks, "time since the arrival of the job"), up, lines=False)
    text = f"The longest wait is {readable.seconds(jobs[0]['wait_seconds'])}, of {jobs[0]['job']}."
    title = f"Jobs that waited longest, {run.name}"
    return picture(names, title, text, width, height, frame, *marks)


def _bar(
    across: Scale,
    place: tuple[float, float],
    times: tuple[float, float],
    kind: str,
    text: str,
) -> Markup:
    """A bar at a height with a thickness; nothing if it begins beyond the picture."""
    if times[0] >= across.high:
        return Markup()
    left = across(times[0])
    wide = max(across(times[1]) - left, 1.0)
    shape = {"x": left, "y": place[0], "width": wide, "height": place[1]}
    return tag("rect", tag("title", text), class_=f"area {kind}", **shape)


def _says(run: Run, one: Obj) -> str:
    arrived = moment(one["arrived"] - run.history.borders[0])
    times = f", preempted {one['preemptions']:,} times" if one["preemptions"] else ""
    started = "" if one["started"] is not None else " and never started"
    waited = readable.seconds(one["wait_seconds"])
    return f"{one['job']} arrived at {arrived}, waited {waited}{started}{times}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def rivals(runs: Sequence[Run]) -> Markup:
    """Preemptions by the ClusterQueues of both sides, per run."""
    panels = [
        tag("div", tag("h4", run.name), _matrix(run)) for run in runs if run.figures["preempted_by"]
    ]
    quiet = [run.name for run in runs if not run.figures["preempted_by"]]
    said = tag("p", f"No preemptions: {', '.join(quiet)}.") if quiet else Markup()
    return tag("figure", tag("div", *panels, class_="panels"), said)


def _matrix(run: Run) -> Markup:
    by_preemptor = run.figures["preempted_by"]
    active: dict[str, int] = {}
    for by, victims in by_preemptor.items():
        for whom, count in victims.items():
            active[by] = active.get(by, 0) + count
            active[whom] = active.get(whom, 0) + count
    names = sorted(sorted(active, key=lambda name: (-active[name], name))[:MOST_QUEUES])
    most = max(count for victims in by_preemptor.values() for count in victims.values())
    head = tag(
        "tr", tag("th", "preempted by ↓", class_="text"), *(_head(name, "col") for name in names)
    )
    rows = []
    for by in names:
        cells = [_cell(by_preemptor.get(by, {}).get(whom, 0), most) for whom in names]
        rows.append(tag("tr", _head(by, "row"), *cells))
    title = f"Preempted jobs by ClusterQueue, {run.name}"
    left = len(active) - len(names)
    more = tag("p", f"{left} more ClusterQueues are in result.json.") if left else Markup()
    parts = (tag("caption", title), tag("thead", head), tag("tbody", *rows))
    grid = tag("table", *parts, class_="heat")
    return join(
        tag("div", grid, class_="wide", tabindex="0", role="region", aria_label=title), more
    )


def _head(name: str, scope: str) -> Markup:
    return tag("th", name, scope=scope, class_="text" if scope == "row" else None)


def _cell(count: int, most: int) -> Markup:
    if not count:
        return tag("td", "")
    return tag("td", f"{count:,}", style=f"--part:{round(15 + 55 * count / most)}%")
