"""What an earlier simulation left in a folder."""

from __future__ import annotations

from pathlib import Path

import orjson

from kueuelib.errors import ConfigError

RESULT = "result.json"
REPORT = "report.html"
CLUSTER = "cluster.yaml"
FILES = ("jobs.csv", "queues.csv", CLUSTER)


def remove_earlier(folder: Path) -> None:
    """Removes the runs of an earlier simulation: those that its own `result.json` names.

    In each of them the files of a run go, and the folder if nothing else is in it.

    Args:
        folder: for the results; it need not exist.

    Raises:
        ConfigError: its `result.json` is none of ours, or something cannot be removed.
    """
    path = folder / RESULT
    try:
        if not path.exists():
            return
        for name in _runs(path):
            run = folder / name
            if run.is_symlink() or not run.is_dir() or run.resolve().parent != folder.resolve():
                continue
            for file in FILES:
                (run / file).unlink(missing_ok=True)
            if not any(run.iterdir()):
                run.rmdir()
        (folder / REPORT).unlink(missing_ok=True)
        path.unlink()
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(folder), problem, "give a folder that can be written") from error


def _runs(path: Path) -> list[str]:
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        found = None
    runs = found.get("runs") if isinstance(found, dict) else None
    if not isinstance(found, dict) or "format" not in found or not isinstance(runs, dict):
        fix = "give another folder, or move the file"
        raise ConfigError(str(path), "is not from a simulation and would be overwritten", fix)
    return [*runs]
