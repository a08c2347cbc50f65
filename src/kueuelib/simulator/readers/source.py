"""The cluster that a trace describes, and its lines."""

from __future__ import annotations

import gzip
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import attrs

from kueuelib.api.meta import Obj
from kueuelib.errors import ConfigError
from kueuelib.simulator.faults import BadValue
from kueuelib.simulator.work import Job


@attrs.define
class Source:
    """The cluster that a trace describes.

    Attributes:
        machines: the total amount of each resource on its machines, if the trace names them.
        objects: raw objects of the trace that are not jobs: queues, flavors, classes.
        prefix: of the names of numbered jobs, if there are several files.
        names: namespace and name of the jobs so far.
    """

    machines: dict[str, int] = attrs.field(factory=dict)
    objects: list[Obj] = attrs.field(factory=list)
    prefix: str = ""
    names: set[tuple[str, str]] = attrs.field(factory=set)

    def claim(self, job: Job) -> None:
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
