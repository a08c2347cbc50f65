"""What is counted about pods (KEP-976, spec/jobs 4.12)."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.jobs.pods.pod_plan import REJECTED, UNGATED
from kueuelib.jobs.reconcile.metrics import JobMetrics
from kueuelib.runtime.telemetry import Telemetry


class PodMetrics(JobMetrics):
    """Counters about pods.

    Args:
        telemetry: where they are reported; None: nowhere.
    """

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        super().__init__(telemetry)
        self._gated = telemetry.counter(
            "kueue_pods_gated_total", "Pods that got our scheduling gate.", ("namespace",)
        )
        self._ungated = telemetry.counter(
            "kueue_pods_ungated_total", "Pods whose gate was taken away.", ("cluster_queue",)
        )
        self._rejected = telemetry.counter(
            "kueue_pods_rejected_total",
            "Pods of groups that were deleted because they do not belong there.",
            ("namespace", "reason"),
        )

    def gated(self, namespace: str) -> None:
        """A pod got our gate."""
        self._gated.labels(namespace).inc()

    def count(self, what: str, labels: Sequence[str]) -> None:
        """Count what a plan wants counted."""
        if what == UNGATED:
            self._ungated.labels(*labels).inc()
        elif what == REJECTED:
            self._rejected.labels(*labels).inc()
        else:
            super().count(what, labels)
