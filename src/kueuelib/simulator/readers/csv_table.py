"""Jobs as CSV with named columns.

Required: `arrival`, `run_seconds`, and an amount of something. An unknown column is an error, so
    that a misspelled one is not treated as absent.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import BadValue, Faults, amount, moment, not_negative, whole
from kueuelib.simulator.readers.source import TraceSource, each, lines
from kueuelib.simulator.work import COMPLETED, CPU, END_STATES, GPU, MEMORY, TraceJob, pods

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
            path, numbered, lambda one: _job(columns, *one), faults, source, own_names=True
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


def _job(columns: Sequence[str], values: Sequence[str], nameless: str) -> TraceJob:
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
