"""Rows of public traces in CSV, each as a mapping of its columns."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kueuelib.errors import ConfigError
from kueuelib.simulator.faults import BadValue
from kueuelib.simulator.readers.source import lines

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
