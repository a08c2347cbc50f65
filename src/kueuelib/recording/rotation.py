"""The files of a recording: FILE is written to, FILE.1, FILE.2, ... are older parts in order."""

from __future__ import annotations

from glob import escape
from pathlib import Path


def older_parts(path: Path) -> list[Path]:
    """The older parts of a recording, the oldest first."""
    numbered = [
        (int(number), each)
        for each in path.parent.glob(f"{escape(path.name)}.*")
        if (number := each.name[len(path.name) + 1 :]).isdecimal()
    ]
    return [each for _, each in sorted(numbered)]


def parts_of(path: Path) -> list[Path]:
    """All parts of a recording in order; a part alone when it is named itself."""
    return [*older_parts(path), *([path] if path.exists() else [])]


def put_aside(path: Path, keep: int) -> None:
    """Makes FILE an older part, and removes the oldest ones.

    Args:
        path: the recording; nothing happens when it does not exist.
        keep: how many files there may be, the next FILE included.

    Raises:
        OSError: a file cannot be renamed or removed.
    """
    older = older_parts(path)
    if path.exists():
        number = int(older[-1].suffix[1:]) + 1 if older else 1
        target = path.with_name(f"{path.name}.{number}")
        path.rename(target)
        older.append(target)
    for each in older[: max(0, len(older) + 1 - keep)]:
        each.unlink()
