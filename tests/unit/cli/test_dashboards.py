"""The dashboard asks for metrics that a manager serves, by labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kueuelib.app.dashboards import PANELS, dashboard
from kueuelib.cli.syntax import app
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.queue_metrics import CohortMetrics, LocalQueueMetrics, report_queues
from kueuelib.controllers.series_labels import MetricSettings
from kueuelib.jobs.pods.integration import PodMetrics
from kueuelib.runtime.telemetry import Telemetry

UPSTREAM: list[tuple[str, set[str]]] = [
    ("kueue_cluster_queue_resource_usage", {"cluster_queue", "resource"}),
    ("kueue_cluster_queue_nominal_quota", {"cluster_queue", "resource"}),
    ("kueue_pending_workloads", {"cluster_queue", "status"}),
    ("kueue_admission_wait_time_seconds_bucket", {"le", "cluster_queue"}),
    ("kueue_admitted_workloads_total", {"cluster_queue"}),
    ("kueue_evicted_workloads_total", {"cluster_queue", "reason"}),
    ("kueue_cluster_queue_status", {"status"}),
    ("kueue_admitted_until_ready_wait_time_seconds_bucket", {"le", "cluster_queue"}),
    ("kueue_finished_workloads_total", {"cluster_queue"}),
    ("kueue_pod_scheduling_gate_removal_seconds_bucket", {"le", "cluster_queue", "is_group"}),
    ("kueue_workload_eviction_latency_seconds_bucket", {"le", "cluster_queue", "reason"}),
]
"""What the queries for Grafana in upstream's documentation ask for."""
FUNCTIONS = {"sum", "by", "rate", "histogram_quantile", "label_values"}
QUERIES = [(query, legend) for panel in PANELS for query, legend in panel.queries]


def served() -> dict[str, set[str]]:
    """The labels of every series, by its name."""
    telemetry = Telemetry()
    report_queues(telemetry, settings=MetricSettings(resources=True))
    CohortMetrics(telemetry)
    SchedulerMetrics(telemetry)
    LocalQueueMetrics(telemetry, lambda _: None)
    PodMetrics(telemetry)
    found = {
        family.name: set(family._labelnames)
        for family in telemetry.registry.collect()
        if hasattr(family, "_labelnames")
    }
    for name, metric in telemetry._made.items():
        labels = set(metric._labelnames)
        found[name] = labels
        if metric._type == "histogram":
            found[f"{name}_bucket"] = {*labels, "le"}
    return found


SERVED = served()


def asked(query: str) -> tuple[set[str], set[str]]:
    """The metrics and the labels that a query names."""
    bare = re.sub(r'"[^"]*"', "", query)
    metrics = set(re.findall(r"\bkueue\w+", bare))
    labels = {
        name
        for part in re.findall(r"by \(([^)]*)\)|\{([^}]*)\}", bare)
        for name in re.findall(r"[a-z_]+", " ".join(part))
    }
    words = set(re.findall(r"(?<!\$)(?<!\$_)(?<!\$__)\b[a-z_]{2,}\b", bare))
    assert words <= metrics | labels | FUNCTIONS | {"rate_interval", "__rate_interval"}, query
    return metrics, labels


@pytest.mark.parametrize(("query", "legend"), QUERIES)
def test_every_query_asks_for_what_is_served(query: str, legend: str) -> None:
    metrics, labels = asked(query)
    assert metrics
    for metric in metrics:
        assert metric in SERVED, metric
        assert labels <= SERVED[metric], (metric, labels)
    by = re.findall(r"by \(([^)]*)\)", query)
    kept = {name.strip() for part in by for name in part.split(",")} or SERVED[metrics.pop()]
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept


@pytest.mark.parametrize(("metric", "labels"), UPSTREAM)
def test_queries_that_upstream_publishes_are_answered(metric: str, labels: set[str]) -> None:
    assert labels <= SERVED[metric]


def test_a_name_or_label_that_is_not_served_would_be_found() -> None:
    for query in ("kueue_absent", 'kueue_pending_workloads{queue="x"}'):
        metrics, labels = asked(query)
        assert not all(
            labels <= SERVED.get(metric, set()) and metric in SERVED for metric in metrics
        )


def test_the_dashboard_is_what_grafana_imports() -> None:
    found = dashboard()
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len(PANELS)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert [one["name"] for one in found["templating"]["list"]] == ["datasource", "cluster_queue"]
    (query,) = [one["query"] for one in found["templating"]["list"] if one["type"] == "query"]
    assert query == "label_values(kueue_cluster_queue_status, cluster_queue)"
    assert "cluster_queue" in SERVED["kueue_cluster_queue_status"]


def test_it_is_printed_or_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["dashboards"])
    assert json.loads(done.output) == dashboard()
    file = tmp_path / "queues.json"
    assert CliRunner().invoke(app, ["dashboards", "--output", str(file)]).exit_code == 0
    assert file.read_text() == done.output
    done = CliRunner().invoke(app, ["dashboards", "--output", str(tmp_path / "absent/x.json")])
    assert "give a file that can be written" in str(done.exception)
