"""The `kueue_` metrics, under the names that dashboards of Kueue know (spec/api 5 and 7.5).

Waiting times have exponential buckets up to three days, because the client's defaults end at ten
seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

WAIT_BUCKETS = (1.0, *(2.5 * 2**exponent for exponent in range(14)), 86400.0, 259200.0)
QUEUE_STATUSES = ("pending", "active", "terminating")
RESULTS = ("success", "inadmissible")

QuotaKey = tuple[str, str]
"""A flavor and a resource."""


class _Series(Protocol):
    def labels(self, *values: str) -> _Series: ...

    def remove(self, *values: str) -> None: ...

    def set(self, value: float) -> None: ...


class SchedulerMetrics:
    """What the admission loop and the applier report."""

    def __init__(self, telemetry: Telemetry) -> None:
        queue = ("cluster_queue",)
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

    def reserved(self, cluster_queue: str, waited: float) -> None:
        """A workload got quota, `waited` seconds after it was queued."""
        self._reserved.labels(cluster_queue).inc()
        self._reserved_wait.labels(cluster_queue).observe(waited)

    def admitted(self, cluster_queue: str, waited: float, checks_waited: float) -> None:
        """A workload was admitted: seconds since it was queued, and since it got quota."""
        self._admitted.labels(cluster_queue).inc()
        self._admitted_wait.labels(cluster_queue).observe(waited)
        self._checks_wait.labels(cluster_queue).observe(checks_waited)

    def evicted(self, cluster_queue: str, reason: str) -> None:
        """A workload was told to stop."""
        self._evicted.labels(cluster_queue, reason).inc()

    def preempted(self, preempting_cluster_queue: str, reason: str) -> None:
        """A workload was told to stop for one of another ClusterQueue, or of its own."""
        self._preempted.labels(preempting_cluster_queue, reason).inc()

    def wrote(self, purpose: str, result: str) -> None:
        """A status patch was answered."""
        self._writes.labels(purpose, result).inc()

    def orphaned(self, *, leaving: bool) -> None:
        """The engine assumed an admission, or an eviction, that nobody was going to write."""
        self._orphaned[leaving].inc()


class QueueMetrics:
    """Gauges of ClusterQueues; a queue's series go with the queue."""

    def __init__(self, telemetry: Telemetry, *, resources: bool = False) -> None:
        queue = ("cluster_queue",)
        self._pending = telemetry.gauge(
            "kueue_pending_workloads", "Workloads that wait.", (*queue, "status")
        )
        self._reserving = telemetry.gauge(
            "kueue_reserving_active_workloads", "Workloads that hold quota.", queue
        )
        self._admitted = telemetry.gauge(
            "kueue_admitted_active_workloads", "Workloads that are admitted.", queue
        )
        self._status = telemetry.gauge(
            "kueue_cluster_queue_status", "1 for the state the queue is in.", (*queue, "status")
        )
        self._series: dict[str, set[tuple[_Series, tuple[str, ...]]]] = {}
        self._resources: dict[str, _Series] = {}
        if resources:
            labels = ("cohort", "cluster_queue", "flavor", "resource")
            for name, text in (
                ("resource_reservation", "Quota that is reserved."),
                ("resource_usage", "Quota that admitted workloads use."),
                ("nominal_quota", "The nominal quota."),
                ("borrowing_limit", "What may be borrowed; 0 when unset."),
                ("lending_limit", "What may be lent; 0 when unset."),
            ):
                gauge = telemetry.gauge(f"kueue_cluster_queue_{name}", text, labels)
                self._resources[name] = gauge

    @property
    def wants_resources(self) -> bool:
        """Whether amounts by flavor and resource are reported."""
        return bool(self._resources)

    def counts(
        self, name: str, *, active: int, inadmissible: int, reserving: int, admitted: int
    ) -> None:
        """How many workloads a queue has in which state."""
        self._set(name, self._pending, (name, "active"), active)
        self._set(name, self._pending, (name, "inadmissible"), inadmissible)
        self._set(name, self._reserving, (name,), reserving)
        self._set(name, self._admitted, (name,), admitted)

    def status(self, name: str, status: str) -> None:
        """The state of a queue: one of `QUEUE_STATUSES`."""
        for each in QUEUE_STATUSES:
            self._set(name, self._status, (name, each), float(each == status))

    def amounts(
        self, name: str, cohort: str, amounts: Mapping[str, Mapping[QuotaKey, float]]
    ) -> None:
        """Amounts by kind (`resource_usage` and so on), flavor and resource, in base units.

        Series that are no longer mentioned are dropped.
        """
        wanted = {
            (self._resources[kind], (cohort, name, flavor, resource)): value
            for kind, values in amounts.items()
            for (flavor, resource), value in values.items()
        }
        mine = {*self._resources.values()}
        old = {entry for entry in self._series.get(name, ()) if entry[0] in mine}
        self._drop(name, old - wanted.keys())
        for (gauge, labels), value in wanted.items():
            self._set(name, gauge, labels, value)

    def forget(self, name: str) -> None:
        """Drops all series of a queue."""
        self._drop(name, set(self._series.get(name, ())))
        self._series.pop(name, None)

    def _set(self, name: str, gauge: object, labels: tuple[str, ...], value: float) -> None:
        series: _Series = gauge  # type: ignore[assignment]
        series.labels(*labels).set(value)
        self._series.setdefault(name, set()).add((series, labels))

    def _drop(self, name: str, entries: Iterable[tuple[_Series, tuple[str, ...]]]) -> None:
        known = self._series.get(name, set())
        for gauge, labels in entries:
            gauge.remove(*labels)
            known.discard((gauge, labels))
