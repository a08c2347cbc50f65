"""The Standard Workload Format 2.2 of the Parallel Workloads Archive.

18 fields between white space, `-1` where a value is unknown, and header lines that begin with `;`.
Processors are pods of one CPU each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kueuelib.simulator.parsing import BadValue, Faults, moment, number, whole
from kueuelib.simulator.readers.source import TraceSource, each, lines
from kueuelib.simulator.work import COMPLETED, CPU, FAILED, KILLED, TraceJob, pods

FIELDS = (
    *("job number", "submit time", "wait time", "run time", "allocated processors"),
    *("average CPU time", "used memory", "requested processors", "requested time"),
    *("requested memory", "status", "user", "group", "executable", "queue", "partition"),
    *("preceding job", "think time"),
)
_ENDS = {0: FAILED, 1: COMPLETED, 5: KILLED}


def read_swf(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    """The jobs of a file.

    Args:
        path: the file; its name may end in `.gz`.
        faults: receives the lines that are left out.
        source: receives the number of processors from the header, and the names of the jobs.

    Raises:
        ConfigError: the file cannot be read, or a line with `--strict`.
    """
    jobs = _lines_of_jobs(path, source)
    yield from each(path, jobs, lambda line: _job(line.split(), faults), faults, source)


def _lines_of_jobs(path: Path, source: TraceSource) -> Iterator[tuple[int, str]]:
    for line, raw in lines(path):
        text = raw.strip()
        if text.startswith(";"):
            _note_machines(text, source)
        elif text:
            yield line, text


def _note_machines(text: str, source: TraceSource) -> None:
    key, _, value = text.lstrip("; \t").partition(":")
    if key.strip() in ("MaxProcs", "MaxNodes") and value.split():
        try:
            processors = whole(value.split()[0], key)
        except BadValue:
            return
        if processors > 0 and (key.strip() == "MaxProcs" or CPU not in source.machines):
            source.machines[CPU] = processors


def _job(values: list[str], faults: Faults) -> TraceJob | None:
    if len(values) != len(FIELDS):
        raise BadValue("", f"{len(values)} fields instead of {len(FIELDS)}")
    field = dict(zip(FIELDS, values, strict=True))

    def known(name: str) -> float | None:
        figure = number(field[name], name)
        return None if figure < 0 else figure

    def label(name: str) -> str:
        figure = whole(field[name], name)
        return "" if figure < 0 else str(figure)

    name = str(whole(field["job number"], "job number", least=0))
    arrival = moment(field["submit time"], "submit time")
    run = known("run time")
    wanted, given = (
        whole(field[f"{kind} processors"], f"{kind} processors")
        for kind in ("requested", "allocated")
    )
    processors = wanted if wanted > 0 else given
    if run is None:
        faults.drop("run time unknown")
        return None
    if processors <= 0:
        faults.drop("number of processors unknown")
        return None
    status = whole(field["status"], "status")
    after = whole(field["preceding job"], "preceding job")
    return TraceJob(
        name=name,
        arrival=arrival,
        run_seconds=run,
        pod_sets=(pods({CPU: 1}, processors),),
        queue=label("queue"),
        end=_ENDS.get(status, COMPLETED),
        after=str(after) if after > 0 else "",
        think_seconds=known("think time") or 0.0,
        requested_seconds=known("requested time"),
        user=label("user"),
        group=label("group"),
        vc=label("partition"),
    )
