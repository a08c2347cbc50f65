"""The page: the simulation, the figures of all runs side by side, and the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from kueuelib.api.meta import Obj
from kueuelib.pages.templates import style, templates
from kueuelib.simulator.report import over_time, readable
from kueuelib.simulator.report.chart import (
    BOTTOM,
    RIGHT,
    TOP,
    Axis,
    Bar,
    ChartPanel,
    Picture,
    Table,
    steps,
)
from kueuelib.simulator.report.comparison import WAITS, Run, comparison, unit_of
from kueuelib.simulator.report.over_time import WHOLE, width_for
from kueuelib.simulator.report.readable import TimeUnit
from kueuelib.simulator.report.scales import Scale, bent, log_ticks, moment, time_ticks
from kueuelib.simulator.trace import SIZES

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


# --------------------------------------------------------------------------------------------------

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
        uses=[(pair, *over_time.use(pair, runs)) for pair in pairs],
        waiting=over_time.waiting(runs),
        waits=waits(runs),
        longest=longest(runs),
        rivals=[*rivals(runs)],
        fairness=over_time.fairness(runs),
        queues=[(queue, over_time.one_queue(queue, runs)) for queue in shown],
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
