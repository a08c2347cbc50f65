"""The page: the simulation, the figures of all runs side by side, and the pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

from kueuelib.api.meta import Obj
from kueuelib.pages.templates import style, templates
from kueuelib.simulator.report import about_jobs, over_time, readable
from kueuelib.simulator.report.chart import Table
from kueuelib.simulator.report.comparison import WAITS, comparison, unit_of
from kueuelib.simulator.report.readable import TimeUnit
from kueuelib.simulator.report.run import Run
from kueuelib.simulator.report.scales import moment
from kueuelib.simulator.trace import SIZES

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
        waits=about_jobs.waits(runs),
        longest=about_jobs.longest(runs),
        rivals=[*about_jobs.rivals(runs)],
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
