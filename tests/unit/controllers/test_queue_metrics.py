"""The metrics of ClusterQueues and cohorts, as a scrape sees them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import pytest

from kueuelib.api.kueue import FlavorUsage, ResourceUsage
from kueuelib.api.quantity import Quantity
from kueuelib.controllers.queue_metrics import (
    CohortMetrics,
    QueueGauges,
    quotas_of,
    report_queues,
)
from kueuelib.controllers.series_labels import MetricSettings
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler.knowledge import QueueStatus

if TYPE_CHECKING:
    from .conftest import World


def lines(telemetry: Telemetry, name: str) -> list[str]:
    return [line for line in telemetry.render().decode().splitlines() if line.startswith(name)]


NUMBERS = QueueStatus(
    pending=3,
    active=1,
    inadmissible=2,
    reserving=3,
    admitted=4,
    reservation=(),
    usage=(),
    share=None,
)


def flavor(name: str, amount: int) -> FlavorUsage:
    total, borrowed = Quantity.parse(amount), Quantity.parse(0)
    return FlavorUsage(name=name, resources=(ResourceUsage("cpu", total, borrowed),))


def test_exactly_one_status_of_a_queue_is_one() -> None:
    telemetry = Telemetry()
    report_queues(telemetry, lambda: [QueueGauges("cq", "active", {}, None)])
    assert sorted(lines(telemetry, "kueue_cluster_queue_status")) == [
        'kueue_cluster_queue_status{cluster_queue="cq",status="active"} 1.0',
        'kueue_cluster_queue_status{cluster_queue="cq",status="pending"} 0.0',
        'kueue_cluster_queue_status{cluster_queue="cq",status="terminating"} 0.0',
    ]


def test_a_queue_has_the_series_of_its_present_state() -> None:
    telemetry, states = (
        Telemetry(),
        [QueueGauges("cq", "active", {"cohort": "old"}, NUMBERS, "top")],
    )
    report_queues(telemetry, lambda: states, settings=MetricSettings(resources=True))
    spec = {"cohortName": "new"}
    usage = (flavor("f", 3), flavor("g", 2))
    numbers = attrs.evolve(NUMBERS, share=math.inf, reservation=usage, usage=usage[:1])
    assert lines(telemetry, "kueue_cluster_queue_info") == [
        'kueue_cluster_queue_info{cluster_queue="cq",parent_cohort="old",root_cohort="top"} 1.0'
    ]
    assert lines(telemetry, "kueue_cluster_queue_weighted_share") == []
    states[:] = [QueueGauges("cq", "active", spec, numbers, "new")]
    found = [line for line in lines(telemetry, "kueue_") if "cluster_queue_status" not in line]
    resource = 'cluster_queue="cq",cohort="new",flavor="{}",resource="cpu"'
    assert sorted(found) == [
        'kueue_admitted_active_workloads{cluster_queue="cq"} 4.0',
        'kueue_cluster_queue_info{cluster_queue="cq",parent_cohort="new",root_cohort="new"} 1.0',
        f"kueue_cluster_queue_resource_reservation{{{resource.format('f')}}} 3.0",
        f"kueue_cluster_queue_resource_reservation{{{resource.format('g')}}} 2.0",
        f"kueue_cluster_queue_resource_usage{{{resource.format('f')}}} 3.0",
        'kueue_cluster_queue_weighted_share{cluster_queue="cq",cohort="new"} NaN',
        'kueue_pending_workloads{cluster_queue="cq",status="active"} 1.0',
        'kueue_pending_workloads{cluster_queue="cq",status="inadmissible"} 2.0',
        'kueue_reserving_active_workloads{cluster_queue="cq"} 3.0',
    ]
    states.clear()
    assert lines(telemetry, "kueue_") == []


def test_the_series_of_a_cohort_follow_its_tree_and_go_with_it() -> None:
    telemetry = Telemetry()
    metrics = CohortMetrics(telemetry)
    for name in ("a", "b"):
        metrics.place(name, "top", "top")
        metrics.share(name, 0.5)
        metrics.subtree(name, {("f", "cpu"): 5.0, ("g", "cpu"): 1.0}, {("f", "cpu"): 7.0}, 3)
    metrics.place("a", "", "a")
    metrics.subtree("a", {("f", "cpu"): 6.0}, {}, 0)
    metrics.forget("b")
    assert sorted(lines(telemetry, "kueue_cohort_")) == [
        'kueue_cohort_info{cohort="a",parent_cohort="",root_cohort="a"} 1.0',
        'kueue_cohort_subtree_admitted_active_workloads{cohort="a"} 0.0',
        'kueue_cohort_subtree_quota{cohort="a",flavor="f",resource="cpu"} 6.0',
        'kueue_cohort_weighted_share{cohort="a"} 0.5',
    ]


@pytest.mark.parametrize("resources", [True, False])
def test_what_waits_is_reported_with_quotas_only(resources: bool) -> None:
    telemetry = Telemetry()
    settings = MetricSettings(resources=resources)
    report_queues(telemetry, settings=settings, pending=lambda: {("a", "cpu"): 2.5})
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


def test_a_limit_that_is_not_set_is_infinite() -> None:
    resources = [
        {"name": "cpu", "nominalQuota": "3", "borrowingLimit": "0"},
        {"name": "memory", "nominalQuota": "1Ki", "lendingLimit": "1"},
    ]
    spec = {"resourceGroups": [{"flavors": [{"name": "f", "resources": resources}]}]}
    cpu, memory = ("f", "cpu"), ("f", "memory")
    assert quotas_of(spec) == {
        "nominal_quota": {cpu: 3.0, memory: 1024.0},
        "borrowing_limit": {cpu: 0.0, memory: math.inf},
        "lending_limit": {cpu: math.inf, memory: 1.0},
    }
