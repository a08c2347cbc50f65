"""Metrics of pods (KEP-976)."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.names import ADMISSION_GATE
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
            "kueue_pods_gated_total",
            "Pods that were created with our gate.",
            ("namespace",),
        )
        self._ungated = telemetry.counter(
            "kueue_pods_ungated_total", "Pods whose gate was taken away.", ("cluster_queue",)
        )
        self._waited = telemetry.histogram(
            "kueue_pod_scheduling_gate_removal_seconds",
            "From the admission of its Workload until a pod lost its gate.",
            ("name", "cluster_queue", "is_group"),
        )
        self._rejected = telemetry.counter(
            "kueue_pods_rejected_total",
            "Pods of groups that were deleted because they do not belong there.",
            ("namespace", "reason"),
        )

    def gated(self, namespace: str) -> None:
        """A pod with our gate was created."""
        self._gated.labels(namespace).inc()

    def count(self, what: str, labels: Sequence[str], seconds: float | None = None) -> None:
        """Execute a `Count` of a plan."""
        if what == UNGATED:
            queue, is_group = labels
            self._ungated.labels(queue).inc()
            self._waited.labels(ADMISSION_GATE, queue, is_group).observe(seconds or 0.0)
        elif what == REJECTED:
            self._rejected.labels(*labels).inc()
        else:
            super().count(what, labels, seconds)
