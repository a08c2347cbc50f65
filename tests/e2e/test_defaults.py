"""What a job gets that does not say it: a priority class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest import JOBS, KUEUE, WORKLOADS, Rest, eventually
from warm import Processes

from kueuelib.testing.processes import LocalCluster

QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SETTINGS = """
integrations: {frameworks: [batch/job, pod, deployment]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        started = LocalCluster(processes, settings=SETTINGS)
        started.start()
        yield started


def template() -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"restartPolicy": "Never", "containers": [container]}


def job(name: str, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "labels": labels}
    spec = {"template": {"spec": template()}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": template()["containers"]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    meta = {"name": name, "labels": {QUEUE: "q"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def labels(obj: dict[str, Any]) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def priorities(rest: Rest) -> list[int]:
    return sorted(workload["spec"]["priority"] for workload in rest.items(WORKLOADS))


def test_a_queued_job_without_a_class_gets_the_one_with_the_name_default(
    cluster: LocalCluster, rest: Rest
) -> None:
    assert CLASS not in labels(rest.create(JOBS, job("before", **{QUEUE: "q"})))
    rest.create(DEPLOYMENTS, deployment("older"))
    for name, value in (("default", 7), ("high", 9)):
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
        meta = {"name": name}
        rest.create(f"{KUEUE}/workloadpriorityclasses", {**kind, "metadata": meta, "value": value})

    def defaulted() -> bool:
        stored = rest.create(f"{JOBS}?dryRun=All", job("probe", **{QUEUE: "q"}))
        return labels(stored).get(CLASS) == "default"

    eventually(defaulted)
    assert labels(rest.create(JOBS, job("plain", **{QUEUE: "q"})))[CLASS] == "default"
    named = rest.create(JOBS, job("named", **{QUEUE: "q", CLASS: "high"}))
    assert labels(named)[CLASS] == "high"
    assert CLASS not in labels(rest.create(JOBS, job("free")))
    stored = rest.create(DEPLOYMENTS, deployment("newer"))
    assert labels(stored)[CLASS] == labels(stored["spec"]["template"])[CLASS] == "default"
    older = rest.merge(f"{DEPLOYMENTS}/older", {"spec": {"replicas": 0}})
    assert CLASS not in labels(older), "its pods would be replaced"
    eventually(lambda: {0, 7, 9} <= {*priorities(rest)})
