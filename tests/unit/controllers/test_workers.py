"""How many objects of a kind are reconciled at a time."""

from __future__ import annotations

from kueuelib.api.kinds import CLUSTER_QUEUES, WORKLOADS
from kueuelib.controllers.assembly import ControllerSettings


def test_workloads_have_five_workers_and_queues_one_unless_the_configuration_says_otherwise():
    settings = ControllerSettings()
    assert (settings.workers_of(WORKLOADS), settings.workers_of(CLUSTER_QUEUES)) == (5, 1)
    wanted = ControllerSettings(workers={"Workload.kueue.x-k8s.io": 2})
    assert wanted.workers_of(WORKLOADS) == 2
