"""Metrics by labels of Workloads (KEP-7066).

Workloads are counted at the scrape. So a Workload whose labels change counts elsewhere at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.series_labels import WORKLOAD, CustomLabel, Find
from kueuelib.scheduler.quota.holders import Holder

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

ADMITTED_NOW: Final = "Workloads that are admitted."

Series = tuple[str, ...]
"""The labels of one series."""
Waiting = Callable[[], Iterable[tuple[str, str, Collection[ObjectKey]]]]
"""What waits, by ClusterQueue and status, every ClusterQueue included."""


class ByWorkload:
    """How many Workloads there are by their labels.

    Args:
        custom: labels of series; those of other objects are left out.
        find: the raw Workload of a key.
        waiting: what waits.
        admitted: what is admitted.
    """

    def __init__(
        self,
        custom: Sequence[CustomLabel] = (),
        find: Find = lambda _: None,
        waiting: Waiting = tuple,
        admitted: Callable[[], Iterable[Holder]] = tuple,
    ) -> None:
        self._custom = tuple(each for each in custom if each.kind == WORKLOAD)
        self._find = find
        self._waiting = waiting
        self._admitted = admitted
        self._seen: set[Series] = set()
        self._seen_local: set[Series] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that series get; empty if Workloads have no labels that count."""
        return tuple(each.name for each in self._custom)

    def values(self, wl: Obj | None) -> tuple[str, ...]:
        """The values of these labels for a raw Workload."""
        return tuple("" if wl is None else each.value(wl) for each in self._custom)

    def replaces(
        self,
        telemetry: Telemetry,
        name: str,
        text: str,
        labels: Sequence[str],
        read: Callable[[], dict[Series, float]],
    ) -> bool:
        """Reports a gauge by labels of Workloads; False without such labels."""
        if self._custom:
            telemetry.sampled(name, text, (*labels, *self.names), read)
        return bool(self._custom)

    def pending(self) -> dict[Series, float]:
        """What waits, by ClusterQueue and status; there are no series for nothing."""
        return _counts(
            (queue, status, *self._values_of(key))
            for queue, status, keys in self._waiting()
            for key in keys
        )

    def admitted(self) -> dict[Series, float]:
        """What is admitted, by ClusterQueue; a series stays as long as its ClusterQueue."""
        queues = {queue for queue, *_ in self._waiting()}
        return _kept(
            self._seen,
            ((each.cluster_queue, *self._values_of(each.key)) for each in self._admitted()),
            lambda series: series[0] in queues,
        )

    def admitted_in(self, reports: Callable[[ObjectKey], bool]) -> dict[Series, float]:
        """What is admitted, by name and namespace of the LocalQueues that are reported."""
        return _kept(
            self._seen_local,
            (
                (each.local_queue.name, each.local_queue.namespace, *self._values_of(each.key))
                for each in self._admitted()
            ),
            lambda series: reports(ObjectKey(series[1], series[0])),
        )

    def _values_of(self, key: ObjectKey) -> tuple[str, ...]:
        return self.values(self._find(key))


NOT_BY_WORKLOAD: Final = ByWorkload()


def _counts(series: Iterable[Series]) -> dict[Series, float]:
    return {labels: float(count) for labels, count in Counter(series).items()}


def _kept(
    seen: set[Series], series: Iterator[Series], lives: Callable[[Series], bool]
) -> dict[Series, float]:
    """The counts of all series that still exist; 0 for one that was seen, and has no count now."""
    counts = _counts(series)
    seen.update(counts)
    seen.difference_update([labels for labels in seen if not lives(labels)])
    return {labels: counts.get(labels, 0.0) for labels in sorted(seen)}
