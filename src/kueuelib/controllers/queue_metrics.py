"""The metrics of ClusterQueues, cohorts and LocalQueues, under upstream's names."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from kueuelib.api.kueue import LocalFlavorUsage
from kueuelib.api.meta import Obj, ObjectKey, key_of, labels_of
from kueuelib.api.quantity import Quantity
from kueuelib.controllers.series_labels import (
    ADMITTED_NOW,
    DEFAULT_METRICS,
    NOT_BY_WORKLOAD,
    ByWorkload,
    MetricSettings,
)
from kueuelib.machinery.selectors import Selector
from kueuelib.scheduler.knowledge import LocalQueueNumbers, QueueStatus
from kueuelib.scheduler.quota.queue_spec import Activity
from kueuelib.workload import states

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry
    from kueuelib.scheduler.engine import Engine


# ---- counters by queue and priority class, under the names of Kueue 0.19 -------------------------
# ClusterQueues and LocalQueues have the same metrics under different prefixes.


def exponential(count: int) -> tuple[float, ...]:
    """Kueue's bounds: one second, then 2.5 s, doubled repeatedly; `count` in total."""
    return (1.0, *(2.5 * 2**exponent for exponent in range(count - 1)))


WAIT_BUCKETS: Final = (*exponential(15), 86400.0, 259200.0)
"""Bounds of waiting times, up to three days."""
PRIORITY_CLASS: Final = "priority_class"

RESERVED: Final = "quota_reserved_workloads_total"
ADMITTED: Final = "admitted_workloads_total"
FINISHED: Final = "finished_workloads_total"
RESERVED_WAIT: Final = "quota_reserved_wait_time_seconds"
ADMITTED_WAIT: Final = "admission_wait_time_seconds"
CHECKS_WAIT: Final = "admission_checks_wait_time_seconds"
READY_WAIT: Final = "ready_wait_time_seconds"
ADMITTED_UNTIL_READY: Final = "admitted_until_ready_wait_time_seconds"
EXECUTION: Final = "execution_time_seconds"

_COUNTERS: Final = (
    (RESERVED, "Workloads that got quota."),
    (ADMITTED, "Workloads that were admitted."),
    (FINISHED, "Workloads that finished."),
)
_TIMES: Final = (
    (RESERVED_WAIT, "From creation or the last requeue to the reservation.", WAIT_BUCKETS),
    (ADMITTED_WAIT, "From creation or the last requeue to admission.", WAIT_BUCKETS),
    (CHECKS_WAIT, "From the reservation to admission.", WAIT_BUCKETS),
    (READY_WAIT, "From creation or the last requeue to ready pods.", exponential(14)),
    (ADMITTED_UNTIL_READY, "From admission to ready pods.", exponential(14)),
    (EXECUTION, "From admission to the end, and the time of earlier admissions.", exponential(16)),
)
ALL: Final = frozenset(name for name, *_ in (*_COUNTERS, *_TIMES))


@attrs.frozen
class SeriesTally:
    """Some series of one queue and one priority class, by the names above."""

    _series: Mapping[str, Any]

    def count(self, name: str) -> None:
        """Count one more."""
        self._series[name].inc()

    def observe(self, name: str, seconds: float) -> None:
        """Observe a time; negative ones, from clocks that disagree, count as zero."""
        self._series[name].observe(max(seconds, 0.0))

    def and_those_of(self, other: SeriesTally) -> SeriesTally:
        """These series and others."""
        return SeriesTally({**self._series, **other._series})


