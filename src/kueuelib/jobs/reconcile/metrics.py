"""Metrics of jobs of all kinds."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.jobs.contract.commands import MISSED
from kueuelib.runtime.telemetry import Telemetry

CREATED_WORKLOAD = "created workload"
REPAIRED = "repaired"
LEFT_ALONE = "left alone"
LATENCY_BUCKETS = tuple(0.01 * 2**exponent for exponent in range(11))


class JobMetrics:
    """Counters about jobs; all integrations of a process share them.

    Args:
        telemetry: where they are reported; None: nowhere.
    """

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        self._missed = telemetry.counter(
            "kueuelib_missed_by_webhook_total",
            "Jobs that bypassed our webhook, by kind and outcome.",
            ("kind", "what"),
        )

        self._latency = telemetry.histogram(
            "kueue_workload_creation_latency_seconds",
            "From the creation of a job to that of its Workload.",
            ("job_kind",),
            LATENCY_BUCKETS,
        )

    def missed(self, kind: str, what: str) -> None:
        """A job bypassed the webhook."""
        self._missed.labels(kind, what).inc()

    def count(self, what: str, labels: Sequence[str], seconds: float | None = None) -> None:
        """Execute a `Count` of a plan, with its time if there is one."""
        if what == MISSED:
            self.missed(*labels)
        elif what == CREATED_WORKLOAD:
            self._latency.labels(*labels).observe(max(seconds or 0.0, 0.0))
