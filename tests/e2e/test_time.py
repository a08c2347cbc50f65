"""Workloads over time: pods that are never ready, an execution that takes too long, retention."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rest import JOBS, KUEUE, WORKLOADS, Rest, eventually, is_true
from warm import Processes, kueuelib

from kueuelib.testing.processes import LocalCluster

QUEUES = Path(__file__).parents[2] / "examples/custom_job/queues.yaml"
PODS_READY = """
waitForPodsReady:
  enable: true
  timeout: 1s
  blockAdmission: true
  requeuingStrategy: {backoffBaseSeconds: 1, backoffLimitCount: 1}
"""
RETENTION = """
objectRetentionPolicies: {workloads: {afterFinished: 1s, afterDeactivatedByKueue: 1s}}
"""
PATHS = {
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/default/localqueues",
}


@pytest.fixture
def rest(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rest]:
    """Its manager waits for pods, a second each, only where a test is about that."""
    with Processes(tmp_path) as started:
        cluster = LocalCluster(started, settings=getattr(request, "param", "") + RETENTION)
        cluster.start()
        with Rest(cluster.kubeconfig) as found:
            for obj in yaml.safe_load_all(QUEUES.read_text()):
                found.create(PATHS[obj["kind"]], obj)
            yield found


def create(rest: Rest, name: str, selector: str = "", **meta: Any) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team", **meta.pop("labels", {})}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    pod["terminationGracePeriodSeconds"] = 0
    if selector:
        pod["nodeSelector"] = {"nowhere": selector}
    template = {"metadata": meta.pop("template", {}), "spec": pod}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}}
    rest.create(JOBS, {**job, "spec": {"template": template}})


def workloads(rest: Rest, name: str) -> list[dict[str, Any]]:
    return [
        found
        for found in rest.items(WORKLOADS)
        if found["metadata"]["ownerReferences"][0]["name"] == name
    ]


def workload(rest: Rest, name: str) -> dict[str, Any]:
    found = workloads(rest, name)
    assert found, f"{name} has no Workload"
    return found[0]


def reasons(rest: Rest) -> set[str]:
    """Those of all events so far, which are written after what they tell of."""
    return {event["reason"] for event in rest.items("/api/v1/namespaces/default/events")}


def jobs(rest: Rest) -> set[str]:
    return {job["metadata"]["name"] for job in rest.items(JOBS)}


@pytest.mark.parametrize("rest", [PODS_READY], indirect=True, ids=["ready"])
def test_pods_that_are_never_ready_give_way_and_are_given_up(rest: Rest) -> None:
    create(rest, "stuck", selector="x")
    eventually(lambda: is_true(workload(rest, "stuck"), "Admitted"))
    # one at a time: the second one waits until the first is ready or gives way
    create(rest, "next")
    eventually(lambda: is_true(workload(rest, "next"), "PodsReady"))
    eventually(lambda: "EvictedDueToPodsReadyTimeout" in reasons(rest))
    # after its second try the first is deactivated, and after a while deleted
    eventually(lambda: "stuck" not in jobs(rest))
    last = {"RequeuingLimitExceeded", "Deleted"}
    last |= {"EvictedDueToDeactivatedDueToRequeuingLimitExceeded"}
    eventually(lambda: last <= reasons(rest))
    assert jobs(rest) == {"next"}


def test_an_execution_that_takes_too_long_is_ended(rest: Rest) -> None:
    create(rest, "long", labels={"kueue.x-k8s.io/max-exec-time-seconds": "1"})
    eventually(lambda: workloads(rest, "long"))
    assert workload(rest, "long")["spec"]["maximumExecutionTimeSeconds"] == 1
    eventually(lambda: "long" not in jobs(rest))
    last = "EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded"
    eventually(lambda: last in reasons(rest))


def test_a_finished_workload_goes_and_its_job_stays_finished(rest: Rest) -> None:
    create(rest, "quick", template={"annotations": {"kueuelib.dev/run-seconds": "0.1"}})
    eventually(lambda: is_true(rest.get(f"{JOBS}/quick"), "Complete"))
    eventually(lambda: not workloads(rest, "quick"))
    assert not rest.get(f"{JOBS}/quick")["spec"]["suspend"]


BLOCKED = "waitForPodsReady: {enable: true, timeout: 300s, blockAdmission: true}"


@pytest.mark.usefixtures("elects")
def test_commands_that_get_no_file_know_what_the_manager_runs_with(tmp_path: Path) -> None:
    with Processes(tmp_path) as started:
        cluster = LocalCluster(started, settings=BLOCKED)
        cluster.start()
        where = ("--kubeconfig", cluster.kubeconfig)
        with Rest(cluster.kubeconfig) as rest:
            for obj in yaml.safe_load_all(QUEUES.read_text()):
                rest.create(PATHS[obj["kind"]], obj)
            create(rest, "unready", "never")
            eventually(lambda: rest.items(WORKLOADS))
            eventually(lambda: all(is_true(one, "Admitted") for one in rest.items(WORKLOADS)))
            create(rest, "waits")
            eventually(lambda: workloads(rest, "waits"))

        def explained() -> bool:
            text = kueuelib("explain", "job/waits", *where).stdout
            return "Nothing stands in its way" not in text and "from Lease kueue-system/" in text

        eventually(explained)
        listed = json.loads(kueuelib("pending", "-o", "json", *where).stdout)
        assert listed["items"][0]["verdict"] != "Admitted", listed
        assert any("from Lease" in note for note in listed["notes"])
        assert "from Lease" in kueuelib("report", *where).stdout
        report = json.loads(kueuelib("doctor", "-o", "json", *where).stdout)
        assert not [
            one for one in report["findings"] if one["check"] in ("fits-but-waits", "leader")
        ]
        assert any("from Lease" in note for note in report["notes"])
