"""The metrics of LocalQueues as a scrape sees them."""

from __future__ import annotations

from typing import Any

from kueuelib.api.kueue import LocalFlavorUsage, LocalResourceUsage
from kueuelib.api.meta import ObjectKey, key_of
from kueuelib.api.quantity import Quantity
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.queue_metrics import Counted, LocalQueueMetrics, counted
from kueuelib.controllers.series_labels import MetricSettings
from kueuelib.machinery.selectors import NOTHING, Selector, from_labels
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.knowledge import LocalQueueNumbers
from kueuelib.scheduler.quota.queue_spec import Activity
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)

TEAM = from_labels({"team": "a"})
READY = Activity(active=True, reason="Ready", message="")
CPU = LocalFlavorUsage("f", (LocalResourceUsage("cpu", Quantity.parse("1500m")),))


class World:
    """LocalQueues by key, of which some are reported."""

    def __init__(self, selector: Selector = TEAM) -> None:
        self.telemetry = Telemetry()
        self.queues: dict[ObjectKey, Any] = {}
        settings = MetricSettings(resources=True, local_queues=selector)
        self.metrics = LocalQueueMetrics(
            self.telemetry, self.queues.get, settings, inadmissible=lambda _: 2
        )
        self.scheduler = SchedulerMetrics(self.telemetry, local_queues=self.metrics)

    def show(self, name: str, pending: int = 5, **labels: str) -> None:
        queue = {"metadata": {"name": name, "namespace": "ns", "labels": labels}}
        self.queues[key_of(queue)] = queue
        numbers = LocalQueueNumbers(pending, 4, 3, (CPU,), (CPU,))
        self.metrics.show(queue, numbers, READY, "cq")

    def count(self, name: str) -> None:
        where = Counted("cq", ObjectKey("ns", name), "high")
        self.scheduler.reserved(where, 2.0)
        self.scheduler.admitted(where, 3.0, 1.0)
        self.scheduler.evicted(where, "Preempted")
        self.scheduler.ready(where, 5.0, 2.0)
        self.scheduler.finished(where, 7.0)

    def lines(self) -> list[str]:
        text = self.telemetry.render().decode().splitlines()
        return [one for one in text if one.startswith("kueue_local_queue") and "bucket" not in one]


def test_every_selected_queue_is_reported_and_no_other() -> None:
    world = World()
    world.show("lq", team="a")
    world.show("other", team="b")
    world.count("lq")
    world.count("other")
    world.count("unknown")
    of = 'name="lq",namespace="ns"'
    high = f'{of},priority_class="high"'
    pre = "kueue_local_queue"
    assert sorted(world.lines()) == sorted(
        [
            f'{pre}_pending_workloads{{{of},status="active"}} 3.0',
            f'{pre}_pending_workloads{{{of},status="inadmissible"}} 2.0',
            f"{pre}_reserving_active_workloads{{{of}}} 4.0",
            f"{pre}_admitted_active_workloads{{{of}}} 3.0",
            f'{pre}_status{{active="True",{of}}} 1.0',
            f'{pre}_status{{active="False",{of}}} 0.0',
            f'{pre}_status{{active="Unknown",{of}}} 0.0',
            f'{pre}_resource_reservation{{flavor="f",{of},resource="cpu"}} 1.5',
            f'{pre}_resource_usage{{flavor="f",{of},resource="cpu"}} 1.5',
            f"{pre}_quota_reserved_workloads_total{{{high}}} 1.0",
            f"{pre}_admitted_workloads_total{{{high}}} 1.0",
            f'{pre}_evicted_workloads_total{{{high},reason="Preempted",underlying_cause=""}} 1.0',
            f"{pre}_finished_workloads_total{{{high}}} 1.0",
            f"{pre}_execution_time_seconds_count{{{high}}} 1.0",
            f"{pre}_execution_time_seconds_sum{{{high}}} 7.0",
            f"{pre}_ready_wait_time_seconds_count{{{high}}} 1.0",
            f"{pre}_ready_wait_time_seconds_sum{{{high}}} 5.0",
            f"{pre}_admitted_until_ready_wait_time_seconds_count{{{high}}} 1.0",
            f"{pre}_admitted_until_ready_wait_time_seconds_sum{{{high}}} 2.0",
            f"{pre}_quota_reserved_wait_time_seconds_count{{{high}}} 1.0",
            f"{pre}_quota_reserved_wait_time_seconds_sum{{{high}}} 2.0",
            f"{pre}_admission_wait_time_seconds_count{{{high}}} 1.0",
            f"{pre}_admission_wait_time_seconds_sum{{{high}}} 3.0",
            f"{pre}_admission_checks_wait_time_seconds_count{{{high}}} 1.0",
            f"{pre}_admission_checks_wait_time_seconds_sum{{{high}}} 1.0",
        ]
    )


def test_the_series_of_a_queue_go_with_it_and_with_its_label() -> None:
    world = World()
    for name in ("gone", "relabelled", "kept"):
        world.show(name, team="a")
        world.count(name)
    world.metrics.forget(ObjectKey("ns", "gone"))
    world.show("relabelled", team="b")
    assert {line.split('name="')[1].split('"')[0] for line in world.lines()} == {"kept"}


def test_a_selector_of_nothing_reports_nothing() -> None:
    world = World(NOTHING)
    world.show("lq", team="a")
    world.count("lq")
    assert world.lines() == []


def test_what_is_inadmissible_is_counted_by_local_queue() -> None:
    engine = Engine()
    for event in (
        events.NamespaceSet("ns", {}),
        events.FlavorSet(make_flavor("f")),
        events.ClusterQueueSet(make_cluster_queue("q", {"f": {"cpu": 4}})),
        events.LocalQueueSet(make_local_queue("one", "q")),
        events.LocalQueueSet(make_local_queue("two", "q", stopPolicy="Hold")),
        events.WorkloadSet(make_workload("w", "one", {"cpu": 1})),
        events.WorkloadSet(make_workload("held", "two", {"cpu": 1})),
    ):
        engine.observe(event, 0.0)
    assert [engine.inadmissible_in(ObjectKey("ns", name)) for name in ("one", "two")] == [0, 1]
    engine.observe(events.FlavorGone("f"), 1.0)
    assert engine.inadmissible_in(ObjectKey("ns", "one")) == 1


def test_a_workload_is_counted_where_it_holds_quota() -> None:
    wl = {
        "metadata": {"namespace": "ns", "labels": {}},
        "spec": {"queueName": "lq", "priorityClassRef": {"name": "high"}},
        "status": {"admission": {"clusterQueue": "cq"}},
    }
    found = counted(wl)
    assert (found.cluster_queue, found.local_queue) == ("cq", ObjectKey("ns", "lq"))
