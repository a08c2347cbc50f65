"""The metrics of the scheduler and of the build, as a scrape sees them."""

from __future__ import annotations

from kueuelib import __version__
from kueuelib.controllers.metrics import SchedulerMetrics, report_build
from kueuelib.controllers.queue_metrics import OwnedSeries
from kueuelib.controllers.series_labels import SeriesLabels
from kueuelib.runtime.telemetry import Telemetry


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


def test_attempts_start_at_zero_and_count_by_result() -> None:
    telemetry = Telemetry()
    metrics = SchedulerMetrics(telemetry)
    metrics.cycle(0.1, success=True)
    assert sorted(lines(telemetry, "kueue_admission_attempts_total")) == [
        'kueue_admission_attempts_total{result="inadmissible"} 0.0',
        'kueue_admission_attempts_total{result="success"} 1.0',
    ]
