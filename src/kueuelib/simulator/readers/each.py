"""Parses the lines of a trace one by one, and handles bad lines for every reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from kueuelib.simulator.faults import BadValue, Faults
from kueuelib.simulator.readers.source import Source
from kueuelib.simulator.work import Job

L = TypeVar("L")
V = TypeVar("V")


def each(
    path: Path,
    lines: Iterable[tuple[int, L | BadValue]],
    job_of: Callable[[L], Job | None],
    faults: Faults,
    source: Source,
    *,
    own_names: bool = False,
) -> Iterator[Job]:
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

    def claimed(line: L) -> Job | None:
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
