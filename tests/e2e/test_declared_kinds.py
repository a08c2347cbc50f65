"""The life of a job of every bundled kind: queued, admitted, preempted, ended; in one cluster.

The CRDs hold the fields that are used, at the paths of the real ones, and come after the manager.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from place import QUEUE, Place, gates, phase, pod_spec, shared_cluster, uid_of
from rest import Obj, Rest, condition, eventually, is_true

from kueuelib.jobs.contract.capabilities import is_stop_begun
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.webhooks.rules import is_suspended

sys.path.insert(0, str(Path(__file__).parents[1] / "kinds"))

from samples import Sample, samples

SAMPLES = samples()
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GATES = "kueue.x-k8s.io/admission-gated-by"
PRIORITY = "kueue.x-k8s.io/priority-class"


class Life:
    """One kind in a namespace of its own, with quota for one of its jobs."""

    def __init__(self, rest: Rest, sample: Sample) -> None:
        self.sample = sample
        self.place = Place(rest)
        self.rest = rest
        resource = sample.resource
        self.path = f"/apis/{resource.api_version}/namespaces/{self.place.ns}/{resource.plural}"
        job = self.job_type(sample.job())
        self.shapes = {entry.name: entry.count for entry in job.pod_sets()}
        cpu = sum(self.shapes.values())
        self.place.queue(cpu, flavors={"spot": {"pool": "spot"}}, **self.place.preempting())
        for base, value in (("low", 1), ("high", 2)):
            self.place.priority(value, base)

    def create(self, base: str, **notes: str) -> None:
        labels = {QUEUE: "q", PRIORITY: self.place.named(base)}
        job = self.sample.job(name=base, labels=labels, annotations=notes)
        stored = self.rest.create(self.path, job)
        assert self.job_type(stored).is_suspended(), "the webhook suspends what is queued"

    def job_type(self, obj: Obj) -> GenericJob:
        return self.sample.integration.job_type(self.sample.complete(obj))

    def get(self, base: str) -> Obj:
        return self.rest.get(f"{self.path}/{base}")

    def report(self, base: str, state: str) -> None:
        """Its controller writes the status."""
        status = self.sample.status(state)
        stored = self.rest.merge(f"{self.path}/{base}/status", {"status": status})["status"]
        assert {key: stored[key] for key in status} == status, "the schema knows every field"

    def pools(self, base: str) -> set[str | None]:
        """The pools that the pod templates select."""
        pod_sets = self.job_type(self.get(base)).pod_sets()
        return {(e.template["spec"].get("nodeSelector") or {}).get("pool") for e in pod_sets}

    def runs(self, base: str) -> bool:
        """Whether it is not suspended; a stop that was begun counts."""
        return not is_suspended(self.sample.integration, self.get(base))

    def workload(self, base: str) -> Obj:
        return self.place.workload(self.get(base))

    def holds_quota(self, base: str) -> bool:
        return is_true(self.workload(base), "QuotaReserved")


def create_referred(rest: Rest, obj: Obj) -> None:
    path = f"/apis/{obj['apiVersion']}/{obj['kind'].lower()}s"
    eventually(lambda: rest.create(path, obj))


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    folder = tmp_path_factory.mktemp("kinds")
    with shared_cluster(folder, frameworks=("batch/job", "deployment", *SAMPLES)) as (_, rest):
        for sample in SAMPLES.values():
            for crd in sample.crds:
                rest.create(CRDS, crd)
        for sample in SAMPLES.values():
            if sample.referred is not None:
                create_referred(rest, sample.referred)
        yield rest


@pytest.mark.parametrize("name", SAMPLES)
def test_life(rest: Rest, name: str) -> None:
    life = Life(rest, SAMPLES[name])
    eventually(lambda: rest.items(life.path) == [])
    life.create("low", **{GATES: "example.com/gate"})
    gated = life.place.when(life.get("low"), "QuotaReserved", "False", "AdmissionGated")
    rest.merge(f"{life.path}/low", {"metadata": {"annotations": {GATES: None}}})
    eventually(lambda: life.runs("low"))
    assert uid_of(life.workload("low")) == uid_of(gated)
    assert life.pools("low") == {"spot"}
    found = life.workload("low")["spec"]["podSets"]
    assert [entry["count"] for entry in found] == [*life.shapes.values()]
    life.report("low", "running")

    life.create("high")
    eventually(lambda: not life.runs("low"))
    assert condition(life.workload("low"), "Evicted")["reason"] == "Preempted"
    assert life.holds_quota("low"), "its pods are still there"
    life.report("low", "stopped")
    eventually(lambda: life.runs("high"))
    eventually(lambda: life.pools("low") == {None})

    life.report("high", "running")
    if "succeeded" in life.sample.content:
        life.report("high", "succeeded")
        eventually(lambda: is_true(life.workload("high"), "Finished"))
    else:
        rest.delete(f"{life.path}/high")
    eventually(lambda: life.runs("low"))
    assert life.pools("low") == {"spot"}


def test_quota_is_kept_until_the_controller_of_a_kind_has_seen_a_stop(rest: Rest) -> None:
    """A JobSet that is preempted before its controller has seen the start."""
    life = Life(rest, SAMPLES["jobset.x-k8s.io/jobset"])
    life.create("low")
    eventually(lambda: life.runs("low"))
    life.report("low", "stopped")  # what it says late is from before the start
    rest.merge(life.place.path(life.workload("low")), {"spec": {"active": False}})
    eventually(lambda: not life.runs("low"))
    eventually(lambda: life.pools("low") == {None})
    conditions = life.get("low")["status"]["conditions"]
    assert conditions == [], "the condition of before the start is removed"
    life.place.quiet(lambda: life.holds_quota("low"))
    life.report("low", "stopped")
    eventually(lambda: not life.holds_quota("low"))
    eventually(lambda: not is_stop_begun(life.get("low")))


def test_a_running_job_that_is_replaced_stays_as_its_user_wrote_it(rest: Rest) -> None:
    """As `kubectl replace` does it, with a file that has no annotations and no suspend."""
    life = Life(rest, SAMPLES["kubeflow.org/mpijob"])
    life.create("low")
    eventually(lambda: life.runs("low"))
    life.report("low", "running")
    workload, live = uid_of(life.workload("low")), life.get("low")
    written = life.sample.job(name="low", labels={QUEUE: "q", PRIORITY: life.place.named("low")})
    for spec in written["spec"]["mpiReplicaSpecs"].values():
        spec["template"]["spec"]["nodeSelector"] = {"pool": "mine"}
    written["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    rest.replace(f"{life.path}/low", written)
    assert life.runs("low")
    rest.merge(life.place.path(life.workload("low")), {"spec": {"active": False}})
    eventually(lambda: not life.runs("low"))
    life.report("low", "stopped")
    eventually(lambda: not life.holds_quota("low"))
    assert life.pools("low") == {"mine"}

    def follows() -> bool:
        asked = life.workload("low")
        assert uid_of(asked) == workload
        selectors = [e["template"]["spec"].get("nodeSelector") for e in asked["spec"]["podSets"]]
        return selectors == [{"pool": "mine"}] * 2

    eventually(follows)


def test_the_cluster_of_a_service_is_not_queued_again(rest: Rest) -> None:
    """KubeRay copies the labels of the RayService to the RayCluster that it makes."""
    life, cluster = Life(rest, SAMPLES["ray.io/rayservice"]), SAMPLES["ray.io/raycluster"]
    life.create("low")
    eventually(lambda: life.runs("low"))
    service = life.get("low")
    owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "low", "controller": True}
    owner |= {"uid": uid_of(service), "blockOwnerDeletion": True}
    labels = service["metadata"]["labels"]
    path = life.path.replace("rayservices", "rayclusters")
    made = rest.create(path, cluster.job(name="made", labels=labels, ownerReferences=[owner]))
    assert "suspend" not in made["spec"]
    alone = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "alone"}}
    alone["metadata"] |= {"labels": labels}  # type: ignore[operator]
    rest.create(path, {**cluster.job(), **alone})
    eventually(lambda: life.place.workload(rest.get(f"{path}/alone")))
    owners = {
        ref["uid"]
        for each in rest.items(life.place.workloads)
        for ref in each["metadata"]["ownerReferences"]
    }
    assert uid_of(made) not in owners
    rest.merge(life.place.path(life.workload("low")), {"spec": {"active": False}})
    eventually(lambda: not life.runs("low"))
    life.report("low", "stopped")
    eventually(lambda: rest.get(f"{path}/made")["spec"].get("suspend"))


def test_pods_of_an_application_are_not_queued_again(rest: Rest) -> None:
    """Spark makes the driver the owner of the executors; labels may be copied to both."""
    life = Life(rest, SAMPLES["sparkoperator.k8s.io/sparkapplication"])
    life.create("low")
    eventually(lambda: life.runs("low"))
    driver = life.place.pod("driver", owner=life.get("low"))
    executor = life.place.pod("executor", owner={"apiVersion": "v1", "kind": "Pod", **driver})
    for pod in (driver, executor):
        assert QUEUE in pod["metadata"]["labels"]
        assert not gates(pod)
    assert gates(life.place.pod("alone"))
    assert not [*life.place.workloads_of(driver), *life.place.workloads_of(executor)]


def test_pods_of_a_deployment_are_queued_one_by_one(rest: Rest) -> None:
    place = Place(rest)
    pool = {"kueuelib.dev/pool": "spot"}
    place.queue(2, flavors={"spot": pool}, **place.preempting())
    path = f"/apis/apps/v1/namespaces/{place.ns}/deployments"

    def deploy(base: str, value: int, replicas: int) -> None:
        labels = {QUEUE: "q", PRIORITY: place.priority(value, base)}
        template = {"metadata": {"labels": {"app": base}}, "spec": pod_spec(restartPolicy="Always")}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": base}}}
        meta = {"name": base, "labels": labels}
        stored = rest.create(path, {"metadata": meta, "spec": {**spec, "template": template}})
        assert stored["spec"]["template"]["metadata"]["labels"] == {"app": base, **labels}

    def states(base: str) -> list[str]:
        pods = [pod for pod in rest.items(place.pods) if pod["metadata"]["labels"]["app"] == base]
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        assert all(gates(pod) or pod["spec"]["nodeSelector"] == pool for pod in alive)
        return sorted("waits" if gates(pod) else phase(pod) for pod in alive)

    deploy("low", 1, 3)
    eventually(lambda: states("low") == ["Running", "Running", "waits"])
    eventually(lambda: rest.get(f"{path}/low")["status"]["availableReplicas"] == 2)
    assert rest.get(f"{path}/low")["status"]["replicas"] == 3
    deploy("high", 2, 1)
    eventually(lambda: states("high") == ["Running"])
    eventually(lambda: states("low") == ["Running", "waits", "waits"])
    rest.merge(f"{path}/high/scale", {"spec": {"replicas": 0}})
    eventually(lambda: states("low") == ["Running", "Running", "waits"])
    rest.delete(f"{path}/low")
    eventually(lambda: rest.items(place.pods) == [])
    eventually(lambda: rest.items(place.workloads) == [])
