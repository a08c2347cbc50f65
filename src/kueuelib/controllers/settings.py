"""The manager's settings for the queueing controllers."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.kinds import V1BETA2, WORKLOADS
from kueuelib.api.meta import Resource
from kueuelib.api.names import known_version
from kueuelib.controllers.series_labels import CustomLabel
from kueuelib.machinery.selectors import EVERYTHING, Selector
from kueuelib.workload.life import LifeSettings

WORKERS = 5
"""How many Workloads are reconciled at a time."""


@attrs.frozen
class ControllerSettings:
    """The manager's settings for the queueing controllers.

    Attributes:
        version: the version of the queueing API to use; the API server must serve it.
        workers: how many objects are reconciled at a time, by `Kind.group`; by
            default `WORKERS` Workloads, and one object of any other kind.
        appliers: how many Workload statuses are written at a time.
        resource_metrics: whether quota and usage are reported by flavor and resource
            (`metrics.enableClusterQueueResources`).
        local_queues_reported: the LocalQueues with metrics, by their labels
            (`metrics.localQueueMetrics`).
        custom_labels: labels of objects on their series (`metrics.customLabels`).
        life: time limits in the life of a Workload.
    """

    version: str = attrs.field(default=V1BETA2, converter=known_version)
    workers: Mapping[str, int] = attrs.field(factory=dict)
    appliers: int = 16
    resource_metrics: bool = False
    local_queues_reported: Selector = EVERYTHING
    custom_labels: tuple[CustomLabel, ...] = ()
    life: LifeSettings = attrs.field(factory=LifeSettings)

    def workers_of(self, resource: Resource) -> int:
        """How many objects of a kind are reconciled at a time."""
        default = WORKERS if resource.kind == WORKLOADS.kind else 1
        return self.workers.get(f"{resource.kind}.{resource.group}", default)
