"""The labels that all series of Kueue have in common: the replica, and labels of queue objects.

They are computed at the scrape, so that a series follows the role of its replica and the labels of
its object at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from kueuelib.api.meta import Obj, ObjectKey, annotations_of, labels_of

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
