"""Plain pods and groups: the examples, what the webhook missed, and what is counted."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from rest import KUEUE, PODS, WORKLOADS, Rest, eventually
from warm import Processes

from kueuelib.api.meta import is_true
from kueuelib.testing.processes import LocalCluster, free_port

EXAMPLES = Path(__file__).parents[2] / "examples/pods"
PATHS = {
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/default/localqueues",
    "Pod": PODS,
}
GATE = {"name": "kueue.x-k8s.io/admission"}
TOPOLOGY_GATE = {"name": "kueue.x-k8s.io/topology"}


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Processes(tmp_path) as processes:
        found = LocalCluster(processes, frameworks=("pod",), metrics_port=free_port())
        found.start()
        yield found


@pytest.fixture
def rest(cluster: LocalCluster) -> Iterator[Rest]:
    with Rest(cluster.kubeconfig) as found:
        for obj in documents("queues.yaml"):
            found.create(PATHS[obj["kind"]], obj)
        yield found


def apply(rest: Rest, name: str) -> list[dict]:
    return [rest.create(PATHS[obj["kind"]], obj) for obj in documents(name)]


def pod(rest: Rest, name: str) -> dict:
    return rest.get(f"{PODS}/{name}")


def ends(rest: Rest, *names: str) -> None:
    def over() -> bool:
        found = [pod(rest, name) for name in names]
        return all(
            each["status"].get("phase") == "Succeeded" and not each["metadata"].get("finalizers")
            for each in found
        )

    eventually(over)


def test_story_1_a_pod_waits_runs_and_ends(rest: Rest) -> None:
    (created,) = apply(rest, "story1.yaml")
    assert created["spec"]["schedulingGates"] == [GATE, TOPOLOGY_GATE]
    ends(rest, "foo")
    (workload,) = rest.items(WORKLOADS)
    assert is_true(workload, "Finished")


def test_story_2_a_group_starts_together_and_ends(rest: Rest) -> None:
    names = [each["metadata"]["name"] for each in apply(rest, "story2.yaml")]
    ends(rest, *names)
    (workload,) = rest.items(WORKLOADS)
    assert workload["metadata"]["name"] == "pod-group"
    assert sorted(entry["count"] for entry in workload["spec"]["podSets"]) == [1, 2]
    assert is_true(workload, "Finished")


def test_story_3_a_driver_holds_the_quota_of_its_workers(rest: Rest, cluster: LocalCluster) -> None:
    apply(rest, "story3-driver.yaml")
    workload = eventually(lambda: rest.get(f"{WORKLOADS}/spark-group"))
    assert [entry["name"] for entry in workload["spec"]["podSets"]] == ["driver", "worker"]
    (worker,) = documents("story3-worker.yaml")
    for number in range(2):
        obj = copy.deepcopy(worker)
        obj["metadata"]["name"] = f"spark-worker-{number}"
        rest.create(PODS, obj)
    ends(rest, "spark-driver", "spark-worker-0", "spark-worker-1")
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/spark-group"), "Finished"))
    metrics = rest.metrics(cluster.metrics_port)
    assert 'kueue_pods_gated_total{namespace="default"} 3.0' in metrics
    assert 'kueue_pods_ungated_total{cluster_queue="pods"} 3.0' in metrics


def test_pods_that_came_past_the_webhook_are_repaired_or_counted(
    rest: Rest, cluster: LocalCluster
) -> None:
    """Without a webhook a pod enters as it is: one wrote the gate itself, one did not."""
    path = "/apis/admissionregistration.k8s.io/v1"
    configurations = [
        f"{path}/mutatingwebhookconfigurations/kueue-mutating-webhook-configuration",
        f"{path}/validatingwebhookconfigurations/kueue-validating-webhook-configuration",
    ]
    for each in configurations:
        rest.delete(each)
    (plain,) = documents("story1.yaml")
    gated = copy.deepcopy(plain)
    gated["metadata"]["name"] = "gated"
    gated["spec"]["schedulingGates"] = [GATE]
    rest.create(PODS, plain)
    rest.create(PODS, gated)
    ends(rest, "gated")
    assert pod(rest, "gated")["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert "kueue.x-k8s.io/managed" not in pod(rest, "foo")["metadata"]["labels"]

    def counted() -> bool:
        metrics = rest.metrics(cluster.metrics_port)
        name = "kueuelib_missed_by_webhook_total"
        outcomes = ("left alone", "repaired")
        return all(f'{name}{{kind="Pod",what="{each}"}} 1.0' in metrics for each in outcomes)

    eventually(counted)
    (workload,) = rest.items(WORKLOADS)
    assert workload["metadata"]["ownerReferences"][0]["name"] == "gated"
