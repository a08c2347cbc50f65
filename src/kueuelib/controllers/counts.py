"""Counters by queue and priority class, under the names of Kueue 0.19.

ClusterQueues and LocalQueues have the same metrics under different prefixes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


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
    (EXECUTION, "From admission to the end, with earlier admissions.", exponential(16)),
)
ALL: Final = frozenset(name for name, *_ in (*_COUNTERS, *_TIMES))


@attrs.frozen
class Tally:
    """Some series of one queue and one priority class, by the names above."""

    _series: Mapping[str, Any]

    def count(self, name: str) -> None:
        """Count one more."""
        self._series[name].inc()

    def observe(self, name: str, seconds: float) -> None:
        """Observe a time; negative ones, from clocks that disagree, count as zero."""
        self._series[name].observe(max(seconds, 0.0))

    def and_those_of(self, other: Tally) -> Tally:
        """These series and others."""
        return Tally({**self._series, **other._series})


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

    def labels(self, *values: str) -> Tally:
        """The series with these values of all labels."""
        return Tally({name: metric.labels(*values) for name, metric in self._metrics.items()})

    def remove(self, *values: str) -> None:
        """Drops the series with these values of all labels."""
        for metric in self._metrics.values():
            metric.remove(*values)
