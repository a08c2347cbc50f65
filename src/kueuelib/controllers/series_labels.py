"""Which series there are, and the labels that all of them have or that Workloads give them.

They are computed at the scrape, so that a series follows the role of its replica and the labels of
its object at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from kueuelib.api.meta import Obj, ObjectKey, annotations_of, labels_of
from kueuelib.machinery.selectors import EVERYTHING, Selector
from kueuelib.scheduler.quota.holders import Holder

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


REPLICA_ROLE: Final = "replica_role"
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
STANDALONE: Final = "standalone"
UNTRACKED: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""Stands for every value that is not tracked."""
COHORT: Final = "Cohort"
CLUSTER_QUEUE: Final = "ClusterQueue"
LOCAL_QUEUE: Final = "LocalQueue"
WORKLOAD: Final = "Workload"

_WITHOUT: Final = (
    *("kueue_pods_gated", "kueue_pods_ungated", "kueue_pods_rejected"),
    "kueue_build_info",
)

Find = Callable[[ObjectKey], Obj | None]
"""The raw object of a key, None when there is none."""


@attrs.frozen
class CustomLabel:
    """A label or an annotation of an object that its series carry (KEP-7066).

    Attributes:
        name: of the label of the series.
        kind: whose label or annotation it is: Cohort, ClusterQueue, LocalQueue or Workload.
        key: of the label or annotation.
        annotation: whether it is an annotation.
        tracked: the values that are shown; empty for all.
    """

    name: str
    kind: str
    key: str
    annotation: bool = False
    tracked: tuple[str, ...] = ()

    def value(self, obj: Obj) -> str:
        """The value for the series of an object; empty for an object without the label."""
        value = (annotations_of(obj) if self.annotation else labels_of(obj)).get(self.key, "")
        return value if not self.tracked or value in self.tracked else UNTRACKED


@attrs.frozen
class MetricSettings:
    """Which series there are; the block `metrics` of the configuration.

    Attributes:
        resources: whether quota and usage are reported by flavor and resource
            (`enableClusterQueueResources`).
        local_queues: the LocalQueues with metrics, by their labels (`localQueueMetrics`).
        custom_labels: labels of objects on their series (`customLabels`).
    """

    resources: bool = False
    local_queues: Selector = EVERYTHING
    custom_labels: tuple[CustomLabel, ...] = ()


DEFAULT_METRICS: Final = MetricSettings()
"""The series of ClusterQueues without quotas, and those of all LocalQueues."""


class SeriesLabels:
    """A function for `Telemetry.more_labels`.

    Args:
        role: the role of this replica at the moment.
        custom: labels from objects.
        find: the objects, by their kind.
    """

    def __init__(
        self,
        role: Callable[[], str],
        custom: Sequence[CustomLabel] = (),
        find: Mapping[str, Find] | None = None,
    ) -> None:
        self._role = role
        self._custom: dict[str, list[CustomLabel]] = {}
        for each in custom:
            self._custom.setdefault(each.kind, []).append(each)
        self._find = find or {}

    def __call__(self, name: str, labels: Mapping[str, str]) -> Mapping[str, str]:
        """The additional labels of a series; none for metrics that Kueue does not have."""
        if not name.startswith("kueue_") or name.startswith(_WITHOUT):
            return {}
        extra = {REPLICA_ROLE: self._role()}
        about = subject(name, labels) if self._custom else None
        if about is None:
            return extra
        kind, key = about
        wanted = self._custom.get(kind, ())
        obj = self._find[kind](key) if wanted else None
        for label in wanted:
            extra[label.name] = "" if obj is None else label.value(obj)
        return extra


def role_of(leading: bool | None) -> str:
    """The role of a replica: leader, follower, or without an election."""
    if leading is None:
        return STANDALONE
    return LEADER if leading else FOLLOWER


def subject(name: str, labels: Mapping[str, str]) -> tuple[str, ObjectKey] | None:
    """Kind and key of the object that a series is about; None if it is not about a queue."""
    if name.startswith("kueue_local_queue_"):
        return LOCAL_QUEUE, ObjectKey(labels["namespace"], labels["name"])
    if name.startswith("kueue_cohort_"):
        return COHORT, ObjectKey("", labels["cohort"])
    queue = labels.get("cluster_queue", labels.get("preempting_cluster_queue"))
    return None if queue is None else (CLUSTER_QUEUE, ObjectKey("", queue))


# ---- metrics by labels of Workloads (KEP-7066) ---------------------------------------------------
# Workloads are counted at the scrape. So a Workload whose labels change counts elsewhere at once.

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
