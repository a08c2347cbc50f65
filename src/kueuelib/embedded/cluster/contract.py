"""Names that users of the simulated cluster rely on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

RUN_SECONDS = "kueuelib.dev/run-seconds"
EXIT_CODE = "kueuelib.dev/exit-code"
SIMULATED = "kueuelib.dev/simulated"
POOL = "kueuelib.dev/pool"
POOLS = ("on-demand", "spot")
HOSTNAME = "kubernetes.io/hostname"
BLOCK, RACK = "kueuelib.dev/block", "kueuelib.dev/rack"
"""Labels of nodes in racks: levels of a topology, from coarse to fine, above `HOSTNAME`."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_CONTROLLER = "kubernetes.io/job-controller"
DEFAULT_SCHEDULER = "default-scheduler"
KUBELET, SCHEDULER = "kubelet", "kube-scheduler"
CONTROLLERS = "kube-controller-manager"
"""The programs that parts of the cluster stand for; each manages the fields that it writes."""

KILLED = 137
"""The exit code of a container that was killed."""


LAST_EXIT_CODE = 255


def run_seconds(annotations: Mapping[str, Any]) -> float | None:
    """How long a pod runs; None: until it is deleted, also for an invalid value."""
    seconds = _number(annotations.get(RUN_SECONDS))
    return seconds if seconds is not None and 0 <= seconds < math.inf else None


def exit_code(annotations: Mapping[str, Any]) -> int:
    """The exit code of a pod; a value that is not a whole number from 0 to 255 counts as 1."""
    text = annotations.get(EXIT_CODE) or "0"
    try:
        code = int(text)
    except ValueError:
        return 1
    return code if 0 <= code <= LAST_EXIT_CODE else 1


def problems(annotations: Mapping[str, Any]) -> tuple[str, ...]:
    """Errors in the annotations of a pod, and their consequences, for an event."""
    texts = []
    text = annotations.get(RUN_SECONDS)
    if text is not None and run_seconds(annotations) is None:
        texts.append(
            f"{RUN_SECONDS}: {text!r} is not a number of seconds such as 1.5; the pod runs "
            "until it is deleted"
        )
    code = annotations.get(EXIT_CODE)
    if code and exit_code(annotations) == 1 and _number(code) != 1:
        texts.append(
            f"{EXIT_CODE}: {code!r} is not a whole number from 0 to {LAST_EXIT_CODE}; the "
            "containers end with 1"
        )
    return tuple(texts)


def _number(text: Any) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
