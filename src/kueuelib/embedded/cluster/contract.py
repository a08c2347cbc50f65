"""Names that users of the simulated cluster rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RUN_SECONDS = "kueuelib.dev/run-seconds"
EXIT_CODE = "kueuelib.dev/exit-code"
SIMULATED = "kueuelib.dev/simulated"
POOL = "kueuelib.dev/pool"
POOLS = ("on-demand", "spot")
HOSTNAME = "kubernetes.io/hostname"

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_CONTROLLER = "kubernetes.io/job-controller"
DEFAULT_SCHEDULER = "default-scheduler"

KILLED = 137
"""The exit code of a container that was killed."""


def run_seconds(annotations: Mapping[str, Any]) -> float | None:
    """How long a pod runs, None: until it is deleted. A text that is no number counts as none."""
    text = annotations.get(RUN_SECONDS)
    try:
        found = float(text) if text is not None else None
    except ValueError:
        return None
    return found if found is None or found == found else None  # noqa: PLR0124 - not a number


def exit_code(annotations: Mapping[str, Any]) -> int:
    """How a pod ends; a text that is no whole number counts as 1."""
    text = annotations.get(EXIT_CODE) or "0"
    try:
        return int(text)
    except ValueError:
        return 1
