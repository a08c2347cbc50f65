"""What is counted about Workloads from what is stored about them, and labels of all series."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.queue_metrics import LocalQueueMetrics, exponential
from kueuelib.controllers.series_labels import (
    CLUSTER_QUEUE,
    COHORT,
    DEFAULT_METRICS,
    LOCAL_QUEUE,
    UNTRACKED,
    CustomLabel,
    MetricSettings,
    SeriesLabels,
    role_of,
)
from kueuelib.controllers.workload_metrics import WorkloadMetrics
from kueuelib.machinery.selectors import NOTHING
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.telemetry import Telemetry

from .conftest import World

NOW = 1_700_000_000.0
LOCAL = {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}


def workload(*conditions: tuple[str, str, str, float], **more: Any) -> Obj:
    """A Workload of priority class `high`, by the type, status, reason and age of conditions."""
    return {
        "metadata": {
            "name": "wl",
            "namespace": "ns",
            "creationTimestamp": format_time(NOW - 100),
            **more.pop("metadata", {}),
        },
        "spec": {
            "queueName": "lq",
            "priorityClassRef": {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": "high",
            },
        },
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "lastTransitionTime": format_time(NOW - age),
                }
                for kind, status, reason, age in conditions
            ],
            **more,
        },
    }


RESERVED = ("QuotaReserved", "True", "QuotaReserved", 50.0)
ADMITTED = ("Admitted", "True", "Admitted", 40.0)
READY = ("PodsReady", "True", "Started", 10.0)
HELD = {"admission": {"clusterQueue": "cq"}}


class Watched:
    """Workload metrics that see what a test says."""

    def __init__(self, *, leading: bool = True, settings: MetricSettings = DEFAULT_METRICS) -> None:
        self.telemetry = Telemetry()
        local = LocalQueueMetrics(self.telemetry, lambda key: LOCAL, settings)
        metrics = SchedulerMetrics(self.telemetry, local_queues=local)
        self.metrics = WorkloadMetrics(
            self.telemetry,
            metrics,
            local,
            lambda key: "cq" if key.name == "lq" else "",
            leading=lambda: leading,
            now=lambda: NOW,
        )

    def see(self, old: Obj | None, new: Obj | None) -> None:
        kind = DeltaKind.ADDED if old is None else DeltaKind.UPDATED
        kind = DeltaKind.DELETED if new is None else kind
        self.metrics.seen(Delta(kind, ObjectKey("ns", "wl"), old, new))

    def lines(self, *names: str) -> list[str]:
        text = self.telemetry.render().decode().splitlines()
        return [one for one in text if one.startswith(names) and "_bucket" not in one]


def test_workloads_that_are_not_admitted_are_counted_by_what_they_lack() -> None:
    watched = Watched()
    waiting = ("QuotaReserved", "False", "WaitingForQuota", 1.0)
    checked = ("Admitted", "False", "UnsatisfiedChecks", 1.0)
    for one in (workload(), workload(waiting), workload(waiting), workload(RESERVED, checked)):
        watched.see(None, one)
    before = ("Admitted", "False", "NoReservation", 1.0)
    for one in (workload(RESERVED), workload(RESERVED, before)):
        watched.see(None, one)
    watched.see(None, workload(RESERVED, ADMITTED))
    watched.see(None, workload(metadata={"deletionTimestamp": format_time(NOW)}))
    of = 'cluster_queue="cq",'
    assert watched.lines("kueue_unadmitted_workloads") == [
        f'kueue_unadmitted_workloads{{{of}reason="{reason}",underlying_cause="{cause}"}} {number}'
        for reason, cause, number in (
            ("NoReservation", "PendingEvaluation", "1.0"),
            ("NoReservation", "WaitingForQuota", "2.0"),
            ("UnsatisfiedChecks", "", "1.0"),
            ("UnsatisfiedAdmissionChecks", "", "2.0"),
        )
    ]
    (line, *_) = watched.lines("kueue_local_queue_unadmitted_workloads")
    assert '{cluster_queue="cq",name="lq",namespace="ns",reason="NoReservation"' in line


def test_a_group_without_workloads_is_not_shown() -> None:
    watched = Watched()
    watched.see(None, workload())
    watched.see(workload(), workload(RESERVED, ADMITTED, **HELD))
    assert watched.lines("kueue_unadmitted", "kueue_local_queue_unadmitted") == []
    done = workload(RESERVED, ADMITTED, ("Finished", "True", "Succeeded", 0.0), **HELD)
    watched.see(workload(RESERVED, ADMITTED, **HELD), done)
    gauges = watched.lines("kueue_finished_workloads{", "kueue_local_queue_finished_workloads{")
    assert gauges == [
        'kueue_finished_workloads{cluster_queue="cq"} 1.0',
        'kueue_local_queue_finished_workloads{name="lq",namespace="ns"} 1.0',
    ]
    watched.see(done, None)
    assert watched.lines("kueue_finished_workloads{", "kueue_local_queue_finished_workloads{") == []


def test_the_time_of_a_finished_workload_begins_with_its_first_admission() -> None:
    watched = Watched()
    held = {**HELD, "accumulatedPastExecutionTimeSeconds": 5}
    old = workload(RESERVED, ADMITTED, **held)
    watched.see(old, workload(RESERVED, ADMITTED, ("Finished", "True", "S", 10.0), **held))
    of = '{cluster_queue="cq",priority_class="high"}'
    assert watched.lines("kueue_finished_workloads_total", "kueue_execution_time_seconds_sum") == [
        f"kueue_finished_workloads_total{of} 1.0",
        f"kueue_execution_time_seconds_sum{of} 35.0",
    ]
    watched.see(workload(), workload(("Finished", "True", "S", 10.0)))
    series = 'kueue_execution_time_seconds_count{cluster_queue="",priority_class="high"} '
    assert f"{series}0.0" in watched.lines("kueue_execution_time")


def test_the_way_to_ready_pods_is_timed_once() -> None:
    watched = Watched()
    admitted = workload(RESERVED, ADMITTED, **HELD)
    ready = workload(RESERVED, ADMITTED, READY, **HELD)
    recovered = ("PodsReady", "True", "Recovered", 5.0)
    watched.see(admitted, ready)
    watched.see(ready, ready)
    watched.see(admitted, workload(RESERVED, ADMITTED, recovered, **HELD))
    of = '{cluster_queue="cq",priority_class="high"}'
    local = '{name="lq",namespace="ns",priority_class="high"}'
    found = watched.lines("kueue_ready", "kueue_admitted_until", "kueue_local_queue_ready")
    assert f"kueue_ready_wait_time_seconds_count{of} 1.0" in found
    assert f"kueue_ready_wait_time_seconds_sum{of} 90.0" in found
    assert f"kueue_admitted_until_ready_wait_time_seconds_sum{of} 30.0" in found
    assert f"kueue_local_queue_ready_wait_time_seconds_sum{local} 90.0" in found


@pytest.mark.parametrize(
    ("reason", "shown"),
    [("Preempted", "Preempted"), ("DeactivatedDueToRequeuingLimitExceeded", "Deactivated")],
)
def test_an_eviction_is_timed_until_the_quota_is_released(reason: str, shown: str) -> None:
    watched = Watched()
    evicted = ("Evicted", "True", reason, 7.0)
    old = workload(RESERVED, ADMITTED, evicted, **HELD)
    watched.see(old, old)
    assert watched.lines("kueue_workload_eviction_latency") == []
    watched.see(old, workload(("QuotaReserved", "False", "Pending", 0.0), evicted))
    of = f'{{cluster_queue="cq",reason="{shown}"}}'
    assert watched.lines("kueue_workload_eviction_latency_seconds_sum") == [
        f"kueue_workload_eviction_latency_seconds_sum{of} 7.0"
    ]


@pytest.mark.parametrize(("ready", "count"), [("True", 1), ("False", 0)])
def test_an_eviction_after_the_pods_were_ready_is_timed(ready: str, count: int) -> None:
    watched = Watched()
    conditions = RESERVED, ADMITTED, ("PodsReady", ready, "Started", 30.0)
    old = workload(*conditions, **HELD)
    watched.see(None, old)
    watched.see(old, workload(*conditions, ("Evicted", "True", "Preempted", 0.0), **HELD))
    name = "kueue_pods_ready_to_evicted_time_seconds"
    labels = '{cluster_queue="cq",reason="Preempted",underlying_cause=""}'
    assert (f"{name}_sum{labels} 30.0" in watched.lines(name)) is bool(count)
    text = watched.telemetry.render().decode()
    assert text.count(f"\n{name}_bucket") == count * (len(exponential(14)) + 1)


def test_a_replica_that_does_not_lead_shows_gauges_only() -> None:
    watched = Watched(leading=False)
    old = workload(RESERVED, ADMITTED, **HELD)
    watched.see(old, workload(RESERVED, ADMITTED, READY, ("Finished", "True", "S", 1.0), **HELD))
    assert watched.lines("kueue_finished_workloads_total", "kueue_ready") == []
    assert watched.lines("kueue_finished_workloads{")


def test_local_queues_that_are_not_selected_have_no_series() -> None:
    watched = Watched(settings=MetricSettings(local_queues=NOTHING))
    old = workload(RESERVED, ADMITTED, **HELD)
    watched.see(None, workload())
    watched.see(old, workload(RESERVED, ADMITTED, READY, ("Finished", "True", "S", 1.0), **HELD))
    assert watched.lines("kueue_local_queue") == []


def test_bounds_of_times_are_those_of_kueue() -> None:
    assert exponential(4) == (1.0, 2.5, 5.0, 10.0)
    telemetry = Telemetry()
    SchedulerMetrics(telemetry)
    bounds = {name: metric._upper_bounds for name, metric in _histograms(telemetry)}
    last = {name: found[-2:] for name, found in bounds.items() if "wait" not in name}
    assert last["kueue_execution_time_seconds"] == [40960.0, float("inf")]
    assert last["kueue_workload_eviction_latency_seconds"] == [10240.0, float("inf")]
    assert bounds["kueue_ready_wait_time_seconds"][:3] == [1.0, 2.5, 5.0]
    assert len(bounds["kueue_admitted_until_ready_wait_time_seconds"]) == 15


def _histograms(telemetry: Telemetry) -> list[tuple[str, Any]]:
    made = telemetry._made.items()
    found = [(name, metric) for name, metric in made if metric._type == "histogram"]
    return [
        (name, metric.labels(*("x" for _ in metric._labelnames)))
        for name, metric in found
        if name.startswith("kueue_")
    ]


def test_all_series_of_kueue_say_which_replica_serves_them() -> None:
    assert [role_of(each) for each in (None, True, False)] == ["standalone", "leader", "follower"]
    roles = iter(("follower", "leader"))
    telemetry = Telemetry()
    telemetry.more_labels = SeriesLabels(lambda: next(roles))
    telemetry.counter("kueue_preempted_workloads_total", "x").inc()
    telemetry.counter("kueue_pods_gated_total", "x").inc()
    telemetry.counter("kueuelib_status_writes_total", "x").inc()
    for role in ("follower", "leader"):
        text = telemetry.render().decode()
        assert text.count("replica_role") == 1
        assert f'kueue_preempted_workloads_total{{replica_role="{role}"}} 1.0' in text


def test_series_carry_labels_of_the_object_that_they_are_about() -> None:
    queue: Obj = {"metadata": {"labels": {"team": "red"}, "annotations": {"cost/centre": "7"}}}
    objects: dict[str, dict[ObjectKey, Obj]] = {
        CLUSTER_QUEUE: {ObjectKey("", "cq"): queue},
        LOCAL_QUEUE: {ObjectKey("ns", "lq"): queue},
        COHORT: {},
    }
    custom = (
        CustomLabel("custom_team", CLUSTER_QUEUE, "team", tracked=("blue",)),
        CustomLabel("custom_cost", CLUSTER_QUEUE, "cost/centre", annotation=True),
        CustomLabel("custom_team_of_local", LOCAL_QUEUE, "team"),
        CustomLabel("custom_floor", COHORT, "floor"),
    )
    found = {kind: each.get for kind, each in objects.items()}
    labels = SeriesLabels(lambda: "leader", custom, found)
    role = {"replica_role": "leader"}
    of_queue = {**role, "custom_team": UNTRACKED, "custom_cost": "7"}
    named = {"cluster_queue": "cq", "cohort": "top"}
    assert labels("kueue_cluster_queue_nominal_quota", named) == of_queue
    assert labels("kueue_preempted_workloads", {"preempting_cluster_queue": "cq"}) == of_queue
    queue["metadata"]["labels"]["team"] = "blue"
    assert labels("kueue_pending_workloads", named)["custom_team"] == "blue"
    local = {"name": "lq", "namespace": "ns", "cluster_queue": "cq"}
    assert labels("kueue_local_queue_unadmitted_workloads", local) == {
        **role,
        "custom_team_of_local": "blue",
    }
    assert labels("kueue_cohort_info", {"cohort": "top"}) == {**role, "custom_floor": ""}
    assert labels("kueue_admission_attempts", {"result": "success"}) == role


async def test_the_life_of_a_workload_is_counted_on_a_server(world: World) -> None:
    team = CustomLabel("custom_team", CLUSTER_QUEUE, "team")
    await world.queues()
    body = {"metadata": {"labels": {"team": "red"}}}
    await world.patch(kinds.CLUSTER_QUEUES, "cq", body)
    async with world.running(metrics=MetricSettings(custom_labels=(team,))):
        await world.workload("late", cpu="9")
        await world.workload("wl")
        await world.is_("wl", "Admitted")

        def shows(line: str) -> Any:
            return lambda: line in world.telemetry.render().decode()

        of = 'cluster_queue="cq",custom_team="red"'
        why = 'reason="NoReservation",replica_role="standalone",underlying_cause="'
        await world.until(shows(f"kueue_unadmitted_workloads{{{of},{why}"), "unadmitted")
        await world.finish("wl")
        every = f'{of},priority_class="",replica_role="standalone"'
        await world.until(shows(f"kueue_finished_workloads_total{{{every}}} 1.0"), "finished")
        assert shows(f"kueue_execution_time_seconds_count{{{every}}} 1.0")()
        assert shows(f'kueue_finished_workloads{{{of},replica_role="standalone"}} 1.0')()
