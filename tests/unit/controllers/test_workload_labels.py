"""Metrics by labels of Workloads, as Kueue's own tests describe them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.api import kinds
from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.queue_metrics import LocalQueueMetrics, counted, report_queues
from kueuelib.controllers.series_labels import (
    CLUSTER_QUEUE,
    ByWorkload,
    CustomLabel,
    MetricSettings,
    SeriesLabels,
)
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)

from .conftest import World

FACTS = yaml.load(
    (Path(__file__).parents[2] / "upstream" / "custom_labels.yaml").read_text(encoding="utf-8"),
    yaml.CSafeLoader,
)
PENDING, ADMITTED = FACTS["pending"], FACTS["admitted"]
STATUSES = {"active": "active", "parked": "inadmissible"}
RESUMED = "a stopped ClusterQueue has inadmissible workloads only"
RESUMED_THERE = {"active": {"kind1": 1, "kind2": 1}}
RESUMED_HERE = {"active": {"kind1": 1}, "parked": {"kind2": 1}}
"""When a ClusterQueue is resumed, Kueue takes everything in it for active. Ours leaves a Workload
that asks for more than its queue has where it is, with a turn to be tried again."""


def labels_of(content: list[Obj]) -> tuple[CustomLabel, ...]:
    found = parse_configuration(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "metrics": {"customLabels": content},
        },
        "facts",
    )
    return tuple(each.label for each in found.metrics.custom_labels)


def series_of(telemetry: Telemetry, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """The value of each series of a metric by its labels, without the role."""
    found = {}
    for line in telemetry.render().decode().splitlines():
        if line.startswith(f"{name}{{"):
            labels, _, value = line.removeprefix(f"{name}{{").rpartition("} ")
            pairs = [tuple(each.split("=")) for each in labels.replace('"', "").split(",")]
            key = frozenset((k, v) for k, v in pairs if k != "replica_role")
            found[key] = float(value)
    return found


class Waiting:
    """An engine without cycles of its own, and the metrics of what waits in it."""

    def __init__(self, labels: tuple[CustomLabel, ...]) -> None:
        self.engine, self.telemetry = Engine(), Telemetry()
        self.workloads: dict[ObjectKey, Obj] = {}
        self.queue: Obj = {}
        self.tell(
            events.NamespaceSet("ns", {}),
            events.FlavorSet(make_flavor("f")),
            events.LocalQueueSet(make_local_queue("lq", "cq")),
        )
        self.telemetry.more_labels = SeriesLabels(
            lambda: "standalone", labels, {CLUSTER_QUEUE: lambda _: self.queue}
        )
        by_workload = ByWorkload(labels, self.workloads.get, self.engine.waiting)
        report_queues(self.telemetry, by_workload=by_workload)

    def tell(self, *found: events.Event) -> None:
        self.engine.observe_all(found, 0.0)

    def do(self, what: str, about: Any) -> None:
        if what == "queue":
            team, stop = about["team"], about.get("stopPolicy", "None")
            self.queue = {"metadata": {"labels": {"team": team}}}
            queue = make_cluster_queue("cq", {"f": {"cpu": 5}}, stopPolicy=stop)
            self.tell(events.ClusterQueueSet(queue))
        elif what in ("create", "inadmissible"):
            for name, kind in about.items():
                cpu = 1 if what == "create" else 9
                self.tell(events.WorkloadSet(make_workload(name, "lq", {"cpu": cpu})))
                meta = {"name": name, "labels": {"workload-kind": kind}}
                self.workloads[ObjectKey("ns", name)] = {"metadata": meta}
            while what == "inadmissible" and (found := self.engine.next_cycle(0.0)) is not None:
                self.engine.settle(decide(found, 0.0), 0.0)
        elif what == "delete":
            for name in about:
                self.tell(events.WorkloadGone(ObjectKey("ns", name)))
                del self.workloads[ObjectKey("ns", name)]

    def expected(self, steps: list[Obj]) -> dict[frozenset[tuple[str, str]], float]:
        """The series that the last expectations of these steps name."""
        team = self.queue["metadata"]["labels"]["team"]
        return {
            frozenset(
                {
                    "cluster_queue": "cq",
                    "status": STATUSES[what],
                    "custom_team_cq": team,
                    "custom_wl_kind": kind,
                }.items()
            ): float(count)
            for step in steps
            for what, counts in step.items()
            for kind, count in counts.items()
        }


@pytest.mark.parametrize("life", PENDING["lives"], ids=lambda life: life["what"])
def test_pending_workloads(life: Any) -> None:
    world = Waiting(labels_of(PENDING["labels"]))
    expectations: list[Obj] = []
    checked = 0
    for step in [*life["steps"], {"end": None}]:
        ((what, about),) = step.items()
        if what in STATUSES:
            differs = life["what"] == RESUMED and step == RESUMED_THERE
            expectations.append(RESUMED_HERE if differs else step)
            continue
        if expectations:
            assert series_of(world.telemetry, "kueue_pending_workloads") == world.expected(
                expectations
            )
            expectations, checked = [], checked + 1
        world.do(what, about)
    assert checked


@pytest.mark.parametrize("life", ADMITTED["lives"], ids=lambda life: life["what"])
async def test_admitted_workloads(world: World, life: Any) -> None:
    await world.queues(cpu="5")
    own, local = ADMITTED["queue"], ADMITTED["local_queue"]
    await world.patch(kinds.CLUSTER_QUEUES, "cq", {"metadata": {"labels": own}})
    await world.patch(kinds.LOCAL_QUEUES, "main", {"metadata": {"labels": local}}, "default")
    lq = {"name": "main", "namespace": "default", "custom_lq_label": "lq-val"}

    def of(counts: dict[str, float], **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        found = {}
        for values, count in counts.items():
            kind, anno = values.split("/")
            each = {**labels, "custom_wl_kind": kind, "custom_wl_anno": anno}
            found[frozenset(each.items())] = float(count)
        return found

    async def shows(running: dict[str, dict[str, float]]) -> None:
        for team, counts in running.items():
            for name, labels in (
                ("kueue_admitted_active", {"cluster_queue": "cq", "custom_team_cq": team}),
                ("kueue_local_queue_admitted_active", lq),
            ):
                expected = of(counts, **labels)

                def reached(name: str = name, expected: Any = expected) -> bool:
                    found = series_of(world.telemetry, f"{name}_workloads")
                    assert found == expected, found
                    return True

                await world.until(reached, name)
        pre, every = "kueue_local_queue", of(life["admitted"], **lq, priority_class="")
        assert series_of(world.telemetry, f"{pre}_admitted_workloads_total") == every
        assert series_of(world.telemetry, f"{pre}_admission_wait_time_seconds_count") == every

    async with world.running(metrics=MetricSettings(custom_labels=labels_of(ADMITTED["labels"]))):
        for name, (kind, anno) in life["create"].items():
            await world.workload(
                name, labels={"workload-kind": kind}, annotations={"workload-anno": anno}
            )
        for name in life["create"]:
            await world.is_(name, "Admitted")
        await shows(life["running"])
        for name in life.get("finish", ()):
            await world.finish(name)
        for name in life.get("delete", ()):
            await world.delete(WORKLOADS, name, "default")
        for name, kind in life.get("relabel", {}).items():
            body = {"metadata": {"labels": {"workload-kind": kind}}}
            await world.patch(WORKLOADS, name, body, "default")
        if "queue" in life:
            await world.patch(kinds.CLUSTER_QUEUES, "cq", {"metadata": {"labels": life["queue"]}})
        await shows(life["then_running"])


def test_only_the_metrics_that_kueue_names_have_labels_of_workloads() -> None:
    label = CustomLabel("custom_kind", "Workload", "kind", tracked=("a",))
    wl = make_raw("wl", kind="a")
    telemetry, engine = Telemetry(), Engine()
    by_workload = ByWorkload((label,), lambda _: wl, engine.waiting, engine.admitted)
    queue = {"metadata": {"name": "lq", "namespace": "ns"}}
    local = LocalQueueMetrics(telemetry, lambda _: queue, by_workload=by_workload)
    metrics = SchedulerMetrics(telemetry, local_queues=local)
    report_queues(telemetry, by_workload=by_workload)
    where = counted(wl)
    metrics.reserved(where, 1.0)
    metrics.admitted(where, 1.0, 1.0)
    metrics.ready(where, 1.0, 1.0)
    metrics.finished(where, 1.0)
    metrics.evicted(where, "Preempted")
    named = {
        family.name: family
        for family in telemetry.registry.collect()
        if any("custom_kind" in sample.labels for sample in family.samples)
    }
    counted_now = {"kueue_local_queue_admitted_workloads_total", *FACTS["metrics"][-1:]}
    assert {f"{name}_total" if f.type == "counter" else name for name, f in named.items()} == (
        counted_now
    )
    assert counted_now < set(FACTS["metrics"])


def test_the_series_of_admissions_go_with_their_local_queue() -> None:
    label = CustomLabel("custom_kind", "Workload", "kind", tracked=("a", "b"))
    telemetry = Telemetry()
    queue = {"metadata": {"name": "lq", "namespace": "ns"}}
    local = LocalQueueMetrics(telemetry, lambda _: queue, by_workload=ByWorkload((label,)))
    metrics = SchedulerMetrics(telemetry, local_queues=local)
    for name, kind in (("one", "a"), ("two", "b"), ("three", "b")):
        metrics.admitted(counted(make_raw(name, kind=kind)), 1.0, 0.0)
    found = series_of(telemetry, "kueue_local_queue_admitted_workloads_total")
    assert sorted(found.values()) == [1.0, 2.0]
    local.forget(ObjectKey("ns", "lq"))
    assert series_of(telemetry, "kueue_local_queue_admitted_workloads_total") == {}


def test_a_series_of_admitted_workloads_stays_as_long_as_its_queue() -> None:
    engine, label = Engine(), CustomLabel("custom_kind", "Workload", "kind", tracked=("a",))
    queue = make_cluster_queue("cq", {"f": {"cpu": 5}})
    engine.observe_all(
        [
            events.NamespaceSet("ns", {}),
            events.FlavorSet(make_flavor("f")),
            events.ClusterQueueSet(queue),
            events.LocalQueueSet(make_local_queue("lq", "cq")),
            events.WorkloadSet(make_workload("wl", "lq", {"cpu": 1})),
        ],
        0.0,
    )
    found = engine.next_cycle(0.0)
    assert found is not None
    engine.settle(decide(found, 0.0), 0.0)
    raw = make_raw("wl", kind="a")
    counts = ByWorkload((label,), lambda _: raw, engine.waiting, engine.admitted)
    reported = {ObjectKey("ns", "lq")}
    assert counts.admitted() == {("cq", "a"): 1.0}
    assert counts.admitted_in(reported.__contains__) == {("lq", "ns", "a"): 1.0}
    engine.observe(events.WorkloadGone(ObjectKey("ns", "wl")), 0.0)
    assert counts.admitted() == {("cq", "a"): 0.0}
    assert counts.admitted_in(reported.__contains__) == {("lq", "ns", "a"): 0.0}
    engine.observe(events.ClusterQueueGone("cq"), 0.0)
    assert counts.admitted() == {}
    reported.clear()
    assert counts.admitted_in(reported.__contains__) == {}


def make_raw(name: str, **labels: str) -> Obj:
    """A raw Workload that holds quota."""
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"queueName": "lq"},
        "status": {"admission": {"clusterQueue": "cq"}},
    }
