"""A kind of jobs that comes after the manager, goes, and comes again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rest import KUEUE, WORKLOADS, Obj, Rest, eventually
from warm import Processes

from kueuelib.testing.processes import LocalCluster, free_port

EXAMPLE = Path(__file__).parents[2] / "examples/custom_job"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "trainings.ml.example.com"
TRAININGS = "/apis/ml.example.com/v1/namespaces/default/trainings"
ENTRY_POINTS = "[kueuelib.jobs]\nml.example.com/training = training_declared:integration\n"
QUEUES = {
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/default/localqueues",
}


class Place:
    """A cluster whose manager has the example as a plug-in, and no CRD of it yet."""

    def __init__(self, cluster: LocalCluster, rest: Rest) -> None:
        self.cluster = cluster
        self.rest = rest

    def define(self, version: str = "v1") -> None:
        crd = yaml.safe_load((EXAMPLE / "crd.yaml").read_text())
        crd["spec"]["versions"][0]["name"] = version
        self.rest.create(CRDS, crd)

    def undefine(self) -> None:
        self.rest.delete(f"{CRDS}/{NAME}")

        def gone() -> bool:
            return NAME not in [crd["metadata"]["name"] for crd in self.rest.items(CRDS)]

        eventually(gone)

    def create(self, name: str, version: str = "v1") -> Obj:
        obj = yaml.safe_load((EXAMPLE / "training.yaml").read_text())
        obj["metadata"]["name"] = name
        obj["apiVersion"] = f"ml.example.com/{version}"
        return eventually(lambda: self.rest.create(TRAININGS.replace("/v1/", f"/{version}/"), obj))

    def started(self, name: str) -> bool:
        spec = self.rest.get(f"{TRAININGS}/{name}")["spec"]
        pod = spec["launcher"]["template"]["spec"]
        return not spec["suspend"] and pod.get("nodeSelector") == {"kueuelib.dev/pool": "spot"}

    def events(self, name: str) -> list[Obj]:
        found = self.rest.items("/api/v1/namespaces/default/events")
        return [event for event in found if event["involvedObject"]["name"] == name]

    def metric(self, state: str) -> float:
        text = self.rest.metrics(self.cluster.metrics_port)
        wanted = f'kueuelib_job_kind_state{{kind="Training.ml.example.com",state="{state}"}} '
        (line,) = [line for line in text.splitlines() if line.startswith(wanted)]
        return float(line.removeprefix(wanted))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    package = tmp_path / "site" / "example_training-1.dist-info"
    package.mkdir(parents=True)
    meta = "Metadata-Version: 2.1\nName: example-training\nVersion: 1\n"
    (package / "METADATA").write_text(meta)
    (package / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{EXAMPLE}", prepend=":")
    with Processes(tmp_path) as processes:
        frameworks = ("batch/job", "ml.example.com/training")
        cluster = LocalCluster(processes, frameworks=frameworks, metrics_port=free_port())
        cluster.start()
        with Rest(cluster.kubeconfig) as rest:
            for obj in yaml.safe_load_all((EXAMPLE / "queues.yaml").read_text()):
                rest.create(QUEUES[obj["kind"]], obj)
            yield Place(cluster, rest)


def test_a_kind_comes_after_the_manager_goes_and_comes_again(place: Place) -> None:
    assert place.metric("missing") == 1
    place.define()
    assert place.create("first")["spec"]["suspend"] is True, "the webhook was there before"
    eventually(lambda: place.started("first"))
    assert place.metric("managed") == 1
    place.undefine()
    eventually(lambda: not place.rest.items(WORKLOADS))
    eventually(lambda: place.metric("missing") == 1)
    place.define()
    place.create("second")
    eventually(lambda: place.started("second"))
    assert place.events(NAME) == []
    place.cluster.processes.check()


def test_a_job_that_came_while_no_manager_was_there_is_stopped_and_queued(
    place: Place,
) -> None:
    place.cluster.processes.stop("manager")
    hooks = "/apis/admissionregistration.k8s.io/v1"
    kept: dict[str, Any] = {}
    for kind in ("mutating", "validating"):
        path = f"{hooks}/{kind}webhookconfigurations/kueue-{kind}-webhook-configuration"
        kept[path] = place.rest.get(path)["webhooks"]
        place.rest.merge(path, {"webhooks": []})
    place.define()
    stored = place.create("first")
    assert stored["spec"]["suspend"] is False, "nobody was there"
    for path, webhooks in kept.items():
        place.rest.merge(path, {"webhooks": webhooks})
    place.cluster.start_manager()
    place.cluster.wait_for_manager()
    eventually(lambda: place.started("first"))


def test_a_kind_in_a_version_that_nobody_reads_says_so_on_its_definition(place: Place) -> None:
    place.define("v2")

    (event,) = eventually(lambda: place.events(NAME))
    assert (event["type"], event["reason"]) == ("Warning", "NotManaged")
    assert "it is served in v2; the integration reads v1" in event["message"]
    assert place.metric("unfit") == 1
    place.undefine()
    place.define("v1")
    place.create("first")
    eventually(lambda: place.started("first"))
