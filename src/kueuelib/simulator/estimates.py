"""Estimates run times from earlier jobs of the same queue with the same requests."""

from __future__ import annotations

from bisect import insort

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey

Likeness = tuple[ObjectKey, str]
"""A class of similar jobs: their LocalQueue, and their requests as a text."""


def likeness(workload: Workload) -> Likeness:
    """The class of a job."""
    parts = []
    for pod_set in workload.spec.pod_sets:
        containers = [
            sorted((name, str(amount)) for name, amount in each.resources.requests.items())
            for each in pod_set.template.spec.containers
        ]
        parts.append((pod_set.name, pod_set.count, containers))
    return ObjectKey(workload.namespace, workload.spec.queue_name), repr(parts)


class RunTimes:
    """The run times of jobs that have ended, in seconds."""

    def __init__(self) -> None:
        self._alike: dict[Likeness, list[float]] = {}
        self._in_queue: dict[ObjectKey, list[float]] = {}

    def add(self, workload: Workload, seconds: float) -> None:
        """Adds a job that has ended."""
        group = likeness(workload)
        insort(self._alike.setdefault(group, []), seconds)
        insort(self._in_queue.setdefault(group[0], []), seconds)

    def of(self, workload: Workload) -> tuple[float, ...]:
        """The run times of similar jobs, ascending."""
        return tuple(self._alike.get(likeness(workload), ()))

    def in_queue(self, workload: Workload) -> tuple[float, ...]:
        """The run times of all jobs of its LocalQueue, ascending."""
        return tuple(self._in_queue.get(likeness(workload)[0], ()))

    def middle(self, workload: Workload) -> float | None:
        """The median run time of similar jobs, or else of its LocalQueue."""
        times = self.of(workload) or self.in_queue(workload)
        return times[len(times) // 2] if times else None
