"""Started pods say where they belong, and jobs name groups and Workloads in annotations as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from place import GROUP, QUEUE, Place, name_of
from real_plane import lacking, real_cluster
from rest import Obj, Rest
from test_doctor_alive import embedded_cluster

from kueuelib.testing.processes import LocalCluster

KUEUE = "kueue.x-k8s.io"
PREBUILT = f"{KUEUE}/prebuilt-workload-name"
OFF = "featureGates: {AssignQueueLabelsForPods: false, TopologyAwareScheduling: false}"
REAL = pytest.param(
    real_cluster,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
    id="real",
)


@pytest.fixture(params=["", OFF], ids=["on", "off"])
def gates(request: pytest.FixtureRequest) -> str:
    """Lines of the configuration."""
    return str(request.param)


@pytest.fixture(params=[pytest.param(embedded_cluster, id="embedded"), REAL])
def cluster(request: pytest.FixtureRequest, gates: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with request.param(tmp_path) as found:
        found.frameworks, found.settings = ("batch/job", "pod"), gates
        found.install()
        found.start_manager()
        found.wait_for_manager()
        yield found


def test_started_pods_say_where_they_belong(cluster: LocalCluster, gates: str, rest: Rest) -> None:
    place = Place(rest)
    place.queue(9)

    def says(pod: Obj, pod_set: str, workload: str) -> None:
        """A pod says what the gates permit."""
        meta = place.get(pod)["metadata"]
        labels, notes = meta["labels"], meta.get("annotations") or {}
        wanted = {"podset": pod_set}
        if not gates:
            wanted |= {"local-queue-name": "q", "cluster-queue-name": place.named("q")}
        keys = ("podset", "local-queue-name", "cluster-queue-name")
        assert {
            key: labels[f"{KUEUE}/{key}"] for key in keys if f"{KUEUE}/{key}" in labels
        } == wanted
        assert notes.get(f"{KUEUE}/workload") == (None if gates else workload)

    job = place.job()
    place.runs(job)
    (pod,) = place.pods_of(job)
    says(pod, "main", name_of(place.workload(job)))

    alone = place.pod("alone")
    place.runs(alone)
    says(alone, "main", name_of(place.workload(alone)))

    members = [place.pod(f"g-{each}", total=2, notes={GROUP: "g"}) for each in range(2)]
    place.runs(*members)
    (pod_set,) = place.rest.get(f"{place.workloads}/g")["spec"]["podSets"]
    for each in members:
        says(each, pod_set["name"], "g")


def test_an_annotation_names_the_workload_of_a_job(cluster: LocalCluster, rest: Rest) -> None:
    place = Place(rest)
    place.queue(9)
    job = place.job("late", notes={PREBUILT: "made"})
    place.suspended(job)
    template = place.get(job)["spec"]["template"]
    pod_set = {"name": "main", "count": 1, "template": {"spec": template["spec"]}}
    made = {
        "apiVersion": f"{KUEUE}/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "made"},
        "spec": {"queueName": job["metadata"]["labels"][QUEUE], "podSets": [pod_set]},
    }
    rest.create(place.workloads, made)
    place.runs(job)
    assert name_of(place.workload(job)) == "made"
