"""Kubernetes controllers in Python, and a complete job-queueing system on top.

The names below are imported when they are used first: `import kueuelib` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kueuelib.jobs.client.following import JobGone, JobHandle, submit, wait, watch
    from kueuelib.jobs.client.progress import Progress, State, Why

__version__ = "0.1.0"

__all__ = [
    "JobGone",
    "JobHandle",
    "Progress",
    "State",
    "Why",
    "__version__",
    "submit",
    "wait",
    "watch",
]

_HOMES = {
    "JobGone": "kueuelib.jobs.client.following",
    "JobHandle": "kueuelib.jobs.client.following",
    "Progress": "kueuelib.jobs.client.progress",
    "State": "kueuelib.jobs.client.progress",
    "Why": "kueuelib.jobs.client.progress",
    "submit": "kueuelib.jobs.client.following",
    "wait": "kueuelib.jobs.client.following",
    "watch": "kueuelib.jobs.client.following",
}


def __getattr__(name: str) -> Any:
    """Imports a public name from where it is at home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kueuelib' has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, whether imported already or not."""
    return sorted({*globals(), *_HOMES})
