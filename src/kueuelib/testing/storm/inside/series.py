"""The metrics of a manager match the stored objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.inside.leaks import Disposed
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    WORKLOADS,
    admitted,
    finished,
    leaving,
    name,
    queue_of,
    reserving,
    status,
)

__all__ = ["metrics_match"]

RESERVING: Final = "kueue_reserving_active_workloads"
ADMITTED: Final = "kueue_admitted_active_workloads"
PENDING: Final = "kueue_pending_workloads"
QUEUE: Final = "cluster_queue"
_OBJECTS: Final = (QUEUE, "cohort", "preempting_cluster_queue", "flavor")
"""Labels whose values are names of objects of the cluster."""


def metrics_match(
    telemetry: Telemetry, objects: Callable[[str], list[Obj]], gone: Disposed
) -> Iterator[tuple[str, str]]:
    """Yield the series and the text of each metric that is wrong.

    Args:
        telemetry: The metrics of a manager that leads.
        objects: Returns all stored objects of a resource.
        gone: What no longer exists.
    """
    shown: dict[str, Counter[str]] = {RESERVING: Counter(), ADMITTED: Counter(), PENDING: Counter()}
    for metric in telemetry.registry.collect():
        for sample in metric.samples:
            left = [sample.labels.get(label, "") for label in _OBJECTS]
            if not gone.names.isdisjoint(left):
                yield sample.name, f"a series says {sample.labels}, of which something is gone"
            if sample.name in shown:
                shown[sample.name][sample.labels[QUEUE]] += int(sample.value)
    queues = [one for one in objects(CLUSTER_QUEUES) if not leaving(one)]
    holding = [one for one in objects(WORKLOADS) if reserving(one) and not finished(one)]
    stored = {
        RESERVING: Counter(map(queue_of, holding)),
        ADMITTED: Counter(queue_of(one) for one in holding if admitted(one)),
        PENDING: Counter({name(one): status(one).get("pendingWorkloads", 0) for one in queues}),
    }
    for series, counts in stored.items():
        for queue in map(name, queues):
            if shown[series][queue] != counts[queue]:
                yield series, f"{queue} has {counts[queue]}, but shows {shown[series][queue]}"
