"""The metrics of LocalQueues, under upstream's names (KEP-1833, KEP-4136)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from kueuelib.api.kueue import LocalFlavorUsage
from kueuelib.api.meta import Obj, ObjectKey, key_of, labels_of
from kueuelib.controllers.by_workload import ADMITTED_NOW, NOT_BY_WORKLOAD, ByWorkload
from kueuelib.controllers.counts import (
    ADMITTED,
    ADMITTED_WAIT,
    ALL,
    PRIORITY_CLASS,
    Counts,
    Tally,
)
from kueuelib.controllers.queue_metrics import OwnedSeries, Values
from kueuelib.machinery.selectors import EVERYTHING, Selector
from kueuelib.scheduler.quota.activity import Activity
from kueuelib.scheduler.status import LocalQueueNumbers
from kueuelib.workload import states

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

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


class _Shown:
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
        selector: which LocalQueues are reported, by their labels.
        resources: whether quota is reported by flavor and resource.
        inadmissible: how many Workloads of a LocalQueue wait for a change; asked at every scrape.
        by_workload: the metrics that are also split by labels of Workloads.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        find: Callable[[ObjectKey], Obj | None],
        selector: Selector = EVERYTHING,
        *,
        resources: bool = False,
        inadmissible: Callable[[ObjectKey], int] = lambda _: 0,
        by_workload: ByWorkload = NOT_BY_WORKLOAD,
    ) -> None:
        self._find = find
        self._selector = selector
        self._with_resources = resources
        self._inadmissible = inadmissible
        self._series = OwnedSeries()
        self._shown: dict[ObjectKey, _Shown] = {}
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
        self._shown[key] = _Shown(numbers, active=activity.active)
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

    def tally(self, where: Counted) -> Tally | None:
        """The series of a LocalQueue and a priority class; None when it is not reported."""
        key = where.local_queue
        if not self.reports(key):
            return None
        labels = (key.name, key.namespace, where.priority_class)
        tally: Tally = self._series.one(key, self._counts, labels)
        own = (*labels, *self._by_workload.values(where.workload))
        admissions: Tally = self._series.one(key, self._admissions, own)
        return tally.and_those_of(admissions)


def _amounts(names: tuple[str, str], rows: tuple[LocalFlavorUsage, ...]) -> Values:
    return {
        (*names, row.name, cell.name): float(cell.total.fraction())
        for row in rows
        for cell in row.resources
    }
