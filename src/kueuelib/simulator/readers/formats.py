"""Finds the reader of a file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import Faults
from kueuelib.simulator.readers.csv_table import read_csv
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
from kueuelib.simulator.readers.source import TraceSource
from kueuelib.simulator.readers.swf import read_swf
from kueuelib.simulator.work import TraceJob


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
