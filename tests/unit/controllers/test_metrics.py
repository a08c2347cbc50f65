"""The `kueue_` metrics as a scrape sees them."""

from __future__ import annotations

from kueuelib.controllers.metrics import QueueMetrics, SchedulerMetrics
from kueuelib.runtime.telemetry import Telemetry


def lines(telemetry: Telemetry, name: str) -> list[str]:
    return [line for line in telemetry.render().decode().splitlines() if line.startswith(name)]


def test_exactly_one_status_of_a_queue_is_one() -> None:
    telemetry = Telemetry()
    metrics = QueueMetrics(telemetry)
    for status in ("pending", "active"):
        metrics.status("cq", status)
    assert sorted(lines(telemetry, "kueue_cluster_queue_status")) == [
        'kueue_cluster_queue_status{cluster_queue="cq",status="active"} 1.0',
        'kueue_cluster_queue_status{cluster_queue="cq",status="pending"} 0.0',
        'kueue_cluster_queue_status{cluster_queue="cq",status="terminating"} 0.0',
    ]


def test_the_series_of_a_queue_go_with_it() -> None:
    telemetry = Telemetry()
    metrics = QueueMetrics(telemetry, resources=True)
    for name in ("a", "b"):
        metrics.counts(name, active=1, inadmissible=2, reserving=3, admitted=4)
        metrics.amounts(name, "", {"nominal_quota": {("f", "cpu"): 5.0}})
    metrics.forget("a")
    metrics.forget("a")
    text = telemetry.render().decode()
    assert 'cluster_queue="a"' not in text
    assert 'kueue_reserving_active_workloads{cluster_queue="b"} 3.0' in text


def test_amounts_that_are_no_longer_named_are_dropped() -> None:
    telemetry = Telemetry()
    metrics = QueueMetrics(telemetry, resources=True)
    metrics.amounts("cq", "old", {"resource_usage": {("f", "cpu"): 1.0, ("g", "cpu"): 2.0}})
    metrics.amounts("cq", "new", {"resource_usage": {("f", "cpu"): 3.0}})
    assert lines(telemetry, "kueue_cluster_queue_resource_usage") == [
        (
            "kueue_cluster_queue_resource_usage"
            '{cluster_queue="cq",cohort="new",flavor="f",resource="cpu"} 3.0'
        )
    ]


def test_attempts_start_at_zero_and_count_by_result() -> None:
    telemetry = Telemetry()
    metrics = SchedulerMetrics(telemetry)
    metrics.cycle(0.1, success=True)
    assert sorted(lines(telemetry, "kueue_admission_attempts_total")) == [
        'kueue_admission_attempts_total{result="inadmissible"} 0.0',
        'kueue_admission_attempts_total{result="success"} 1.0',
    ]
