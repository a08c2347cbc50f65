"""The cluster that a trace describes, its lines, and what is wrong with one."""

from __future__ import annotations

import csv
import gzip
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TypeVar

import attrs

from kueuelib.api.meta import Obj
from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import BadValue, Faults
from kueuelib.simulator.trace import TraceJob


@attrs.define
class TraceSource:
    """The cluster that a trace describes.

    Attributes:
        machines: the total amount of each resource on its machines, if the trace names them.
        objects: raw objects of the trace that are not jobs: queues, flavors, classes.
        prefix: of the names of numbered jobs, if there are several files.
        names: namespace and name of the jobs so far.
        ignored: sentences about requests that have no effect, with the jobs that make them.
    """

    machines: dict[str, int] = attrs.field(factory=dict)
    objects: list[Obj] = attrs.field(factory=list)
    prefix: str = ""
    names: set[tuple[str, str]] = attrs.field(factory=set)
    ignored: dict[str, list[str]] = attrs.field(factory=dict)

    def claim(self, job: TraceJob) -> None:
        """Takes the name of a job.

        Raises:
            BadValue: an earlier job has it.
        """
        key = (job.namespace, job.name)
        if key in self.names:
            raise BadValue("", f"another job is called {job.namespace}/{job.name}")
        self.names.add(key)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers; `.gz` is decompressed.

    A byte order mark is left out. Bytes that are not UTF-8 become replacement characters; they
    occur in names and comments.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                text = line.removeprefix(BOM_UTF8) if number == 1 else line
                yield number, text.decode(errors="replace")
    except (OSError, EOFError) as error:
        raise unreadable(path, error) from error


def whole_text(path: Path) -> bytes:
    """The content of a file; `.gz` is decompressed.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with opened(path) as file:
            return file.read()
    except (OSError, EOFError) as error:
        raise unreadable(path, error) from error


def opened(path: Path) -> IO[bytes]:
    """A file for reading, decompressed if its name ends in `.gz`."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def unreadable(path: Path, error: OSError | EOFError) -> ConfigError:
    """The error of a file that cannot be read."""
    problem = getattr(error, "strerror", None) or str(error)
    return ConfigError(str(path), problem, "give a file that can be read")


# ---- parses the lines of a trace one by one, and handles bad lines for every reader --------------

L = TypeVar("L")
V = TypeVar("V")


def each(
    path: Path,
    lines: Iterable[tuple[int, L | BadValue]],
    job_of: Callable[[L], TraceJob | None],
    faults: Faults,
    source: TraceSource,
    *,
    own_names: bool = False,
) -> Iterator[TraceJob]:
    """The jobs of lines.

    Args:
        path: their file.
        lines: with their numbers; a bad line is its error.
        job_of: parses a line; None if it does not describe a job that ran. Raises `BadValue`.
        faults: receives the bad lines, and those with the name of an earlier job.
        source: knows the names, and their prefix in this file.
        own_names: whether jobs have their own names, without a prefix.

    Raises:
        ConfigError: a bad line with `--strict`.
    """

    def claimed(line: L) -> TraceJob | None:
        job = job_of(line)
        if job is None:
            return None
        if source.prefix and not own_names:
            after = job.after and source.prefix + job.after
            job = attrs.evolve(job, name=source.prefix + job.name, after=after)
        source.claim(job)
        return job

    yield from parsed(path, lines, claimed, faults)


def parsed(
    path: Path,
    lines: Iterable[tuple[int, L | BadValue]],
    parse: Callable[[L], V | None],
    faults: Faults,
) -> Iterator[V]:
    """The parsed lines, without bad and empty ones; for the arguments see `each`."""
    for number, line in lines:
        try:
            if isinstance(line, BadValue):
                raise line
            value = parse(line)
        except BadValue as error:
            faults.refuse(path, number, error)
        else:
            if value is not None:
                yield value


# ---- rows of public traces in CSV, each as a mapping of its columns ------------------------------

Row = Mapping[str, str]


def rows(
    path: Path, needed: Iterable[str], header: list[str] | None = None
) -> Iterator[tuple[int, Row | BadValue]]:
    """The rows of a file with their line numbers; a bad row is its error.

    Args:
        path: the file.
        needed: required columns; others are allowed.
        header: the columns, if the file does not begin with them.

    Raises:
        ConfigError: the file cannot be read, or a column is missing.
    """
    reader = csv.reader(line for _, line in lines(path))
    try:
        columns = [name.strip() for name in (header or next(reader, []))]
        for name in needed:
            if name not in columns:
                fix = "give the file as it was published, or another --format"
                raise ConfigError(f"{path}:1", f"column {name} is missing", fix)
        for row in reader:
            if len(row) == len(columns):
                yield reader.line_num, dict(zip(columns, map(str.strip, row), strict=True))
            elif row:
                problem = f"{len(row)} columns instead of {len(columns)}"
                yield reader.line_num, BadValue("", problem)
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num}", str(error), "give a CSV file") from error
