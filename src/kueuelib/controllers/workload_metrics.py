"""Metrics of Workloads from their stored state, no matter which part wrote it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kueuelib.api.meta import Obj, ObjectKey, parse_time
from kueuelib.api.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    QUOTA_RESERVED,
    REASON_UNSATISFIED_CHECKS,
)
from kueuelib.api.workload_state import waits_since
from kueuelib.controllers.queue_metrics import EVICTION, LocalQueueMetrics, counted
from kueuelib.machinery.store import Delta
from kueuelib.scheduler.object_reasons import PENDING_EVALUATION
from kueuelib.workload import states

if TYPE_CHECKING:
    from kueuelib.controllers.metrics import SchedulerMetrics
    from kueuelib.runtime.telemetry import Telemetry

NO_RESERVATION: Final = "NoReservation"
"""The reason for a Workload without a condition that says why it is not admitted."""
PODS_STARTED: Final = "Started"

_Conditions = Mapping[str, Mapping[str, str]]


@attrs.frozen
class _MetricGroup:
    """Workloads that count together.

    Attributes:
        queue: their LocalQueue.
        finished: whether they are over.
        why: the reason and its underlying cause, if they are not admitted.
    """

    queue: ObjectKey
    finished: bool = False
    why: tuple[str, str] = ("", "")


class WorkloadMetrics:
    """Follows Workloads; a handler of their informer.

    Gauges show the stored state, in every replica. Times and counters come from changes that the
    leader sees.

    Args:
        telemetry: where to report.
        metrics: for times and counts.
        local_queues: which LocalQueues are reported.
        cluster_queue: the ClusterQueue of a LocalQueue; empty if there is no such LocalQueue.
        leading: whether this replica counts.
        now: Unix seconds.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        metrics: SchedulerMetrics,
        local_queues: LocalQueueMetrics,
        cluster_queue: Callable[[ObjectKey], str],
        *,
        leading: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._metrics = metrics
        self._local_queues = local_queues
        self._cluster_queue = cluster_queue
        self._leading = leading
        self._now = now
        self._groups: Counter[_MetricGroup] = Counter()
        name, queue = ("name", "namespace"), ("cluster_queue",)
        for gauge, text, labels, read in (
            ("finished_workloads", "Finished Workloads.", queue, self._finished),
            (
                "unadmitted_workloads",
                "Workloads that are not admitted.",
                (*queue, *EVICTION),
                self._unadmitted,
            ),
            ("local_queue_finished_workloads", "Finished Workloads.", name, self._local_finished),
            (
                "local_queue_unadmitted_workloads",
                "Workloads that are not admitted.",
                (*name, *queue, *EVICTION),
                self._local_unadmitted,
            ),
        ):
            telemetry.sampled(f"kueue_{gauge}", text, labels, read)

    def seen(self, delta: Delta[Obj]) -> None:
        """Takes one change of a Workload."""
        before, after = _conditions(delta.old), _conditions(delta.new)
        self._regroup(_group(delta.old, before), _group(delta.new, after))
        if delta.old is not None and delta.new is not None and self._leading():
            self._count(delta.old, before, delta.new, after)

    def _regroup(self, before: _MetricGroup | None, after: _MetricGroup | None) -> None:
        if before != after:
            if before is not None:
                self._groups[before] -= 1
                if not self._groups[before]:
                    del self._groups[before]
            if after is not None:
                self._groups[after] += 1

    def _count(self, old: Obj, before: _Conditions, new: Obj, after: _Conditions) -> None:
        if _is(FINISHED, after) and not _is(FINISHED, before):
            self._metrics.finished(counted(new), execution_time(new))
        ready = after.get(PODS_READY)
        if ready and _is_first(ready) and not _is_first(before.get(PODS_READY, {})):
            since = parse_time(ready["lastTransitionTime"])
            admitted = after.get(ADMITTED)
            self._metrics.ready(
                counted(new),
                since - _waits_since(new, since),
                since - parse_time(admitted["lastTransitionTime"]) if admitted else 0.0,
            )
        if _is(EVICTED, after) and not _is(EVICTED, before) and _is(PODS_READY, before):
            began = parse_time(before[PODS_READY]["lastTransitionTime"])
            lasted = parse_time(after[EVICTED]["lastTransitionTime"]) - began
            self._metrics.evicted_while_ready(counted(old), *states.eviction_cause(new), lasted)
        if _is(QUOTA_RESERVED, before) and not _is(QUOTA_RESERVED, after) and _is(EVICTED, after):
            where = counted(old)
            if where.cluster_queue and not _is(FINISHED, after):
                latency = self._now() - parse_time(after[EVICTED]["lastTransitionTime"])
                self._metrics.released(where, states.eviction_cause(new)[0], latency)

    def _by_queue(self) -> Mapping[tuple[ObjectKey, str], list[tuple[_MetricGroup, int]]]:
        by_queue: dict[tuple[ObjectKey, str], list[tuple[_MetricGroup, int]]] = {}
        for group, number in self._groups.items():
            cluster_queue = self._cluster_queue(group.queue)
            if cluster_queue:
                by_queue.setdefault((group.queue, cluster_queue), []).append((group, number))
        return by_queue

    def _sums(self, *, finished: bool, local: bool) -> dict[tuple[str, ...], float]:
        sums: Counter[tuple[str, ...]] = Counter()
        for (queue, cluster_queue), groups in self._by_queue().items():
            if local and not self._local_queues.reports(queue):
                continue
            name = (queue.name, queue.namespace) if local else ()
            for group, number in groups:
                if group.finished != finished:
                    continue
                own = () if local and finished else (cluster_queue,)
                sums[(*name, *own, *(() if finished else group.why))] += number
        return {labels: float(number) for labels, number in sums.items()}

    def _finished(self) -> dict[tuple[str, ...], float]:
        return self._sums(finished=True, local=False)

    def _unadmitted(self) -> dict[tuple[str, ...], float]:
        return self._sums(finished=False, local=False)

    def _local_finished(self) -> dict[tuple[str, ...], float]:
        return self._sums(finished=True, local=True)

    def _local_unadmitted(self) -> dict[tuple[str, ...], float]:
        return self._sums(finished=False, local=True)