class Counts:
    """Counters and histograms by queue and priority class, handled together like one metric.

    Args:
        telemetry: where to report.
        prefix: in front of the names above.
        queue: the labels of a queue.
        names: which of them.
        more: labels behind the priority class.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        prefix: str,
        queue: Sequence[str],
        names: Collection[str] = ALL,
        more: Sequence[str] = (),
    ) -> None:
        labels = (*queue, PRIORITY_CLASS, *more)
        self._metrics: dict[str, Any] = {
            name: telemetry.counter(f"{prefix}{name}", text, labels)
            for name, text in _COUNTERS
            if name in names
        } | {
            name: telemetry.histogram(f"{prefix}{name}", text, labels, buckets)
            for name, text, buckets in _TIMES
            if name in names
        }

    def labels(self, *values: str) -> SeriesTally:
        """The series with these values of all labels."""
        return SeriesTally({name: metric.labels(*values) for name, metric in self._metrics.items()})

    def remove(self, *values: str) -> None:
        """Drops the series with these values of all labels."""
        for metric in self._metrics.values():
            metric.remove(*values)


# --------------------------------------------------------------------------------------------------

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
class QueueGauges:
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


def queue_states(queues: Iterable[Obj], engine: Engine) -> Iterator[QueueGauges]:
    """The present states of raw ClusterQueues."""
    for queue in queues:
        name = queue["metadata"]["name"]
        alive = "active" if engine.activity(name).active else "pending"
        yield QueueGauges(
            name,
            "terminating" if queue["metadata"].get("deletionTimestamp") else alive,
            queue.get("spec") or {},
            engine.cluster_queue_status(name),
            (engine.cohorts(name) or ("",))[-1],
        )


def report_queues(
    telemetry: Telemetry,
    states: Callable[[], Iterable[QueueGauges]] = tuple,
    *,
    settings: MetricSettings = DEFAULT_METRICS,
    pending: Callable[[], Values] = dict,
    shapes: Callable[[], Values] = dict,
    by_workload: ByWorkload = NOT_BY_WORKLOAD,
) -> None:
    """Reports the gauges of ClusterQueues; everything is called at every scrape.

    Args:
        telemetry: where to report.
        states: of all ClusterQueues.
        settings: which series there are.
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
    if settings.resources:
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
            for gauge, labels, value in _series_of(state, resources=settings.resources):
                values[gauge][labels] = value
        return values

    telemetry.registry.register(Sampled(gauges, sample))


