"""Defaults: the priority class of jobs that name none, and the namespaces where jobs are queued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from place import Place, uid_of
from rest import JOBS, KUEUE, PODS, WORKLOADS, Rest, eventually
from warm import Processes

from kueuelib.testing.processes import LocalCluster

QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
NAME = "kubernetes.io/metadata.name"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
FRAMEWORKS = ("batch/job", "pod", "deployment")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        started = LocalCluster(processes, frameworks=FRAMEWORKS)
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


def restarted(cluster: LocalCluster, namespace: str) -> None:
    """The manager again, now for this namespace only."""
    cluster.processes.stop("manager")
    selector = f"managedJobsNamespaceSelector: {{matchLabels: {{{NAME}: {namespace}}}}}"
    cluster.settings = f"{selector}\n"
    cluster.start_manager()
    cluster.wait_for_manager()


def test_jobs_in_namespaces_that_are_not_selected_are_left_alone(
    cluster: LocalCluster, rest: Rest
) -> None:
    """Also those with a queue name; a Workload from before stays as it is."""
    assert rest.create(JOBS, job("waiting", **{QUEUE: "q"}))["spec"]["suspend"]
    (before,) = eventually(lambda: rest.items(WORKLOADS))
    restarted(cluster, "elsewhere")
    assert not rest.create(JOBS, job("free", **{QUEUE: "q"}))["spec"]["suspend"]
    meta = {"name": "p", "labels": {QUEUE: "q"}}
    pod = rest.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template()}
    )
    assert "schedulingGates" not in pod["spec"]
    eventually(lambda: rest.get(f"{JOBS}/free")["status"].get("active"))
    rest.merge(f"{JOBS}/waiting", {"metadata": {"labels": {QUEUE: "other"}}})
    Place(rest).quiet(lambda: [uid_of(one) for one in rest.items(WORKLOADS)] == [uid_of(before)])
    assert rest.items(WORKLOADS)[0]["spec"]["queueName"] == "q"
    assert rest.get(f"{JOBS}/waiting")["spec"]["suspend"]
    restarted(cluster, "default")
    eventually(lambda: rest.get(f"{JOBS}/free")["spec"]["suspend"])
    eventually(
        lambda: sorted(one["spec"]["queueName"] for one in rest.items(WORKLOADS)) == ["other", "q"]
    )
