"""Every metric of Kueue has the same type and labels here, or is known to be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.controllers.metrics import SchedulerMetrics, report_build
from kueuelib.controllers.queue_metrics import CohortMetrics, LocalQueueMetrics, report_queues
from kueuelib.controllers.series_labels import MetricSettings, SeriesLabels
from kueuelib.controllers.workload_metrics import WorkloadMetrics
from kueuelib.jobs.pods.integration import PodMetrics
from kueuelib.jobs.reconcile.executor import JobMetrics
from kueuelib.runtime.telemetry import Sampled, Telemetry

UPSTREAM = yaml.load(
    (Path(__file__).parents[2] / "upstream" / "metrics.yaml").read_text(encoding="utf-8"),
    yaml.CSafeLoader,
)
MISSING = {
    "kueue_replaced_workload_slices_total": "there are no elastic Jobs",
    "multikueue_workloads_admitted_total": "there is no controller for MultiKueue",
    "multikueue_workloads_dispatched_total": "there is no controller for MultiKueue",
}


def served() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of every metric that a manager registers."""
    telemetry = Telemetry()
    settings = MetricSettings(resources=True)
    local = LocalQueueMetrics(telemetry, lambda _: None, settings)
    metrics = SchedulerMetrics(telemetry, local_queues=local)
    report_queues(telemetry, settings=settings)
    CohortMetrics(telemetry)
    PodMetrics(telemetry)
    JobMetrics(telemetry)
    report_build(telemetry)
    WorkloadMetrics(telemetry, metrics, local, lambda _: "", leading=lambda: False, now=lambda: 0.0)
    made = {
        f"{name}": (metric._type, set(metric._labelnames))
        for name, metric in telemetry._made.items()
    }
    sampled = {
        name: ("gauge", set(labels))
        for one in telemetry.registry._collector_to_names
        if isinstance(one, Sampled)
        for name, _, labels in one._gauges
    }
    return made | sampled


SERVED = served()


@pytest.mark.parametrize("name", UPSTREAM)
def test_a_metric_of_kueue_has_the_same_type_and_labels(name: str) -> None:
    if name in MISSING:
        assert name not in SERVED
        return
    fact: Any = UPSTREAM[name]
    assert SERVED[name] == (fact["type"], set(fact["labels"]))


@pytest.mark.parametrize("name", UPSTREAM)
def test_all_but_the_build_say_which_replica_serves_them(name: str) -> None:
    family = name.removesuffix("_total")
    labels = dict.fromkeys(UPSTREAM[name]["labels"], "x")
    found = SeriesLabels(lambda: "leader")(family, labels)
    wanted = {} if name == "kueue_build_info" or name in MISSING else {"replica_role": "leader"}
    assert name.startswith("multikueue") or {**found, **wanted} == found
    assert name != "kueue_build_info" or found == {}


def test_what_is_missing_is_a_metric_of_kueue() -> None:
    assert UPSTREAM.keys() >= MISSING.keys()