def _series_of(
    state: QueueGauges, *, resources: bool
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


# ---- the metrics of LocalQueues, under upstream's names (KEP-1833, KEP-4136) ---------------------

BY_WORKLOAD = frozenset({ADMITTED, ADMITTED_WAIT})
"""The counts that are also split by labels of Workloads."""
ACTIVE = ("True", "False", "Unknown")
_QUEUE = ("name", "namespace")
EVICTION = ("reason", "underlying_cause")
"""Why a Workload was evicted: the reason, and its underlying cause if there is one."""


@attrs.frozen
class Counted:
    """The queues and the priority class of a counted event.

    Attributes:
        cluster_queue: the owner of the quota.
        local_queue: the LocalQueue of the Workload.
        priority_class: the name of its class, empty for none.
        workload: the raw Workload, for its labels.
    """

    cluster_queue: str
    local_queue: ObjectKey
    priority_class: str = ""
    workload: Obj = attrs.field(factory=lambda: {"metadata": {}}, eq=False, repr=False)


def counted(wl: Obj) -> Counted:
    """Where a raw Workload that holds quota is counted."""
    admission = states.status_of(wl).get("admission") or {}
    queue = ObjectKey(wl["metadata"]["namespace"], wl["spec"].get("queueName") or "")
    return Counted(admission.get("clusterQueue", ""), queue, states.priority_class_of(wl), wl)


class _ReportedState:
    """The last reported state of a LocalQueue."""

    def __init__(self, numbers: LocalQueueNumbers | None, *, active: bool) -> None:
        self.active = active
        self.pending = 0 if numbers is None else numbers.pending
        self.reserving = 0 if numbers is None else numbers.reserving
        self.admitted = 0 if numbers is None else numbers.admitted


class LocalQueueMetrics:
    """Gauges and counters of LocalQueues; the series of a queue are removed with it.

    Args:
        telemetry: where to report.
        find: the raw LocalQueue of a key, None when it does not exist.
        settings: which series there are.
        inadmissible: how many Workloads of a LocalQueue wait for a change; asked at every scrape.
        by_workload: the metrics that are also split by labels of Workloads.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        find: Callable[[ObjectKey], Obj | None],
        settings: MetricSettings = DEFAULT_METRICS,
        *,
        inadmissible: Callable[[ObjectKey], int] = lambda _: 0,
        by_workload: ByWorkload = NOT_BY_WORKLOAD,
    ) -> None:
        self._find = find
        self._selector = settings.local_queues
        self._with_resources = settings.resources
        self._inadmissible = inadmissible
        self._series = OwnedSeries()
        self._shown: dict[ObjectKey, _ReportedState] = {}
        self._by_usage = False
        prefix = "kueue_local_queue"
        by_flavor = (*_QUEUE, "flavor", "resource")
        self._usage = telemetry.gauge(
            f"{prefix}_admission_fair_sharing_usage",
            "Past usage and entry penalties, weighted; the lowest value comes first.",
            (*_QUEUE, "cluster_queue"),
        )
        self._pending = telemetry.gauge(
            f"{prefix}_pending_workloads", "Workloads that wait.", (*_QUEUE, "status")
        )
        self._reserving = telemetry.gauge(
            f"{prefix}_reserving_active_workloads", "Workloads that hold quota.", _QUEUE
        )
        name, text = f"{prefix}_admitted_active_workloads", ADMITTED_NOW
        self._admitted_now: list[Any] = []
        if not by_workload.replaces(
            telemetry, name, text, _QUEUE, lambda: by_workload.admitted_in(self.reports)
        ):
            self._admitted_now.append(telemetry.gauge(name, text, _QUEUE))
        self._status = telemetry.gauge(
            f"{prefix}_status", "1 for the value of the Active condition.", (*_QUEUE, "active")
        )
        self._reservation = telemetry.gauge(
            f"{prefix}_resource_reservation", "Quota that is reserved.", by_flavor
        )
        self._resource_usage = telemetry.gauge(
            f"{prefix}_resource_usage", "Quota that admitted workloads use.", by_flavor
        )
        self._by_workload = by_workload
        own = by_workload.names
        self._counts = Counts(telemetry, f"{prefix}_", _QUEUE, ALL - BY_WORKLOAD)
        self._admissions = Counts(telemetry, f"{prefix}_", _QUEUE, BY_WORKLOAD, own)
        self._evicted = telemetry.counter(
            f"{prefix}_evicted_workloads_total",
            "Workloads that lost quota.",
            (*_QUEUE, *EVICTION, PRIORITY_CLASS),
        )

    def select(self, selector: Selector) -> None:
        """Select which LocalQueues are reported; the change takes effect for each one when it
        is next shown.
        """
        self._selector = selector

    def show(
        self, queue: Obj, numbers: LocalQueueNumbers | None, activity: Activity, cluster_queue: str
    ) -> None:
        """Report the present state of a LocalQueue."""
        key = key_of(queue)
        if not self._selector.matches(labels_of(queue)):
            self.forget(key)
            return
        new = key not in self._shown
        self._shown[key] = _ReportedState(numbers, active=activity.active)
        if new:
            self._begin(key)
        if numbers is None:
            return
        names = (key.name, key.namespace)
        if self._by_usage or numbers.past is not None:
            self._by_usage = True
            past = numbers.past
            usage: Values = {} if past is None else {(*names, cluster_queue): past.usage}
            self._series.replace(key, self._usage, usage)
        if self._with_resources:
            for gauge, rows in (
                (self._reservation, numbers.reservation),
                (self._resource_usage, numbers.usage),
            ):
                self._series.replace(key, gauge, _amounts(names, rows))

    def _begin(self, key: ObjectKey) -> None:
        """Gauges that are read at a scrape, from the last reported state."""
        gauges: list[tuple[Any, tuple[str, ...], Callable[[], float]]] = [
            (self._pending, ("active",), lambda: self._pending_in(key) - self._parked_in(key)),
            (self._pending, ("inadmissible",), lambda: self._parked_in(key)),
            (self._reserving, (), lambda: self._shown[key].reserving),
            *((each, (), lambda: self._shown[key].admitted) for each in self._admitted_now),
            *((self._status, (each,), partial(self._is_active, key, each)) for each in ACTIVE),
        ]
        for gauge, rest, read in gauges:
            labels = (key.name, key.namespace, *rest)
            self._series.one(key, gauge, labels).set_function(read)

    def _pending_in(self, key: ObjectKey) -> int:
        return self._shown[key].pending

    def _parked_in(self, key: ObjectKey) -> int:
        return min(self._inadmissible(key), self._pending_in(key))

    def _is_active(self, key: ObjectKey, value: str) -> float:
        return float(str(self._shown[key].active) == value)

    def evicted(self, where: Counted, reason: str, cause: str) -> None:
        """A Workload was evicted."""
        key = where.local_queue
        if self.reports(key):
            labels = (key.name, key.namespace, reason, cause, where.priority_class)
            self._series.one(key, self._evicted, labels).inc()

    def reports(self, key: ObjectKey) -> bool:
        """Whether a queue exists and is reported."""
        queue = self._find(key)
        return queue is not None and self._selector.matches(labels_of(queue))

    def forget(self, key: ObjectKey) -> None:
        """Drops all series of a queue."""
        self._shown.pop(key, None)
        self._series.forget(key)

    def tally(self, where: Counted) -> SeriesTally | None:
        """The series of a LocalQueue and a priority class; None when it is not reported."""
        key = where.local_queue
        if not self.reports(key):
            return None
        labels = (key.name, key.namespace, where.priority_class)
        tally: SeriesTally = self._series.one(key, self._counts, labels)
        own = (*labels, *self._by_workload.values(where.workload))
        admissions: SeriesTally = self._series.one(key, self._admissions, own)
        return tally.and_those_of(admissions)


def _amounts(names: tuple[str, str], rows: tuple[LocalFlavorUsage, ...]) -> Values:
    return {
        (*names, row.name, cell.name): float(cell.total.fraction())
        for row in rows
        for cell in row.resources
    }
