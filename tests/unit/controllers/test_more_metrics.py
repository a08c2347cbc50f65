"""Metrics about what waits, lost preemptions, early evictions and the build."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from kueuelib import __version__
from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.counts import exponential
from kueuelib.controllers.local_queue_metrics import LocalQueueMetrics
from kueuelib.controllers.metrics import SchedulerMetrics, report_build
from kueuelib.controllers.queue_metrics import OwnedSeries, QueueMetrics
from kueuelib.controllers.series_labels import SeriesLabels
from kueuelib.controllers.workload_metrics import WorkloadMetrics
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.workload import states

if TYPE_CHECKING:
    from .conftest import World

NOW = 1_700_000_000.0
Obj = dict[str, Any]


def lines(telemetry: Telemetry, name: str) -> list[str]:
    return [line for line in telemetry.render().decode().splitlines() if line.startswith(name)]


def test_the_build_is_reported_without_the_role_of_the_replica() -> None:
    telemetry = Telemetry()
    telemetry.more_labels = SeriesLabels(lambda: "leader")
    report_build(telemetry)
    (line,) = lines(telemetry, "kueue_build_info")
    assert f'git_version="v{__version__}"' in line
    assert "replica_role" not in line
    assert line.endswith(" 1.0")


def test_lost_preemptions_are_those_of_the_last_cycle_and_go_with_the_queue() -> None:
    telemetry, series = Telemetry(), OwnedSeries()
    metrics = SchedulerMetrics(telemetry, series=series)
    name = "kueue_admission_cycle_preemption_skips"
    metrics.skipped_preemptions({"a": 1, "b": 0})
    metrics.skipped_preemptions({"a": 0})
    values = ['{cluster_queue="a"} 0.0', '{cluster_queue="b"} 0.0']
    assert lines(telemetry, name) == [f"{name}{each}" for each in values]
    series.forget("a")
    assert lines(telemetry, name) == [f'{name}{{cluster_queue="b"}} 0.0']


@pytest.mark.parametrize("resources", [True, False])
def test_what_waits_is_reported_with_quotas_only(resources: bool) -> None:
    telemetry = Telemetry()
    QueueMetrics(telemetry, resources=resources, pending=lambda: {("a", "cpu"): 2.5})
    found = lines(telemetry, "kueue_cluster_queue_resource_pending")
    wanted = ['kueue_cluster_queue_resource_pending{cluster_queue="a",resource="cpu"} 2.5']
    assert found == (wanted if resources else [])


async def test_what_waits_asks_for_is_summed_by_resource(world: World) -> None:
    await world.queues(cpu="1")
    async with world.running():
        for name in ("first", "second", "third"):
            await world.workload(name)
        await world.is_("first", "Admitted")
        await world.workload("other", queue="none")
        engine = world.engine
        found = engine.pending_requests()
        shapes = engine.pending_shapes()
    assert found == {("cq", "cpu"): 2.0}
    assert shapes == {("cq", "active"): 0.0, ("cq", "inadmissible"): 1.0}


def admitted() -> Obj:
    wl: Obj = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "creationTimestamp": "x"},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {}}]},
        "status": {},
    }
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
    return states.reserve(wl, admission, (), NOW)


@pytest.mark.parametrize(("ready", "count"), [("True", 1), ("False", 0)])
def test_an_eviction_after_the_pods_were_ready_is_timed(ready: str, count: int) -> None:
    telemetry = Telemetry()
    local = LocalQueueMetrics(telemetry, lambda _: None)
    follower = WorkloadMetrics(
        telemetry,
        SchedulerMetrics(telemetry),
        local,
        lambda _: "cq",
        leading=lambda: True,
        now=lambda: NOW,
    )
    old = admitted()
    condition = {"type": "PodsReady", "status": ready, "reason": "Started"}
    condition["lastTransitionTime"] = "2023-11-14T22:13:20Z"  # NOW
    old["status"]["conditions"].append(condition)
    new = states.evict(copy.deepcopy(old), "Preempted", "room", NOW + 30)
    key = ObjectKey("ns", "w")
    follower.seen(Delta(DeltaKind.ADDED, key, None, old))
    follower.seen(Delta(DeltaKind.UPDATED, key, old, new))
    name = "kueue_pods_ready_to_evicted_time_seconds"
    labels = '{cluster_queue="cq",reason="Preempted",underlying_cause=""}'
    assert (f"{name}_sum{labels} 30.0" in lines(telemetry, name)) is bool(count)
    assert len(lines(telemetry, f"{name}_bucket")) == count * (len(exponential(14)) + 1)
