"""`manageJobsWithoutQueueName`: every job is queued, except in namespaces that are excluded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest import JOBS, WORKLOADS, Rest, eventually
from warm import Processes

from kueuelib.testing.processes import LocalCluster

HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGURATION = f"{HOOKS}/kueue-mutating-webhook-configuration"
SETTINGS = """
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector: {matchLabels: {queued: "yes"}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes, settings=SETTINGS)
        found.start()
        yield found


def job(name: str, **meta: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"template": {"spec": pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **meta},
        "spec": spec,
    }


def entries(rest: Rest) -> set[str]:
    return {entry["name"] for entry in rest.get(CONFIGURATION)["webhooks"]}


def test_jobs_without_a_queue_name_wait_where_the_selector_says(
    cluster: LocalCluster, rest: Rest
) -> None:
    assert "mjob-unnamed.kb.io" in entries(rest)
    rest.create(JOBS, job("free"))
    assert not rest.get(f"{JOBS}/free")["spec"]["suspend"]
    rest.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"queued": "yes"}}})
    rest.create(JOBS, job("bound"))
    assert rest.get(f"{JOBS}/bound")["spec"]["suspend"], "suspended before it was stored"
    eventually(lambda: rest.items(WORKLOADS))
    # the other way round: the entry goes with the setting
    cluster.processes.stop("manager")
    cluster.settings = ""
    cluster.start_manager()
    cluster.wait_for_manager()
    assert "mjob-unnamed.kb.io" not in entries(rest)
    assert "mjob.kb.io" in entries(rest)


def test_children_of_managed_jobs_are_left_alone_through_owners_of_any_kind(
    cluster: LocalCluster, rest: Rest
) -> None:
    rest.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"queued": "yes"}}})
    top = rest.create(JOBS, job("top"))
    middle = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "between", "ownerReferences": [owner(top)]},
    }
    between = rest.create("/api/v1/namespaces/default/configmaps", middle)
    eventually(lambda: rest.items(WORKLOADS))
    child = job("child", ownerReferences=[owner(between)])
    stored = rest.create(JOBS, child)
    assert not stored["spec"]["suspend"], "the webhook leaves it to its ancestor"
    # the ancestor is not admitted (there is no queue), so its child may not run either
    eventually(lambda: rest.get(f"{JOBS}/child")["spec"]["suspend"])
    assert len(rest.items(WORKLOADS)) == 1


def owner(obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj["metadata"]
    return {
        "apiVersion": obj.get("apiVersion", "v1"),
        "kind": obj["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
