"""The page: the simulation, the figures of all runs side by side, and the pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kueuelib.api.meta import Obj
from kueuelib.pages.document import document
from kueuelib.pages.markup import Markup, Node, join, tag
from kueuelib.pages.tables import folded, table
from kueuelib.simulator.report import about_jobs, over_time, readable
from kueuelib.simulator.report.chart import Names
from kueuelib.simulator.report.comparison import WAITS, comparison, unit_of
from kueuelib.simulator.report.readable import TimeUnit
from kueuelib.simulator.report.run import Run
from kueuelib.simulator.report.scales import moment
from kueuelib.simulator.report.style import style
from kueuelib.simulator.trace import SIZES

MOST_QUEUES = 40
"""The maximum number of ClusterQueues with their own pictures: those with the most jobs."""
MOST_ROWS = 200
"""The maximum number of rows for groups of jobs, per table."""
_FAIR = (
    "Jain's index over use by nominal quota, of the ClusterQueues that have jobs at the time: 1 "
    "when all are equal. A queue whose jobs need only a part of its quota lowers it, too."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_GROUPS = {
    "cluster_queues": "ClusterQueue",
    "local_queues": "LocalQueue",
    "priorities": "priority",
    "shapes": "shape",
    "sizes": "size",
}
_OPEN = ("cluster_queues", "sizes")
"""The groups whose tables are not folded."""


def page(result: Obj, runs: Sequence[Run]) -> str:
    """The report as HTML that is well-formed XML, too; it refers to nothing outside itself.

    Args:
        result: the content of `result.json`.
        runs: those of the result, each with its history; at least one.
    """
    title = f"Simulation of {readable.jobs(result['trace']['jobs'])}"
    names = Names()
    pictures: list[tuple[str, str, str, Callable[[], Markup]]] = [
        (
            "use",
            "Use and nominal quota",
            "All ClusterQueues together, by flavor and resource.",
            lambda: _uses(names, runs),
        ),
        ("queue", "Queue length", "", lambda: over_time.waiting(names, runs)),
        (
            "waits",
            "Waits",
            "The part of the started jobs that waited no longer than a time.",
            lambda: about_jobs.waits(names, runs),
        ),
        (
            "longest",
            "The longest waits",
            "Waits count until the first start, or until the end for jobs that never started.",
            lambda: about_jobs.longest(names, runs),
        ),
        ("preemptions", "Preemptions by ClusterQueue", "", lambda: about_jobs.rivals(runs)),
        (
            "fairness",
            "Fairness",
            _FAIR,
            lambda: over_time.fairness(names, runs),
        ),
        ("queues", "By ClusterQueue", "", lambda: _by_queue(names, runs)),
    ]
    sections = [_section("figures", "Figures", "", _figures(result, runs))]
    sections += [_section(name, head, text, draw()) for name, head, text, draw in pictures]
    links = [("figures", "Figures"), *((name, head) for name, head, _, _ in pictures)]
    nav = tag("nav", *(tag("a", head, href=f"#{name}") for name, head in links))
    said = [tag("p", sentence, class_="verdict") for sentence in result["verdicts"]]
    header = tag("header", tag("h1", title), *said, *_about(result), nav)
    body = tag("body", tag("main", header, *sections))
    return document(title, body, style=style(), policy=_POLICY)


def _section(name: str, title: str, text: str, content: Markup) -> Markup:
    said = tag("p", text, class_="soft") if text else Markup()
    return tag("section", tag("h2", title), said, content, id=name)


def _about(result: Obj) -> list[Markup]:
    trace = result["trace"]
    lines = [f"Trace: {', '.join(trace['files'])}"]
    if result["verdicts"]:
        lines.append(readable.sizes(trace["sizes"]))
    lines += [f"Left out: {count:,} with {reason}" for reason, count in trace["dropped"].items()]
    if trace["bad_lines"]:
        lines.append(f"Bad lines, skipped: {trace['bad_lines']:,}")
    lines += [f"Note: {note}" for note in result["notes"]]
    if result["not_started"]:
        lines.append(f"Never started: {', '.join(result['not_started'])}")
    for name, figures in result["runs"].items():
        simulation = figures["simulation"]
        for change in figures["changes"]:
            when = moment(change["at"] - (trace["first_arrival"] or 0.0))
            lines.append(f"{name}: at {when} {', '.join(change['what'])}")
        if simulation["interrupted"]:
            lines.append(f"{name}: interrupted; these are the figures until then")
        if simulation["unfinished"]:
            why = ", ".join(
                f"{count:,} {key}" for key, count in simulation["unfinished_because"].items()
            )
            lines.append(f"{name}: {readable.jobs(simulation['unfinished'])} did not end: {why}")
    return [tag("p", line, class_="soft") for line in lines]


def _figures(result: Obj, runs: Sequence[Run]) -> Markup:
    names = [run.name for run in runs]
    rows = [[label, *texts] for label, texts in comparison(result["runs"], 0)]
    rows.append(["decisions", *(run.figures["decisions"][:12] for run in runs)])
    parts: list[Node] = [table(["", *names], rows, title="All runs")]
    unit = unit_of(result["runs"])
    for kind, name in _GROUPS.items():
        shown = _groups(kind, name, runs, unit)
        parts.append(shown if kind in _OPEN else folded(shown, f"By {name}"))
    return join(*parts)


def _groups(kind: str, name: str, runs: Sequence[Run], unit: TimeUnit) -> Markup:
    """The table of groups of jobs, with one row per group and run."""
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
    more = len(keys) - MOST_ROWS
    said = tag("p", f"{more:,} more are in result.json.", class_="soft") if more > 0 else Markup()
    return join(table(head, rows, title=f"Jobs by {name}", texts=2), said)


def _cells(group: Obj, unit: TimeUnit) -> list[str]:
    return [
        f"{group['jobs']:,}",
        f"{group['started']:,}",
        *(unit(group["wait_seconds"][key]) for key in WAITS),
        readable.plain(group["bounded_slowdown"]["p50"]),
        f"{group['preemptions']:,}",
        unit(group["work_lost_seconds"]),
    ]


def _uses(names: Names, runs: Sequence[Run]) -> Markup:
    pairs = sorted({pair for run in runs for pair in run.history.total()})
    return join(*(over_time.use(names, pair, runs) for pair in pairs))


def _by_queue(names: Names, runs: Sequence[Run]) -> Markup:
    jobs: dict[str, int] = {}
    for run in runs:
        for queue in run.history.queues:
            group = run.figures["cluster_queues"].get(queue)
            jobs[queue] = max(jobs.get(queue, 0), group["jobs"] if group else 0)
    busiest = sorted(jobs, key=lambda queue: (-jobs[queue], queue))[:MOST_QUEUES]
    queues = join(*(over_time.one_queue(names, queue, runs) for queue in sorted(busiest)))
    text = words_for(len(busiest), len(jobs))
    return join(over_time.run_legend(runs), folded(queues, text))


def words_for(shown: int, known: int) -> str:
    """A note on how many of the ClusterQueues have pictures."""
    return f"{shown} of {known} ClusterQueues" if shown < known else f"{known} ClusterQueues"
