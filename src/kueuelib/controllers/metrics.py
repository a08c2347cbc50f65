"""What the scheduler reports as `kueue_` metrics, under upstream's names (spec/api 5 and 7.5).

Waiting times have exponential buckets up to three days, because the client's defaults end at ten
seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kueuelib.controllers.local_queue_metrics import WAIT_BUCKETS, Counted, LocalQueueMetrics

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

RESULTS = ("success", "inadmissible")


class SchedulerMetrics:
    """What the admission loop and the applier report.

    Args:
        telemetry: where to.
        cohorts: the cohorts above a ClusterQueue.
        local_queues: where the same is counted by LocalQueue; None: nowhere.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        cohorts: Callable[[str], tuple[str, ...]] = lambda _: (),
        local_queues: LocalQueueMetrics | None = None,
    ) -> None:
        queue = ("cluster_queue",)
        self._local_queues = local_queues
        self._cohorts = cohorts
        attempts = telemetry.counter(
            "kueue_admission_attempts_total",
            "Scheduling cycles; a success gave quota to at least one workload.",
            ("result",),
        )
        seconds = telemetry.histogram(
            "kueue_admission_attempt_duration_seconds", "How long a cycle takes.", ("result",)
        )
        self._attempts = {result: attempts.labels(result) for result in RESULTS}
        self._seconds = {result: seconds.labels(result) for result in RESULTS}
        self._reserved = telemetry.counter(
            "kueue_quota_reserved_workloads_total", "Workloads that got quota.", queue
        )
        self._reserved_wait = telemetry.histogram(
            "kueue_quota_reserved_wait_time_seconds",
            "From creation or the last requeue to the reservation.",
            queue,
            WAIT_BUCKETS,
        )
        self._admitted = telemetry.counter(
            "kueue_admitted_workloads_total", "Workloads that were admitted.", queue
        )
        self._admitted_below = telemetry.counter(
            "kueue_cohort_subtree_admitted_workloads_total",
            "Workloads that were admitted in all ClusterQueues below the cohort.",
            ("cohort", "priority_class"),
        )
        self._admitted_wait = telemetry.histogram(
            "kueue_admission_wait_time_seconds",
            "From creation or the last requeue to admission.",
            queue,
            WAIT_BUCKETS,
        )
        self._checks_wait = telemetry.histogram(
            "kueue_admission_checks_wait_time_seconds",
            "From the reservation to admission.",
            queue,
            WAIT_BUCKETS,
        )
        self._evicted = telemetry.counter(
            "kueue_evicted_workloads_total", "Workloads that lost quota.", (*queue, "reason")
        )
        self._preempted = telemetry.counter(
            "kueue_preempted_workloads_total",
            "Workloads that lost quota to others, by the ClusterQueue of those.",
            ("preempting_cluster_queue", "reason"),
        )
        self._writes = telemetry.counter(
            "kueuelib_status_writes_total",
            "Patches of Workload statuses by purpose and result.",
            ("purpose", "result"),
        )
        self._policy_failures = telemetry.counter(
            "kueuelib_preemption_policy_failures_total",
            "Decisions that Kueue's own rules made because the preemption policy failed.",
            ("policy",),
        )

        self._orphaned = {
            False: telemetry.counter(
                "kueuelib_orphaned_assumptions_total",
                "Quota that was kept for a Workload without an order; any is a fault of kueuelib.",
            ),
            True: telemetry.counter(
                "kueuelib_orphaned_evictions_total",
                "Workloads that counted as leaving without an order; any is a fault of kueuelib.",
            ),
        }

    def cycle(self, seconds: float, *, success: bool) -> None:
        """A scheduling cycle ended."""
        result = RESULTS[0] if success else RESULTS[1]
        self._attempts[result].inc()
        self._seconds[result].observe(seconds)

    def reserved(self, where: Counted, waited: float) -> None:
        """A workload got quota, `waited` seconds after it was queued."""
        self._reserved.labels(where.cluster_queue).inc()
        self._reserved_wait.labels(where.cluster_queue).observe(waited)
        if self._local_queues is not None:
            self._local_queues.reserved(where, waited)

    def admitted(self, where: Counted, waited: float, checks_waited: float) -> None:
        """A workload was admitted.

        Args:
            where: its queues and its priority class.
            waited: seconds since it was queued.
            checks_waited: seconds since it got quota.
        """
        self._admitted.labels(where.cluster_queue).inc()
        for cohort in self._cohorts(where.cluster_queue):
            self._admitted_below.labels(cohort, where.priority_class).inc()
        self._admitted_wait.labels(where.cluster_queue).observe(waited)
        self._checks_wait.labels(where.cluster_queue).observe(checks_waited)
        if self._local_queues is not None:
            self._local_queues.admitted(where, waited, checks_waited)

    def evicted(self, where: Counted, reason: str) -> None:
        """A workload was evicted."""
        self._evicted.labels(where.cluster_queue, reason).inc()
        if self._local_queues is not None:
            self._local_queues.evicted(where, reason)

    def preempted(self, preempting_cluster_queue: str, reason: str) -> None:
        """A workload was preempted by one of another ClusterQueue, or of its own."""
        self._preempted.labels(preempting_cluster_queue, reason).inc()

    def policy_failed(self, policy: str) -> None:
        """The preemption policy raised, or gave an answer that is not one."""
        self._policy_failures.labels(policy).inc()

    def wrote(self, purpose: str, result: str) -> None:
        """A status patch was answered."""
        self._writes.labels(purpose, result).inc()

    def orphaned(self, *, leaving: bool) -> None:
        """The engine assumed an admission, or an eviction, that nobody was going to write."""
        self._orphaned[leaving].inc()
