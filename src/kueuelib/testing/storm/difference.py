"""The difference made by a commit, for messages, and whether a restart may cause it."""

from __future__ import annotations

import re
from typing import Any, Final

from .history import Commit

__all__ = ["difference", "only_newer_amounts"]

_MESSAGE: Final = re.compile(r"\.status\.conditions\[\d+\]\.message")
_AMOUNT: Final = re.compile(r"(?<![\w-])\d+[a-zA-Z]*")


def difference(commit: Commit) -> str:
    """Return the changes of a commit: path, old and new value of each leaf."""
    changed = _changed(commit)
    return "; ".join(f"{path} {old!r} -> {new!r}" for path, (old, new) in changed.items())


def only_newer_amounts(commit: Commit) -> bool:
    """Return whether a commit only changed amounts in the messages of conditions.

    A message says how much was missing when the Workload was tried. It is not rewritten after
    changes of usage that cannot help the Workload, but a new manager tries it again.
    """
    changed = _changed(commit)
    return bool(changed) and all(
        _MESSAGE.fullmatch(path) and _worded(old) == _worded(new)
        for path, (old, new) in changed.items()
    )


def _worded(message: Any) -> str:
    """Return a message without its amounts."""
    return _AMOUNT.sub("#", str(message))


def _changed(commit: Commit) -> dict[str, tuple[Any, Any]]:
    """Return the old and the new value of each leaf that differs, by its path."""
    old, new = _leaves(commit.old or {}), _leaves(commit.new or {})
    changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
    shown = [path for path in changed if not path.startswith(".metadata.")] or changed
    return {path: (old.get(path), new.get(path)) for path in shown}


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return every value that is neither a list nor an object, by its path."""
    if isinstance(value, dict):
        parts = [(f"{path}.{key}", part) for key, part in value.items()]
    elif isinstance(value, list):
        parts = [(f"{path}[{number}]", part) for number, part in enumerate(value)]
    else:
        return {path: value}
    return {leaf: each for inner, part in parts for leaf, each in _leaves(part, inner).items()}
