"""Gauges of ClusterQueues and cohorts, under upstream's names."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.quantity import Quantity
from kueuelib.controllers.by_workload import ADMITTED_NOW, NOT_BY_WORKLOAD, ByWorkload
from kueuelib.scheduler.status import QueueStatus

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry
    from kueuelib.scheduler.engine import Engine

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


@attrs.frozen
class QueueState:
    """What the gauges of a ClusterQueue show.

    Attributes:
        name: of the queue.
        status: one of `QUEUE_STATUSES`.
        spec: the raw one.
        numbers: those of its status; None while the engine does not know it.
        root: the root of its tree; empty for a queue on its own.
    """

    name: str
    status: str
    spec: Obj
    numbers: QueueStatus | None
    root: str = ""


def queue_states(queues: Iterable[Obj], engine: Engine) -> Iterator[QueueState]:
    """The present states of raw ClusterQueues."""
    for queue in queues:
        name = queue["metadata"]["name"]
        alive = "active" if engine.activity(name).active else "pending"
        yield QueueState(
            name,
            "terminating" if queue["metadata"].get("deletionTimestamp") else alive,
            queue.get("spec") or {},
            engine.cluster_queue_status(name),
            (engine.cohorts(name) or ("",))[-1],
        )


def report_queues(
    telemetry: Telemetry,
    states: Callable[[], Iterable[QueueState]] = tuple,
    *,
    resources: bool = False,
    pending: Callable[[], Values] = dict,
    shapes: Callable[[], Values] = dict,
    by_workload: ByWorkload = NOT_BY_WORKLOAD,
) -> None:
    """Reports the gauges of ClusterQueues; everything is called at every scrape.

    Args:
        telemetry: where to report.
        states: of all ClusterQueues.
        resources: whether quota is reported by flavor and resource.
        pending: what waiting Workloads ask for, by queue and resource.
        shapes: how many different Workloads wait, by queue and status.
        by_workload: the metrics that are also split by labels of Workloads.
    """
    from kueuelib.runtime.telemetry import Sampled

    queue = ("cluster_queue",)
    by_status = (*queue, "status")
    gauges: list[tuple[str, str, tuple[str, ...]]] = [
        ("kueue_pending_workloads", "Workloads that wait.", by_status),
        ("kueue_admitted_active_workloads", ADMITTED_NOW, queue),
        ("kueue_reserving_active_workloads", "Workloads that hold quota.", queue),
        ("kueue_cluster_queue_status", "1 for the state the queue is in.", by_status),
        (
            "kueue_cluster_queue_info",
            "1 for the cohort the queue is in, and the root of its tree.",
            (*queue, "parent_cohort", "root_cohort"),
        ),
        (
            "kueue_cluster_queue_weighted_share",
            "The share of borrowed quota; NaN for a queue that borrows with weight 0.",
            (*queue, "cohort"),
        ),
    ]
    for split, read in zip(gauges[:2], (by_workload.pending, by_workload.admitted), strict=True):
        if by_workload.replaces(telemetry, *split, read):
            gauges.remove(split)
    telemetry.sampled(
        "kueue_pending_scheduling_hashes",
        "Workloads that wait; those that get the same answer count once.",
        by_status,
        shapes,
    )
    if resources:
        text = "What waiting Workloads ask for."
        name = "kueue_cluster_queue_resource_pending"
        telemetry.sampled(name, text, (*queue, "resource"), pending)
        labels = ("cohort", "cluster_queue", "flavor", "resource")
        gauges += [
            (f"kueue_cluster_queue_{name}", text, labels)
            for name, text in (
                ("resource_reservation", "Quota that is reserved."),
                ("resource_usage", "Quota that admitted workloads use."),
                ("nominal_quota", "The nominal quota."),
                ("borrowing_limit", "What may be borrowed; +Inf when unset."),
                ("lending_limit", "What may be lent; +Inf when unset."),
            )
        ]

    def sample() -> dict[str, dict[tuple[str, ...], float]]:
        values: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        for state in states():
            for gauge, labels, value in _series_of(state, resources=resources):
                values[gauge][labels] = value
        return values

    telemetry.registry.register(Sampled(gauges, sample))


def _series_of(
    state: QueueState, *, resources: bool
) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """The series of a ClusterQueue: gauge, labels and value."""
    name, spec, numbers = state.name, state.spec, state.numbers
    for status in QUEUE_STATUSES:
        yield "kueue_cluster_queue_status", (name, status), status == state.status
    if numbers is None:
        return
    cohort = spec.get("cohortName") or spec.get("cohort") or ""
    yield "kueue_pending_workloads", (name, "active"), numbers.active
    yield "kueue_pending_workloads", (name, "inadmissible"), numbers.inadmissible
    yield "kueue_reserving_active_workloads", (name,), numbers.reserving
    yield "kueue_admitted_active_workloads", (name,), numbers.admitted
    yield "kueue_cluster_queue_info", (name, cohort, state.root), 1.0
    if numbers.share is not None:
        yield "kueue_cluster_queue_weighted_share", (name, cohort), shown_share(numbers.share)
    if resources:
        for kind, amounts in {**quotas_of(spec), **_usages(numbers)}.items():
            for key, amount in amounts.items():
                yield f"kueue_cluster_queue_{kind}", (cohort, name, *key), amount


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


def _usages(numbers: QueueStatus) -> dict[str, dict[QuotaKey, float]]:
    return {
        kind: {
            (row.name, cell.name): float(cell.total.fraction())
            for row in rows
            for cell in row.resources
        }
        for kind, rows in (
            ("resource_reservation", numbers.reservation),
            ("resource_usage", numbers.usage),
        )
    }


def quotas_of(spec: Obj) -> dict[str, dict[QuotaKey, float]]:
    """The quotas of a raw ClusterQueue by gauge, flavor and resource."""
    cells = list(_cells(spec))
    return {
        kind: {key: _amount(cell.get(field), unset) for key, cell in cells}
        for kind, field, unset in (
            ("nominal_quota", "nominalQuota", 0.0),
            ("borrowing_limit", "borrowingLimit", math.inf),
            ("lending_limit", "lendingLimit", math.inf),
        )
    }


def _amount(quantity: Any, unset: float) -> float:
    return unset if quantity is None else float(Quantity.parse(quantity).fraction())


def _cells(spec: Obj) -> Iterator[tuple[QuotaKey, dict[str, Any]]]:
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for cell in flavor.get("resources") or ():
                yield (flavor["name"], cell["name"]), cell
