"""Jobs and Pods wait until others have removed their admission gates (KEP-6915)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from place import DOMAIN, PREBUILT, QUEUE, Place, container, name_of, phase
from real_plane import lacking, real_cluster
from rest import Obj, Rest, condition, eventually
from test_doctor_alive import embedded_cluster
from warm import kueuelib

GATES = f"{DOMAIN}/admission-gated-by"
A, B = "example.com/a", "example.com/b"
BOTH = {GATES: f"{A},{B}"}
REAL = pytest.param(
    real_cluster,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
    id="real",
)


@attrs.frozen
class World:
    """A cluster with a manager.

    Attributes:
        kubeconfig: of its administrator.
        rest: a client.
    """

    kubeconfig: Path
    rest: Rest


@pytest.fixture(scope="module", params=[pytest.param(embedded_cluster, id="embedded"), REAL])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    made = request.param(tmp_path_factory.mktemp("gates"))
    with made as cluster, Rest(cluster.kubeconfig) as rest:
        cluster.frameworks = ("batch/job", "pod", "deployment", "statefulset")
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        yield World(cluster.kubeconfig, rest)


@pytest.fixture
def place(world: World) -> Place:
    found = Place(world.rest)
    found.queue(8)
    return found


def is_gated(place: Place, owner: Obj, *gates: str) -> Obj:
    workload = place.when(owner, "QuotaReserved", "False", "AdmissionGated")
    message = f"Admission is gated by: {','.join(gates)}"
    eventually(lambda: condition(place.get(workload), "QuotaReserved")["message"] == message)
    assert place.get(workload)["metadata"]["annotations"][GATES] == ",".join(gates)
    return workload


def ungate(place: Place, obj: Obj, path: str = "") -> None:
    body: Obj = {"metadata": {"annotations": {GATES: None}}}
    place.rest.merge(path or place.path(obj), body)


def asked(kubeconfig: Path, *args: str) -> str:
    done = kueuelib(*args, "--kubeconfig", kubeconfig)
    return done.stdout


def test_a_job_waits_for_every_gate(place: Place, world: World) -> None:
    place.refused(lambda: place.job("bad", notes={GATES: "gate"}), GATES)
    job = place.job(notes=BOTH)
    workload = is_gated(place, job, A, B)
    place.event(workload, "AdmissionGated", A)
    where = ("-n", place.ns)
    text = asked(world.kubeconfig, "explain", f"job/{name_of(job)}", *where)
    assert f"admission-gated-by names {A}, {B}" in text
    assert "remove its gates" in text
    assert "gated" in asked(world.kubeconfig, "pending", *where)
    place.refused(lambda: place.annotate(job, **{GATES: f"{A},{B},example.com/c"}), GATES)
    place.annotate(job, **{GATES: B})
    is_gated(place, job, B)
    place.quiet(lambda: place.get(job)["spec"]["suspend"])
    ungate(place, job)
    place.runs(job)
    place.event(workload, "AdmissionGateCleared")
    place.refused(lambda: place.annotate(job, **BOTH), GATES)


def test_the_last_edit_counts_when_the_gate_is_removed_with_it(place: Place) -> None:
    job = place.job(notes=BOTH, cpu="2")
    is_gated(place, job, A, B)
    pod = {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
    body = {"metadata": {"annotations": {GATES: None}}, "spec": {"template": pod}}
    place.merge(job, body)
    workload = place.when(job, "QuotaReserved")
    spec = workload["spec"]["podSets"][0]["template"]["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert place.when(job, "Admitted")["metadata"]["uid"] == workload["metadata"]["uid"]


def test_pods_and_groups_wait_for_their_gates(place: Place) -> None:
    pod, members = place.pod(notes=BOTH), place.group(notes=BOTH)
    for each in (pod, members[0]):
        is_gated(place, each, A, B)
    ungate(place, pod)
    place.runs(pod)
    place.annotate(members[0], **{GATES: A})
    ungate(place, members[1])
    is_gated(place, members[0], A)
    place.quiet(lambda: phase(place.get(members[1])) == "Pending")
    ungate(place, members[0])
    place.runs(*members)


def test_a_prebuilt_workload_has_gates_of_its_own(place: Place) -> None:
    meta = {"name": "made", "annotations": BOTH}
    pod = place.job("plain", queue=None)["spec"]["template"]["spec"]
    pod_set = {"name": "main", "count": 1, "template": {"spec": pod}}
    obj = {"apiVersion": f"{DOMAIN}/v1beta2", "kind": "Workload", "metadata": meta}
    spec = {"queueName": "q", "podSets": [pod_set]}
    made = place.rest.create(place.workloads, {**obj, "spec": spec})
    place.refused(lambda: place.job("no", labels={PREBUILT: "made"}, notes=BOTH), GATES)
    job = place.job(labels={PREBUILT: "made"})
    is_gated(place, job, A, B)
    place.refused(lambda: place.annotate(made, **{GATES: "example.com/c"}), GATES)
    place.quiet(lambda: place.get(job)["spec"]["suspend"])
    ungate(place, made)
    place.runs(job)


def made_by(place: Place, plural: str) -> tuple[str, Obj]:
    """An object with gates that makes pods; its path."""
    path = f"/apis/apps/v1/namespaces/{place.ns}/{plural}"
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container()]}}
    spec: Obj = {"replicas": 2, "template": template, "selector": {"matchLabels": {"app": "x"}}}
    if plural == "statefulsets":
        spec["serviceName"] = "x"
    meta = {"name": "x", "labels": {QUEUE: "q"}, "annotations": {GATES: A}}
    return f"{path}/x", place.rest.create(path, {"metadata": meta, "spec": spec})


def reasons(place: Place) -> list[Any]:
    """Why each Workload of a namespace waits."""
    found = place.rest.items(place.workloads)
    return [condition(each, "QuotaReserved").get("reason") for each in found]


def runs_two_pods(place: Place) -> bool:
    pods = place.rest.items(place.pods)
    return [phase(each) for each in pods] == ["Running"] * 2


def test_a_stateful_set_gates_its_pods(place: Place) -> None:
    path, _ = made_by(place, "statefulsets")
    eventually(lambda: reasons(place) == ["AdmissionGated"])
    place.quiet(lambda: reasons(place) == ["AdmissionGated"])
    ungate(place, {}, path)
    eventually(lambda: runs_two_pods(place))


def test_a_deployment_gates_its_pods(place: Place) -> None:
    path, stored = made_by(place, "deployments")
    assert stored["spec"]["template"]["metadata"]["annotations"] == {GATES: A}
    eventually(lambda: reasons(place) == ["AdmissionGated"] * 2)
    place.quiet(lambda: reasons(place) == ["AdmissionGated"] * 2)
    ungate(place, {}, path)
    assert not place.rest.get(path)["spec"]["template"]["metadata"].get("annotations")
    eventually(lambda: runs_two_pods(place))
