"""The `kueue_` metrics of the scheduler, under upstream's names.

Waiting times have exponential buckets up to three days, because the client's defaults end at ten
seconds.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kueuelib import __version__
from kueuelib.controllers.queue_metrics import (
    ADMITTED,
    ADMITTED_UNTIL_READY,
    ADMITTED_WAIT,
    CHECKS_WAIT,
    EVICTION,
    EXECUTION,
    FINISHED,
    PRIORITY_CLASS,
    READY_WAIT,
    RESERVED,
    RESERVED_WAIT,
    Counted,
    Counts,
    LocalQueueMetrics,
    OwnedSeries,
    SeriesTally,
    exponential,
)

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

RESULTS = ("success", "inadmissible")


class SchedulerMetrics:
    """The metrics of the admission loop and the applier.

    Args:
        telemetry: where to report.
        cohorts: the cohorts above a ClusterQueue.
        local_queues: counts the same by LocalQueue; None: not counted.
        series: those of all ClusterQueues, shared by all that report them.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        cohorts: Callable[[str], tuple[str, ...]] = lambda _: (),
        local_queues: LocalQueueMetrics | None = None,
        series: OwnedSeries | None = None,
    ) -> None:
        queue = ("cluster_queue",)
        self._series = OwnedSeries() if series is None else series
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
        self._counts = Counts(telemetry, "kueue_", queue)
        self._admitted_below = telemetry.counter(
            "kueue_cohort_subtree_admitted_workloads_total",
            "Workloads that were admitted in all ClusterQueues below the cohort.",
            ("cohort", "priority_class"),
        )
        self._evicted = telemetry.counter(
            "kueue_evicted_workloads_total",
            "Workloads that lost quota.",
            (*queue, *EVICTION, PRIORITY_CLASS),
        )
        self._evicted_once = telemetry.counter(
            "kueue_evicted_workloads_once_total",
            "Workloads that lost quota, each counted once for a reason.",
            (*queue, *EVICTION, PRIORITY_CLASS),
        )
        self._eviction_seconds = telemetry.histogram(
            "kueue_workload_eviction_latency_seconds",
            "From the eviction to the release of the quota.",
            (*queue, "reason"),
            exponential(14),
        )
        self._ready_to_evicted = telemetry.histogram(
            "kueue_pods_ready_to_evicted_time_seconds",
            "From ready pods to the eviction.",
            (*queue, *EVICTION),
            exponential(14),
        )
        self._skips = telemetry.gauge(
            "kueue_admission_cycle_preemption_skips",
            "Heads that had candidates for preemption in the last cycle of the queue, and lost "
            "them to other heads.",
            queue,
        )
        self._recomputed = telemetry.counter(
            "kueue_preemption_target_recomputations_total",
            "Heads that chose again in their cycle, because heads before them took their victims.",
            (*queue, "result"),
        )
        self._preempted = telemetry.counter(
            "kueue_preempted_workloads_total",
            "Workloads that lost quota to others, by the ClusterQueue of the preemptor.",
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
                "Quota that was kept for a Workload without an order; any is a bug in kueuelib.",
            ),
            True: telemetry.counter(
                "kueuelib_orphaned_evictions_total",
                "Workloads that counted as leaving without an order; any is a bug in kueuelib.",
            ),
        }

    def cycle(self, seconds: float, *, success: bool) -> None:
        """A scheduling cycle ended."""
        result = RESULTS[0] if success else RESULTS[1]
        self._attempts[result].inc()
        self._seconds[result].observe(seconds)

    def reserved(self, where: Counted, waited: float) -> None:
        """A workload got quota, `waited` seconds after it was queued."""
        for tally in self._of(where):
            tally.count(RESERVED)
            tally.observe(RESERVED_WAIT, waited)

    def admitted(self, where: Counted, waited: float, checks_waited: float) -> None:
        """A workload was admitted.

        Args:
            where: its queues and its priority class.
            waited: seconds since it was queued.
            checks_waited: seconds since it got quota.
        """
        for cohort in self._cohorts(where.cluster_queue):
            self._admitted_below.labels(cohort, where.priority_class).inc()
        for tally in self._of(where):
            tally.count(ADMITTED)
            tally.observe(ADMITTED_WAIT, waited)
            tally.observe(CHECKS_WAIT, checks_waited)

    def ready(self, where: Counted, waited: float, since_admission: float) -> None:
        """The pods of a workload became ready: seconds since it was queued, and admitted."""
        for tally in self._of(where):
            tally.observe(READY_WAIT, waited)
            tally.observe(ADMITTED_UNTIL_READY, since_admission)

    def finished(self, where: Counted, ran: float | None) -> None:
        """A workload finished; it was admitted for `ran` seconds, None if it was not."""
        for tally in self._of(where):
            tally.count(FINISHED)
            if ran is not None:
                tally.observe(EXECUTION, ran)

    def evicted(self, where: Counted, reason: str, cause: str = "", *, first: bool = False) -> None:
        """A workload was evicted, for a reason with an optional cause; `first`: its first
        eviction.
        """
        labels = (where.cluster_queue, reason, cause, where.priority_class)
        for counter in (self._evicted, self._evicted_once) if first else (self._evicted,):
            self._series.one(where.cluster_queue, counter, labels).inc()
        if self._local_queues is not None:
            self._local_queues.evicted(where, reason, cause)

    def released(self, where: Counted, reason: str, seconds: float) -> None:
        """An evicted workload released its quota, `seconds` after the eviction."""
        owner = where.cluster_queue
        series = self._series.one(owner, self._eviction_seconds, (owner, reason))
        series.observe(max(seconds, 0.0))

    def evicted_while_ready(self, where: Counted, reason: str, cause: str, seconds: float) -> None:
        """A workload was evicted `seconds` after its pods had become ready."""
        owner = where.cluster_queue
        series = self._series.one(owner, self._ready_to_evicted, (owner, reason, cause))
        series.observe(max(seconds, 0.0))

    def skipped_preemptions(self, counts: Mapping[str, int]) -> None:
        """How many heads of each ClusterQueue lost their preemption in a cycle."""
        for queue, count in counts.items():
            self._series.set(queue, self._skips, (queue,), count)

    def recomputed(self, counts: Mapping[tuple[str, str], int]) -> None:
        """How many heads of each ClusterQueue chose victims again in a cycle, by result."""
        for (queue, result), count in counts.items():
            self._series.one(queue, self._recomputed, (queue, result)).inc(count)

    def _of(self, where: Counted) -> Iterator[SeriesTally]:
        """The series of its ClusterQueue, and of its LocalQueue if that is reported."""
        owner = where.cluster_queue
        yield self._series.one(owner, self._counts, (owner, where.priority_class))
        own = None if self._local_queues is None else self._local_queues.tally(where)
        if own is not None:
            yield own

    def preempted(self, preempting_cluster_queue: str, reason: str) -> None:
        """A workload was preempted by one of another ClusterQueue, or of its own."""
        owner = preempting_cluster_queue
        self._series.one(owner, self._preempted, (owner, reason)).inc()

    def policy_failed(self, policy: str) -> None:
        """The preemption policy raised, or its answer is not valid."""
        self._policy_failures.labels(policy).inc()

    def wrote(self, purpose: str, result: str) -> None:
        """A status patch was answered."""
        self._writes.labels(purpose, result).inc()

    def orphaned(self, *, leaving: bool) -> None:
        """The engine assumed an admission or an eviction that nothing was going to write."""
        self._orphaned[leaving].inc()


def report_build(telemetry: Telemetry) -> None:
    """Reports which build runs. Kueue's labels name Git and Go, which a Python package does not."""
    labels = {
        "git_version": f"v{__version__}",
        "git_commit": "",
        "build_date": "",
        "go_version": "",
        "compiler": sys.implementation.name,
        "platform": f"{sys.platform}/{platform.machine()}",
    }
    text = "1 for the version that runs."
    telemetry.gauge("kueue_build_info", text, tuple(labels)).labels(*labels.values()).set(1)
