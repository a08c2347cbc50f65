"""A kind of jobs of one's own: the example in a process of its own, and as a plug-in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rest import KUEUE, WORKLOADS, Rest, eventually, is_true
from warm import Processes

from kueuelib.testing.processes import READY_SECONDS, LocalCluster, free_port

EXAMPLE = Path(__file__).parents[2] / "examples/custom_job"
TRAININGS = "/apis/ml.example.com/v1/namespaces/default/trainings"
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/default/localqueues",
    "Training": TRAININGS,
    "ServiceAccount": "/api/v1/namespaces/kueue-system/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/kueue-system/roles",
    "RoleBinding": f"{_RBAC}/namespaces/kueue-system/rolebindings",
    "MutatingWebhookConfiguration": f"{_HOOKS}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_HOOKS}/validatingwebhookconfigurations",
}
ENTRY_POINTS = "[kueuelib.jobs]\nml.example.com/training = training_declared:integration\n"


def apply(rest: Rest, text: str) -> None:
    for obj in yaml.safe_load_all(text):
        rest.create(PATHS[obj["kind"]], obj)


def manifests(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kueuelib", "manifests", *args],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


class Trainings:
    """A cluster with the example in it."""

    def __init__(self, cluster: LocalCluster, rest: Rest) -> None:
        self.cluster = cluster
        self.rest = rest

    def define(self) -> None:
        apply(self.rest, (EXAMPLE / "crd.yaml").read_text())
        eventually(lambda: self.rest.items(TRAININGS) == [])

    def start_manager(self) -> None:
        self.cluster.start_manager()
        self.cluster.wait_for_manager()
        apply(self.rest, (EXAMPLE / "queues.yaml").read_text())

    def play(self) -> None:
        """Starts the controller of the vendor."""
        processes = self.cluster.processes
        processes.start_program(
            "vendor", str(EXAMPLE / "controller.py"), str(self.cluster.kubeconfig)
        )

    def create(self, name: str, workers: int = 2) -> None:
        obj = yaml.safe_load((EXAMPLE / "training.yaml").read_text())
        obj["metadata"]["name"] = name
        obj["spec"]["workers"]["replicas"] = workers
        stored = self.rest.create(TRAININGS, obj)
        assert stored["spec"]["suspend"] is True, "the webhook suspends what is queued"

    def get(self, name: str) -> dict[str, Any]:
        return self.rest.get(f"{TRAININGS}/{name}")

    def workload(self, name: str) -> dict[str, Any]:
        uid = self.get(name)["metadata"]["uid"]
        query = f"?labelSelector=kueue.x-k8s.io/job-uid%3D{uid}"
        (found,) = self.rest.items(f"{WORKLOADS}{query}")
        return found


def own_process(trainings: Trainings) -> None:
    trainings.start_manager()
    trainings.define()
    start_own_process(trainings)


def own_process_before_its_kind(trainings: Trainings) -> None:
    trainings.start_manager()
    start_own_process(trainings)
    trainings.define()


def start_own_process(trainings: Trainings) -> None:
    cluster = trainings.cluster
    webhook, health = free_port(), free_port()
    module = str(EXAMPLE / "training.py")
    apply(trainings.rest, manifests(module, "--webhook-url", f"https://127.0.0.1:{webhook}"))
    args = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", "kueue-system"]
    args += ["--webhook-address", f"127.0.0.1:{webhook}", "--metrics-address", "0"]
    args += ["--health-address", f"127.0.0.1:{health}"]
    cluster.processes.start("run", "run", module, *args)
    cluster.processes.wait_for_url(f"http://127.0.0.1:{health}/readyz", "run")


def plugin(trainings: Trainings) -> None:
    cluster = trainings.cluster
    trainings.define()
    apply(trainings.rest, manifests(str(EXAMPLE / "training_declared.py"), "--plugin"))
    cluster.frameworks = ("batch/job", "ml.example.com/training")
    trainings.start_manager()


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainings]:
    package = tmp_path / "site" / "example_training-1.dist-info"
    package.mkdir(parents=True)
    meta = "Metadata-Version: 2.1\nName: example-training\nVersion: 1\n"
    (package / "METADATA").write_text(meta)
    (package / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{EXAMPLE}", prepend=":")
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes)
        cluster.start_server()
        cluster.install()
        with Rest(cluster.kubeconfig) as rest:
            yield Trainings(cluster, rest)


@pytest.mark.parametrize("mode", [own_process, own_process_before_its_kind, plugin])
def test_trainings_wait_run_and_end(trainings: Trainings, mode: Any) -> None:
    mode(trainings)
    trainings.play()
    trainings.create("first")
    trainings.create("second", workers=1)

    def started() -> bool:
        spec = trainings.get("first")["spec"]
        assert spec["suspend"] is False
        for role in ("launcher", "workers"):
            selector = spec[role]["template"]["spec"]["nodeSelector"]
            assert selector == {"kueuelib.dev/pool": "spot"}
        return True

    eventually(started, READY_SECONDS)
    counts = {entry["name"]: entry["count"] for entry in pod_sets(trainings.workload("first"))}
    assert counts == {"launcher": 1, "workers": 2}
    # 2.5 of 3 cpu are taken, so the second one waits until the first has ended
    eventually(lambda: is_true(trainings.workload("first"), "Finished"))
    assert trainings.get("first")["status"]["phase"] == "Succeeded"
    eventually(lambda: is_true(trainings.workload("second"), "Finished"))

    def is_reported() -> bool:
        events = trainings.rest.items("/api/v1/namespaces/default/events")
        return {"Started", "CreatedWorkload"} <= {event["reason"] for event in events}

    eventually(is_reported)


def test_a_deactivated_training_is_stopped_and_put_back(trainings: Trainings) -> None:
    own_process(trainings)
    trainings.play()
    trainings.create("mnist")
    eventually(lambda: trainings.get("mnist")["spec"]["suspend"] is False)
    name = trainings.workload("mnist")["metadata"]["name"]
    trainings.rest.merge(f"{WORKLOADS}/{name}", {"spec": {"active": False}})

    def stopped() -> bool:
        spec = trainings.get("mnist")["spec"]
        assert spec["suspend"] is True
        return all(
            not spec[role]["template"]["spec"].get("nodeSelector")
            for role in ("launcher", "workers")
        )

    eventually(stopped)
    eventually(lambda: not is_true(trainings.workload("mnist"), "QuotaReserved"))


def pod_sets(workload: dict[str, Any]) -> list[dict[str, Any]]:
    return workload["spec"]["podSets"]
