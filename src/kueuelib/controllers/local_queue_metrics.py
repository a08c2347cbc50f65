"""The metrics of LocalQueues, under upstream's names (KEP-1833, KEP-4136)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from kueuelib.api.kueue import LocalFlavorUsage
from kueuelib.api.meta import Obj, ObjectKey, key_of, labels_of
from kueuelib.controllers.queue_metrics import OwnedSeries, Values
from kueuelib.machinery.selectors import EVERYTHING, Selector
from kueuelib.scheduler.quota.activity import Activity
from kueuelib.scheduler.status import LocalQueueStatus
from kueuelib.workload import states

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

WAIT_BUCKETS = (1.0, *(2.5 * 2**exponent for exponent in range(14)), 86400.0, 259200.0)
ACTIVE_VALUES = ("True", "False", "Unknown")
_QUEUE = ("name", "namespace")
_CLASS = "priority_class"


@attrs.frozen
class Counted:
    """Where something that is counted happened.

    Attributes:
        cluster_queue: whose quota it is about.
        local_queue: the LocalQueue of the Workload.
        priority_class: the name of its class, empty for none.
    """

    cluster_queue: str
    local_queue: ObjectKey
    priority_class: str = ""


def counted(wl: Mapping[str, Any]) -> Counted:
    """Where a raw Workload that holds quota is counted."""
    admission = states.status_of(wl).get("admission") or {}
    queue = ObjectKey(wl["metadata"]["namespace"], wl["spec"].get("queueName") or "")
    return Counted(admission.get("clusterQueue", ""), queue, states.priority_class_of(wl))


class LocalQueueMetrics:
    """Gauges and counts of LocalQueues; a queue's series go with the queue.

    Args:
        telemetry: where to.
        find: the raw LocalQueue of a key, None when it does not exist.
        selector: which LocalQueues are reported, by their labels.
        resources: whether quota is reported by flavor and resource.
        inadmissible: how many Workloads of a LocalQueue wait for a change; asked at every scrape.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        find: Callable[[ObjectKey], Obj | None],
        selector: Selector = EVERYTHING,
        *,
        resources: bool = False,
        inadmissible: Callable[[ObjectKey], int] = lambda _: 0,
    ) -> None:
        self._find = find
        self._selector = selector
        self._with_resources = resources
        self._inadmissible = inadmissible
        self._series = OwnedSeries()
        self._pending_of: dict[ObjectKey, int] = {}
        prefix = "kueue_local_queue"
        by_class = (*_QUEUE, _CLASS)
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
        self._admitted_now = telemetry.gauge(
            f"{prefix}_admitted_active_workloads", "Workloads that are admitted.", _QUEUE
        )
        self._status = telemetry.gauge(
            f"{prefix}_status", "1 for the value of the Active condition.", (*_QUEUE, "active")
        )
        self._reservation = telemetry.gauge(
            f"{prefix}_resource_reservation", "Quota that is reserved.", by_flavor
        )
        self._resource_usage = telemetry.gauge(
            f"{prefix}_resource_usage", "Quota that admitted workloads use.", by_flavor
        )
        self._reserved = telemetry.counter(
            f"{prefix}_quota_reserved_workloads_total", "Workloads that got quota.", by_class
        )
        self._admitted = telemetry.counter(
            f"{prefix}_admitted_workloads_total", "Workloads that were admitted.", by_class
        )
        self._evicted = telemetry.counter(
            f"{prefix}_evicted_workloads_total",
            "Workloads that lost quota.",
            (*_QUEUE, "reason", _CLASS),
        )
        waits = (
            ("quota_reserved", "From creation or the last requeue to the reservation."),
            ("admission", "From creation or the last requeue to admission."),
            ("admission_checks", "From the reservation to admission."),
        )
        self._waits = {
            name: telemetry.histogram(
                f"{prefix}_{name}_wait_time_seconds", text, by_class, WAIT_BUCKETS
            )
            for name, text in waits
        }

    def show(
        self, queue: Obj, numbers: LocalQueueStatus | None, activity: Activity, cluster_queue: str
    ) -> None:
        """What a LocalQueue does at the moment."""
        key = key_of(queue)
        if not self._selector.matches(labels_of(queue)):
            self.forget(key)
            return
        names, owner = (key.name, key.namespace), str(key)
        for value in ACTIVE_VALUES:
            is_it = value == str(activity.active)
            self._series.set(owner, self._status, (*names, value), float(is_it))
        past = None if numbers is None else numbers.past
        usage: Values = {} if past is None else {(*names, cluster_queue): past.usage}
        self._series.replace(owner, self._usage, usage)
        if numbers is None:
            return
        self._show_pending(key, numbers.pending)
        self._series.set(owner, self._reserving, names, numbers.reserving)
        self._series.set(owner, self._admitted_now, names, numbers.admitted)
        if self._with_resources:
            for gauge, rows in (
                (self._reservation, numbers.reservation),
                (self._resource_usage, numbers.usage),
            ):
                self._series.replace(owner, gauge, _amounts(names, rows))

    def _show_pending(self, key: ObjectKey, pending: int) -> None:
        known = key in self._pending_of
        self._pending_of[key] = pending
        if known:
            return
        for status, count in (("active", self._active), ("inadmissible", self._parked)):
            labels = (key.name, key.namespace, status)
            self._series.own(str(key), self._pending, labels)
            self._pending.labels(*labels).set_function(partial(count, key))

    def _parked(self, key: ObjectKey) -> float:
        return min(self._inadmissible(key), self._pending_of.get(key, 0))

    def _active(self, key: ObjectKey) -> float:
        return self._pending_of.get(key, 0) - self._parked(key)

    def reserved(self, where: Counted, waited: float) -> None:
        """A Workload got quota, `waited` seconds after it was queued."""
        if labels := self._labels(where):
            self._count(labels, self._reserved)
            self._observe(labels, "quota_reserved", waited)

    def admitted(self, where: Counted, waited: float, checks_waited: float) -> None:
        """A Workload was admitted: seconds since it was queued, and since it got quota."""
        if labels := self._labels(where):
            self._count(labels, self._admitted)
            self._observe(labels, "admission", waited)
            self._observe(labels, "admission_checks", checks_waited)

    def evicted(self, where: Counted, reason: str) -> None:
        """A Workload was evicted."""
        if labels := self._labels(where):
            name, namespace, priority_class = labels
            self._count((name, namespace, reason, priority_class), self._evicted)

    def forget(self, key: ObjectKey) -> None:
        """Drops all series of a queue."""
        self._pending_of.pop(key, None)
        self._series.forget(str(key))

    def _labels(self, where: Counted) -> tuple[str, str, str] | None:
        """The labels of a count; None when its LocalQueue is not reported."""
        key = where.local_queue
        queue = self._find(key)
        if queue is None or not self._selector.matches(labels_of(queue)):
            return None
        return key.name, key.namespace, where.priority_class

    def _count(self, labels: tuple[str, ...], counter: Any) -> None:
        name, namespace, *_ = labels
        self._series.own(str(ObjectKey(namespace, name)), counter, labels)
        counter.labels(*labels).inc()

    def _observe(self, labels: tuple[str, ...], wait: str, seconds: float) -> None:
        name, namespace, *_ = labels
        self._series.own(str(ObjectKey(namespace, name)), self._waits[wait], labels)
        self._waits[wait].labels(*labels).observe(seconds)


def _amounts(names: tuple[str, str], rows: tuple[LocalFlavorUsage, ...]) -> Values:
    return {
        (*names, row.name, cell.name): float(cell.total.fraction())
        for row in rows
        for cell in row.resources
    }
