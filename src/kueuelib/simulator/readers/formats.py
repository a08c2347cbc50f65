"""Finds the reader of a file; reads CSV and SWF.

CSV: named columns. Required are `arrival`, `run_seconds`, and an amount of something. An unknown
column is an error, so that a misspelled one is not treated as absent.

SWF: the Standard Workload Format 2.2 of the Parallel Workloads Archive. 18 fields between white
space, `-1` where a value is unknown, and header lines that begin with `;`. Processors are pods of
one CPU each.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Protocol

from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import BadValue, Faults, amount, moment, not_negative, number, whole
from kueuelib.simulator.readers.gpu_traces import (
    PAI_JOBS,
    PAI_TASKS,
    read_helios,
    read_openb,
    read_pai,
    read_philly,
)
from kueuelib.simulator.readers.made_up import read_generator, read_synthetic
from kueuelib.simulator.readers.manifests import read_manifests
from kueuelib.simulator.readers.source import TraceSource, each, lines
from kueuelib.simulator.trace import (
    COMPLETED,
    CPU,
    END_STATES,
    FAILED,
    GPU,
    KILLED,
    MEMORY,
    TraceJob,
    pods,
)

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
    yield from each(path, jobs, lambda line: _swf_job(line.split(), faults), faults, source)


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


def _swf_job(values: list[str], faults: Faults) -> TraceJob | None:
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


REQUEST = "request."
"""The prefix of a column for any resource, for example `request.example.com/fpga`."""
SHORT = {"cpu": CPU, "memory": MEMORY, "gpu": GPU}
REQUIRED = ("arrival", "run_seconds")
OPTIONAL = (
    *("name", "queue", "namespace", "priority", "pods", "min_pods", "end", "after"),
    *("think_seconds", "checkpoint_seconds", "limit_seconds", "requested_seconds"),
    *("user", "group", "vc"),
)


def read_csv(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    """The jobs of a file.

    Args:
        path: the file; its name may end in `.gz`.
        faults: receives the lines that are left out.
        source: receives the names of the jobs.

    Raises:
        ConfigError: the file cannot be read, its first line does not name the columns, or a bad
            line with `--strict`.
    """
    rows = csv.reader(line for _, line in lines(path))
    try:
        columns = [name.strip() for name in next(rows, [])]
        _check(path, columns)
        numbered = (
            (rows.line_num, (row, f"{source.prefix}{rows.line_num}")) for row in rows if row
        )
        yield from each(
            path, numbered, lambda one: _csv_job(columns, *one), faults, source, own_names=True
        )
    except csv.Error as error:
        raise ConfigError(f"{path}:{rows.line_num}", str(error), "give a CSV file") from error


def _check(path: Path, columns: list[str]) -> None:
    if len(columns) == 1 and (mark := next((mark for mark in ";\t|" if mark in columns[0]), "")):
        fix = "separate them by commas"
        raise ConfigError(f"{path}:1", f"the columns are separated by {mark!r}", fix)
    known = (*REQUIRED, *OPTIONAL, *SHORT)
    for name in columns:
        if name not in known and not name.startswith(REQUEST):
            close = get_close_matches(name, known, 1)
            fix = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}, {REQUEST}*"
            raise ConfigError(f"{path}:1", f"unknown column {name!r}", fix)
    for name in REQUIRED:
        if name not in columns:
            raise ConfigError(f"{path}:1", f"column {name} is missing", "name it in the first line")
    if len({*columns}) != len(columns):
        raise ConfigError(f"{path}:1", "a column is named twice", "name each column once")


def _csv_job(columns: Sequence[str], values: Sequence[str], nameless: str) -> TraceJob:
    if len(values) != len(columns):
        raise BadValue("", f"{len(values)} columns instead of {len(columns)}")
    row = dict(zip(columns, values, strict=True))

    def text(name: str) -> str:
        return (row.get(name) or "").strip()

    def seconds(name: str) -> float | None:
        return not_negative(text(name), name) if text(name) else None

    requests = {}
    for column in row:
        if text(column) and (column in SHORT or column.startswith(REQUEST)):
            resource = SHORT.get(column) or column.removeprefix(REQUEST)
            requests[resource] = amount(text(column), column)
    count = whole(text("pods"), "pods", least=1) if text("pods") else 1
    fewest = whole(text("min_pods"), "min_pods", least=1) if text("min_pods") else None
    if fewest is not None and fewest > count:
        raise BadValue("min_pods", f"{fewest} is more than pods ({count})")
    shape = pods(requests, count, fewest)
    if not shape.requests:
        raise BadValue("", "asks for nothing: give cpu, memory, gpu or request.*")
    end = text("end") or COMPLETED
    if end not in END_STATES:
        raise BadValue("end", f"{end!r} is not one of {', '.join(END_STATES)}")
    limit = text("limit_seconds")
    return TraceJob(
        name=text("name") or nameless,
        arrival=moment(text("arrival"), "arrival"),
        run_seconds=not_negative(text("run_seconds"), "run_seconds"),
        pod_sets=(shape,),
        queue=text("queue"),
        namespace=text("namespace") or "default",
        priority=whole(text("priority"), "priority") if text("priority") else 0,
        end=end,
        after=text("after"),
        think_seconds=seconds("think_seconds") or 0.0,
        checkpoint_seconds=seconds("checkpoint_seconds") or None,
        limit_seconds=whole(limit, "limit_seconds", least=1) if limit else None,
        requested_seconds=seconds("requested_seconds"),
        user=text("user"),
        group=text("group"),
        vc=text("vc"),
    )


class TraceReader(Protocol):
    """Reads one file."""

    def __call__(self, path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
        """The jobs of a file, in any order."""
        ...


FORMATS: dict[str, TraceReader] = {
    "csv": read_csv,
    "generator": read_generator,
    "helios": read_helios,
    "openb": read_openb,
    "pai": read_pai,
    "philly": read_philly,
    "swf": read_swf,
    "synthetic": read_synthetic,
    "yaml": read_manifests,
}
"""The readers by the names that `--format` accepts."""

_BY_SUFFIX = {".csv": "csv", ".swf": "swf", ".yaml": "yaml", ".yml": "yaml", ".json": "yaml"}


def format_of(path: Path) -> str:
    """The format according to the name of a file.

    Raises:
        ConfigError: the name does not show it, or it is a folder that is not a trace.
    """
    if path.is_dir():
        tables = [f"{table}.csv" for table in (PAI_JOBS, PAI_TASKS)]
        if not all((path / table).exists() for table in tables):
            problem = f"is a folder without {' and '.join(tables)}, the tables of PAI"
            raise ConfigError(str(path), problem, "give the files of the trace by name")
        return "pai"
    name = path.name.removesuffix(".gz")
    for ending in ("generator", "synthetic"):
        if name in (f"{ending}.yaml", f"{ending}.yml"):
            return ending
    trace_format = _BY_SUFFIX.get(Path(name).suffix)
    if trace_format is None:
        raise ConfigError(
            str(path),
            "its name does not say its format",
            f"add --format with one of {', '.join(FORMATS)}",
        )
    return trace_format


def reader(name: str, scale: float) -> TraceReader:
    """The reader of a format.

    Args:
        name: one of `FORMATS`.
        scale: a factor for the work of a synthetic load; 1 for other formats.

    Raises:
        ConfigError: a recorded trace is to be scaled.
    """
    if name == "synthetic":
        return partial(read_synthetic, scale=scale)
    if scale != 1.0:
        raise ConfigError("--scale", f"a trace of format {name} is recorded", "leave it out")
    return FORMATS[name]
