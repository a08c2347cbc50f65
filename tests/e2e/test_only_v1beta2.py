"""A cluster that stores and serves queueing objects only in v1beta2, as a later Kueue leaves it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from place import QUEUE, container
from real_plane import lacking, real_cluster
from rest import JOBS, KUEUE, WORKLOADS, Obj, Rest, eventually
from warm import Processes, kueuelib

from kueuelib import State, sync
from kueuelib.api.crd import all_crds
from kueuelib.testing.processes import LocalCluster

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLD = "/apis/kueue.x-k8s.io/v1beta1"
REAL = pytest.param(
    "real", marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
)
QUOTA: Obj = {
    "coveredResources": ["cpu"],
    "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}],
}


def without_v1beta1(crd: Obj) -> Obj:
    """The definition as a release without `v1beta1` has it, which needs no conversion."""
    (version,) = (each for each in crd["spec"]["versions"] if each["name"] == "v1beta2")
    spec = {**crd["spec"], "versions": [version], "conversion": {"strategy": "None"}}
    return {**crd, "spec": spec}


def job_of(name: str, *, seconds: int = 1000) -> Obj:
    notes = {"kueuelib.dev/run-seconds": str(seconds)}
    spec = {"restartPolicy": "Never", "containers": [container()]}
    template = {"metadata": {"annotations": notes}, "spec": spec}
    meta = {"name": name, "namespace": "default", "labels": {QUEUE: "main"}}
    head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    return {**head, "spec": {"suspend": True, "template": template}}


class Place:
    """A cluster and the commands for it."""

    def __init__(self, cluster: LocalCluster, rest: Rest) -> None:
        self.cluster = cluster
        self.rest = rest

    def command(self, command: str, *args: str) -> subprocess.CompletedProcess[str]:
        return kueuelib(command, *args, "--kubeconfig", self.cluster.kubeconfig)

    def run(self, command: str, *args: str, code: int = 0) -> str:
        done = self.command(command, *args)
        assert done.returncode == code, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def install(self, *args: str) -> None:
        url = f"https://127.0.0.1:{self.cluster.webhook_port}"
        self.run("install", "--webhook-url", url, *args)

    def create(self, path: str, kind: str, name: str, spec: Obj) -> None:
        obj = {"kind": kind, "metadata": {"name": name}, "spec": spec}
        group = "batch/v1" if kind == "Job" else "kueue.x-k8s.io/v1beta2"
        eventually(lambda: self.rest.create(path, {"apiVersion": group, **obj}))

    def job(self, name: str, *, seconds: int = 1000) -> None:
        self.rest.create(JOBS, job_of(name, seconds=seconds))

    def runs(self, name: str) -> bool:
        return self.rest.get(f"{JOBS}/{name}")["spec"]["suspend"] is False

    def served(self) -> set[tuple[str, ...]]:
        return {
            tuple(each["name"] for each in crd["spec"]["versions"] if each["served"])
            for crd in self.rest.items(CRDS)
            if crd["spec"]["group"] == "kueue.x-k8s.io"
        }


@pytest.fixture(params=["embedded", REAL])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "real":
            cluster = stack.enter_context(real_cluster(tmp_path))
        else:
            cluster = LocalCluster(stack.enter_context(Processes(tmp_path)))
            cluster.start_server()
        rest = stack.enter_context(Rest(cluster.kubeconfig))
        for crd in all_crds():
            rest.create(CRDS, without_v1beta1(crd))
        place = Place(cluster, rest)
        place.create(f"{KUEUE}/resourceflavors", "ResourceFlavor", "f", {})
        spec: Obj = {"namespaceSelector": {}, "resourceGroups": [QUOTA], "cohortName": "team"}
        place.create(f"{KUEUE}/clusterqueues", "ClusterQueue", "cq", spec)
        queue = f"{KUEUE}/namespaces/default/localqueues"
        place.create(queue, "LocalQueue", "main", {"clusterQueue": "cq"})
        pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container("9")]}}}
        place.create(WORKLOADS, "Workload", "large", {"queueName": "main", "podSets": [pods]})
        yield place


def ask_everything(place: Place) -> None:
    """Every command that reads a cluster."""
    assert "large" in place.run("pending", "-A")
    assert "large" in place.run("explain", "workload/large")
    assert "large" in place.run("report")
    report = json.loads(place.run("doctor", "-o", "json", code=4))
    assert report["notSeen"] == []
    assert "never-fits" in {each["check"] for each in report["findings"]}
    done = place.command("doctor", "--before-migration", "-o", "json")
    assert done.returncode in (0, 4), done.stderr
    assert json.loads(done.stdout)["notSeen"] == []
    dump = place.run("apiserver", "dump")
    assert "kind: ClusterQueue" in dump
    assert "apiVersion: kueue.x-k8s.io/v1beta1" not in dump


def test_everything_works_with_one_version_and_after_the_other_has_come(place: Place) -> None:
    ask_everything(place)
    place.install("--without-v1beta1")
    assert place.served() == {("v1beta2",)}
    place.cluster.start_manager()
    place.cluster.wait_for_manager()
    place.job("first", seconds=0)
    eventually(lambda: "succeeded" in place.rest.get(f"{JOBS}/first")["status"])
    place.job("second")
    eventually(lambda: place.runs("second"))
    kubeconfig = str(place.cluster.kubeconfig)
    job = job_of("third")
    handle = sync.submit(job, queue="main", kubeconfig=kubeconfig)
    assert next(sync.watch(handle, kubeconfig=kubeconfig)).state is State.QUEUED
    assert eventually(lambda: "third" in place.run("pending", "-A"))
    ask_everything(place)
    with pytest.raises(httpx.HTTPStatusError):
        place.rest.get(f"{OLD}/clusterqueues/cq")

    place.install()
    assert place.served() == {("v1beta1", "v1beta2")}
    # A real server hears later that the versions are to be converted.
    eventually(lambda: place.rest.get(f"{OLD}/clusterqueues/cq")["spec"]["cohort"] == "team")
    assert place.runs("second"), "nobody has stopped it"
    place.rest.merge(f"{JOBS}/second", {"spec": {"suspend": True}})
    ask_everything(place)

    place.install("--without-v1beta1")
    assert place.served() == {("v1beta2",)}
    place.cluster.processes.stop("manager")
    place.run("uninstall", "--force")
    assert place.served() == set()
