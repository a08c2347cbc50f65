"""Removes the files of an earlier simulation from a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from kueuelib.errors import ConfigError
from kueuelib.simulator.play import BASELINE

RESULT = "result.json"
REPORT = "report.html"
CLUSTER = "cluster.yaml"
TABLES = ("jobs.csv", "queues.csv")


def remove_earlier(folder: Path, given: Iterable[Path]) -> None:
    """Removes the runs of an earlier simulation: those that its own `result.json` names.

    In each of them, the files of a run are removed, and then the folder if it is empty.

    Args:
        folder: for the results; it need not exist.
        given: files that the user gave; none of them is removed.

    Raises:
        ConfigError: its `result.json` is not ours, one of the given files would be removed (then
            nothing is), or a file cannot be removed.
    """
    path = folder / RESULT
    try:
        if not path.exists():
            return
        runs = [*_folders(folder, _runs(path))]
        files = [run / name for run in runs for name in _files(run)]
        files += [folder / REPORT, path]
        _refuse(given, files)
        for file in files:
            file.unlink(missing_ok=True)
        for run in runs:
            if not any(run.iterdir()):
                run.rmdir()
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(folder), problem, "give a folder that can be written") from error


def _folders(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """The runs that are folders in this folder, not links to others."""
    for name in names:
        run = folder / name
        if run.is_dir() and not run.is_symlink() and run.resolve().parent == folder.resolve():
            yield run


def _files(run: Path) -> tuple[str, ...]:
    """The files that a simulation writes there; derived queues belong to the run without a
    policy.
    """
    return (*TABLES, CLUSTER) if run.name == BASELINE else TABLES


def _refuse(given: Iterable[Path], files: Iterable[Path]) -> None:
    """Refuses to remove a given file, directly or through a link."""
    removed = {_place(file) for file in files}
    for path in given:
        if _place(path) in removed or path.resolve() in removed:
            problem = "would be removed with the results of the earlier simulation"
            raise ConfigError(str(path), problem, "copy the file, or give another --output")


def _place(path: Path) -> Path:
    """The place of the file itself; of a link, that of the link, because that is what is
    removed.
    """
    return path.parent.resolve() / path.name


def _runs(path: Path) -> list[str]:
    try:
        content = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        content = None
    runs = content.get("runs") if isinstance(content, dict) else None
    if not isinstance(content, dict) or "format" not in content or not isinstance(runs, dict):
        fix = "give another folder, or move the file"
        raise ConfigError(str(path), "is not from a simulation and would be overwritten", fix)
    return [*runs]
