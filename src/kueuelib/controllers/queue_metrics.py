"""Gauges of ClusterQueues and cohorts, under upstream's names (spec/api 5 and 7.5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kueuelib.controllers.by_workload import ADMITTED_NOW, NOT_BY_WORKLOAD, ByWorkload

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

QUEUE_STATUSES = ("pending", "active", "terminating")

QuotaKey = tuple[str, str]
"""A flavor and a resource."""

Values = Mapping[tuple[str, ...], float]
"""The values of one gauge by labels."""


class _Metric(Protocol):
    def labels(self, *values: str) -> Any: ...

    def remove(self, *values: str) -> None: ...


class OwnedSeries:
    """Series of metrics by the object that they describe; they are removed with it."""

    def __init__(self) -> None:
        self._series: dict[Hashable, dict[tuple[_Metric, tuple[str, ...]], Any]] = {}

    def one(self, owner: Hashable, metric: _Metric, labels: tuple[str, ...]) -> Any:
        """One series, which then belongs to an object."""
        own = self._series.setdefault(owner, {})
        series = own.get((metric, labels))
        if series is None:
            series = own[metric, labels] = metric.labels(*labels)
        return series

    def set(self, owner: Hashable, gauge: _Metric, labels: tuple[str, ...], value: float) -> None:
        """Sets one series of an object."""
        self.one(owner, gauge, labels).set(value)

    def replace(self, owner: Hashable, gauge: _Metric, values: Values) -> None:
        """Sets the series of one gauge by their labels, and drops all others.

        The gauge must not be used for another object with the same labels.
        """
        for series, labels in tuple(self._series.get(owner, ())):
            if series is gauge and labels not in values:
                del self._series[owner][series, labels]
                series.remove(*labels)
        for labels, value in values.items():
            self.set(owner, gauge, labels, value)

    def forget(self, owner: Hashable) -> None:
        """Drops all series of an object."""
        for series, labels in self._series.pop(owner, {}):
            series.remove(*labels)


class QueueMetrics:
    """Gauges of ClusterQueues; the series of a queue are removed with it.

    Args:
        telemetry: where to report.
        series: those of all ClusterQueues, shared by all that report them.
        resources: whether quota is reported by flavor and resource.
        pending: what waiting Workloads ask for, by queue and resource; called at every scrape.
        shapes: how many different Workloads wait, by queue and status; called at every scrape.
        by_workload: the metrics that are also split by labels of Workloads.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        series: OwnedSeries | None = None,
        *,
        resources: bool = False,
        pending: Callable[[], Values] = dict,
        shapes: Callable[[], Values] = dict,
        by_workload: ByWorkload = NOT_BY_WORKLOAD,
    ) -> None:
        queue = ("cluster_queue",)
        self._series = OwnedSeries() if series is None else series
        self._pending: list[_Metric] = []
        self._admitted: list[_Metric] = []
        for gauges, name, text, own, read in (
            (
                self._pending,
                "kueue_pending_workloads",
                "Workloads that wait.",
                (*queue, "status"),
                by_workload.pending,
            ),
            (
                self._admitted,
                "kueue_admitted_active_workloads",
                ADMITTED_NOW,
                queue,
                by_workload.admitted,
            ),
        ):
            if not by_workload.replaces(telemetry, name, text, own, read):
                gauges.append(telemetry.gauge(name, text, own))
        telemetry.sampled(
            "kueue_pending_scheduling_hashes",
            "Workloads that wait; those that get the same answer count once.",
            (*queue, "status"),
            shapes,
        )
        self._reserving = telemetry.gauge(
            "kueue_reserving_active_workloads", "Workloads that hold quota.", queue
        )
        self._status = telemetry.gauge(
            "kueue_cluster_queue_status", "1 for the state the queue is in.", (*queue, "status")
        )
        self._info = telemetry.gauge(
            "kueue_cluster_queue_info",
            "1 for the cohort the queue is in, and the root of its tree.",
            (*queue, "parent_cohort", "root_cohort"),
        )
        self._share = telemetry.gauge(
            "kueue_cluster_queue_weighted_share",
            "The share of borrowed quota; NaN for a queue that borrows with weight 0.",
            (*queue, "cohort"),
        )
        self._resources: dict[str, _Metric] = {}
        if resources:
            text = "What waiting Workloads ask for."
            name = "kueue_cluster_queue_resource_pending"
            telemetry.sampled(name, text, (*queue, "resource"), pending)
            labels = ("cohort", "cluster_queue", "flavor", "resource")
            for name, text in (
                ("resource_reservation", "Quota that is reserved."),
                ("resource_usage", "Quota that admitted workloads use."),
                ("nominal_quota", "The nominal quota."),
                ("borrowing_limit", "What may be borrowed; +Inf when unset."),
                ("lending_limit", "What may be lent; +Inf when unset."),
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
        """The numbers of workloads of a queue, by state."""
        for gauge in self._pending:
            self._series.set(name, gauge, (name, "active"), active)
            self._series.set(name, gauge, (name, "inadmissible"), inadmissible)
        self._series.set(name, self._reserving, (name,), reserving)
        for gauge in self._admitted:
            self._series.set(name, gauge, (name,), admitted)

    def status(self, name: str, status: str) -> None:
        """The state of a queue: one of `QUEUE_STATUSES`."""
        for each in QUEUE_STATUSES:
            self._series.set(name, self._status, (name, each), float(each == status))

    def place(self, name: str, cohort: str, root: str) -> None:
        """The cohort of a queue and the root of its tree; both empty for a queue on its own."""
        self._series.replace(name, self._info, {(name, cohort, root): 1.0})

    def share(self, name: str, cohort: str, share: float | None) -> None:
        """The share of a queue; infinite for weight 0, None while fair sharing is off."""
        shares: Values = {} if share is None else {(name, cohort): shown_share(share)}
        self._series.replace(name, self._share, shares)

    def amounts(
        self, name: str, cohort: str, amounts: Mapping[str, Mapping[QuotaKey, float]]
    ) -> None:
        """Amounts by kind (`resource_usage` and so on), flavor and resource, in base units.

        Series that are no longer mentioned are dropped.
        """
        for kind, values in amounts.items():
            wanted: Values = {
                (cohort, name, flavor, resource): value
                for (flavor, resource), value in values.items()
            }
            self._series.replace(name, self._resources[kind], wanted)

    def forget(self, name: str) -> None:
        """Drops all series of a queue."""
        self._series.forget(name)


class CohortMetrics:
    """Gauges of cohorts, with or without an object; the series of a cohort are removed with it."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._series = OwnedSeries()
        cohort = ("cohort",)
        amounts = (*cohort, "flavor", "resource")
        self._info = telemetry.gauge(
            "kueue_cohort_info",
            "1 for the parent of the cohort and the root of its tree.",
            (*cohort, "parent_cohort", "root_cohort"),
        )
        self._quota = telemetry.gauge(
            "kueue_cohort_subtree_quota", "Nominal quota of the cohort and all below it.", amounts
        )
        self._reserved = telemetry.gauge(
            "kueue_cohort_subtree_resource_reservations",
            "Quota that is reserved in all ClusterQueues below the cohort.",
            amounts,
        )
        self._admitted = telemetry.gauge(
            "kueue_cohort_subtree_admitted_active_workloads",
            "Workloads that are admitted in all ClusterQueues below the cohort.",
            cohort,
        )
        self._share = telemetry.gauge(
            "kueue_cohort_weighted_share",
            "The share of borrowed quota; NaN for a cohort that borrows with weight 0.",
            cohort,
        )

    def place(self, name: str, parent: str, root: str) -> None:
        """The parent of a cohort, empty for a root, and the root of its tree."""
        self._series.replace(name, self._info, {(name, parent, root): 1.0})

    def subtree(
        self,
        name: str,
        quota: Mapping[QuotaKey, float],
        reserved: Mapping[QuotaKey, float],
        admitted: int,
    ) -> None:
        """Sums over a cohort and all below it: quota and usage in base units, and workloads."""
        for gauge, values in ((self._quota, quota), (self._reserved, reserved)):
            self._series.replace(name, gauge, {(name, *key): each for key, each in values.items()})
        self._series.set(name, self._admitted, (name,), admitted)

    def share(self, name: str, share: float | None) -> None:
        """The share of a cohort; infinite for weight 0, None while fair sharing is off."""
        shares: Values = {} if share is None else {(name,): shown_share(share)}
        self._series.replace(name, self._share, shares)

    def forget(self, name: str) -> None:
        """Drops all series of a cohort."""
        self._series.forget(name)


def shown_share(share: float) -> float:
    """A share as metrics show it: NaN for one that weight 0 makes infinite."""
    return math.nan if math.isinf(share) else share
