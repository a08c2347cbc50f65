"""The metrics of a manager as a dashboard for Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import attrs

from kueuelib.api.meta import Obj

WIDE, HIGH = 12, 8
"""The size of a panel, in cells of Grafana's grid of 24 columns."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_QUEUES: Final = 'cluster_queue=~"$cluster_queue"'


@attrs.frozen
class Panel:
    """A picture over time.

    Attributes:
        title: what it shows.
        unit: Grafana's name of the unit.
        queries: in PromQL, each with the legend of its lines.
        text: further information.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    text: str = ""


def _quantile(part: float, metric: str, by: str, labels: str = "") -> str:
    """A quantile of a histogram."""
    rate = f"rate({metric}_bucket{{{labels}}}[$__rate_interval])"
    return f"histogram_quantile({part}, sum by ({by}, le) ({rate}))"


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    """The median and the 95th percentile of a histogram by ClusterQueue."""
    return tuple(
        (_quantile(part, metric, "cluster_queue", _QUEUES), f"{{{{cluster_queue}}}} {name}")
        for part, name in ((0.5, "p50"), (0.95, "p95"))
    )


def _part(used: str, quota: str, by: str) -> str:
    """The used part of each quota above zero."""
    return f"sum by ({by}) ({used}) / sum by ({by}) ({quota} > 0)"


def _rate(metric: str, labels: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


_AMOUNT: Final = "{{cluster_queue}} {{flavor}} {{resource}}"
_LOCAL: Final = "LocalQueues that metrics.localQueueMetrics selects."
_NEEDS: Final = "Needs metrics.enableClusterQueueResources in the manager's configuration."

PANELS: Final = (
    Panel(
        "Workloads that wait",
        "short",
        (
            (
                f"sum by (cluster_queue, status) (kueue_pending_workloads{{{_QUEUES}}})",
                "{{cluster_queue}} {{status}}",
            ),
        ),
        "active: queued; inadmissible: waits for a change.",
    ),
    Panel(
        "Workloads with quota",
        "short",
        (
            (
                f"sum by (cluster_queue) (kueue_reserving_active_workloads{{{_QUEUES}}})",
                "{{cluster_queue}} reserving",
            ),
            (
                f"sum by (cluster_queue) (kueue_admitted_active_workloads{{{_QUEUES}}})",
                "{{cluster_queue}} admitted",
            ),
        ),
    ),
    Panel(
        "Workloads that wait, by LocalQueue",
        "short",
        (
            (
                "sum by (namespace, name, status) (kueue_local_queue_pending_workloads)",
                "{{namespace}}/{{name}} {{status}}",
            ),
        ),
        _LOCAL,
    ),
    Panel(
        "Admissions a second, by LocalQueue",
        "ops",
        (
            (
                _rate("kueue_local_queue_admitted_workloads_total", "", "namespace, name"),
                "{{namespace}}/{{name}}",
            ),
        ),
        _LOCAL,
    ),
    Panel("Wait until admission", "s", _quantiles("kueue_admission_wait_time_seconds")),
    Panel("Wait for admission checks", "s", _quantiles("kueue_admission_checks_wait_time_seconds")),
    Panel(
        "Admissions a second",
        "ops",
        (
            (
                _rate("kueue_admitted_workloads_total", _QUEUES, "cluster_queue"),
                "{{cluster_queue}}",
            ),
        ),
    ),
    Panel(
        "Evictions a second",
        "ops",
        (
            (
                _rate("kueue_evicted_workloads_total", _QUEUES, "cluster_queue, reason"),
                "{{cluster_queue}} {{reason}}",
            ),
        ),
    ),
    Panel(
        "Preemptions a second, by the ClusterQueue of the preemptor",
        "ops",
        (
            (
                _rate(
                    "kueue_preempted_workloads_total",
                    'preempting_cluster_queue=~"$cluster_queue"',
                    "preempting_cluster_queue, reason",
                ),
                "{{preempting_cluster_queue}} {{reason}}",
            ),
        ),
    ),
    Panel(
        "ClusterQueues that cannot admit",
        "short",
        (
            (
                f'kueue_cluster_queue_status{{{_QUEUES}, status!="active"}} == 1',
                "{{cluster_queue}} {{status}}",
            ),
        ),
    ),
    Panel(
        "Use of nominal quota",
        "percentunit",
        (
            (
                _part(
                    f"kueue_cluster_queue_resource_reservation{{{_QUEUES}}}",
                    f"kueue_cluster_queue_nominal_quota{{{_QUEUES}}}",
                    "cluster_queue, flavor, resource",
                ),
                _AMOUNT,
            ),
        ),
        _NEEDS,
    ),
    Panel(
        "Use of the quota of cohorts",
        "percentunit",
        (
            (
                _part(
                    "kueue_cohort_subtree_resource_reservations",
                    "kueue_cohort_subtree_quota",
                    "cohort, flavor, resource",
                ),
                "{{cohort}} {{flavor}} {{resource}}",
            ),
        ),
    ),
    Panel(
        "Weighted share of borrowed quota",
        "short",
        ((f"kueue_cluster_queue_weighted_share{{{_QUEUES}}}", "{{cluster_queue}}"),),
        "Needs fairSharing.enable in the manager's configuration.",
    ),
    Panel(
        "Scheduling cycles a second",
        "ops",
        ((_rate("kueue_admission_attempts_total", "", "result"), "{{result}}"),),
    ),
    Panel(
        "Time of a scheduling cycle",
        "s",
        (
            (
                _quantile(0.95, "kueue_admission_attempt_duration_seconds", "result"),
                "{{result}} p95",
            ),
        ),
    ),
    Panel(
        "Status writes a second",
        "ops",
        (
            (
                _rate("kueuelib_status_writes_total", "", "purpose, result"),
                "{{purpose}} {{result}}",
            ),
        ),
    ),
)


def dashboard() -> Obj:
    """The dashboard, as Grafana imports it."""
    return {
        "uid": "kueuelib",
        "title": "Queues",
        "tags": ["kueue"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": list(_variables())},
        "panels": [_panel(at, panel) for at, panel in enumerate(PANELS)],
    }


def _variables() -> Iterator[Obj]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    query = "label_values(kueue_cluster_queue_status, cluster_queue)"
    yield {
        "name": "cluster_queue",
        "label": "ClusterQueue",
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panel(at: int, panel: Panel) -> Obj:
    return {
        "id": at + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"x": WIDE * (at % 2), "y": HIGH * (at // 2), "w": WIDE, "h": HIGH},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for number, (query, legend) in enumerate(panel.queries)
        ],
    }


def dashboard_text() -> str:
    """The dashboard as a file."""
    return json.dumps(dashboard(), indent=2) + "\n"