def count_late_admission(metrics: SchedulerMetrics, wl: Obj, now: float) -> float:
    """Counts a Workload that is admitted some time after it got quota; returns these seconds."""
    reserved = parse_time(states.condition(wl, QUOTA_RESERVED)["lastTransitionTime"])
    checked = max(now - reserved, 0.0)
    metrics.admitted(counted(wl), max(now - _waits_since(wl, now), 0.0), checked)
    return checked


def execution_time(wl: Obj) -> float | None:
    """Seconds from admission to the end, with earlier admissions; None if it was not admitted."""
    if not states.is_admitted(wl):
        return None
    ended = parse_time(states.condition(wl, FINISHED)["lastTransitionTime"])
    return states.past_seconds(wl) + ended - states.admitted_since(wl)


def _waits_since(wl: Obj, now: float) -> float:
    since = waits_since(wl)
    return now if since is None else since


def _conditions(wl: Obj | None) -> _Conditions:
    """All conditions by type; called often for every Workload."""
    status = wl and wl.get("status")
    return {each["type"]: each for each in status.get("conditions") or ()} if status else {}


def _is(type: str, conditions: _Conditions) -> bool:
    return type in conditions and conditions[type].get("status") == "True"


def _is_first(ready: Mapping[str, str]) -> bool:
    """Whether pods are ready for the first time since the admission."""
    return ready.get("status") == "True" and ready.get("reason") == PODS_STARTED


def _group(wl: Obj | None, conditions: _Conditions) -> _MetricGroup | None:
    """The group of a Workload; None for one that is admitted or being evicted."""
    if wl is None:
        return None
    metadata = wl["metadata"]
    queue = ObjectKey(metadata.get("namespace") or "", wl["spec"].get("queueName") or "")
    if _is(FINISHED, conditions):
        return _MetricGroup(queue, finished=True)
    if _is(ADMITTED, conditions) or metadata.get("deletionTimestamp"):
        return None
    reason = conditions.get(ADMITTED, {}).get("reason", NO_RESERVATION)
    if not _is(QUOTA_RESERVED, conditions):
        reserved = conditions.get(QUOTA_RESERVED, {})
        return _MetricGroup(queue, why=(reason, reserved.get("reason", PENDING_EVALUATION)))
    # The condition is absent, or of the time before the reservation, until checks have decided.
    waits = reason.startswith(NO_RESERVATION)
    return _MetricGroup(queue, why=(REASON_UNSATISFIED_CHECKS if waits else reason, ""))
