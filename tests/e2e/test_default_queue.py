"""A LocalQueue `default` takes the jobs of its namespace that name no queue, and no others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from place import GATES, QUEUE, Place, gates, shared_cluster
from real_plane import lacking, real_cluster
from rest import KUEUE, Obj, Rest, eventually

from kueuelib.testing.processes import LocalCluster

sys.path.insert(0, str(Path(__file__).parents[1] / "kinds"))

from samples import samples

HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGURATION = f"{HOOKS}/kueue-mutating-webhook-configuration"
JOB_SET = "jobset.x-k8s.io/jobset"
FRAMEWORKS = ("batch/job", "pod", "deployment", "statefulset", JOB_SET)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SETTINGS = (
    "managedJobsNamespaceSelector: {matchExpressions: [{key: left-out, operator: DoesNotExist}, "
    "{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}]}"
)
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"


@contextmanager
def on_a_real_plane(folder: Path) -> Iterator[tuple[LocalCluster, Rest]]:
    with real_cluster(folder, frameworks=FRAMEWORKS, settings=SETTINGS) as cluster:
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        with Rest(cluster.kubeconfig) as rest:
            yield cluster, rest


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[LocalCluster, Rest]]:
    with shared_cluster(folder, frameworks=FRAMEWORKS, settings=SETTINGS) as found:
        yield found


REAL = pytest.param(on_a_real_plane, marks=pytest.mark.skipif(bool(lacking()), reason=lacking()))


def queue_of(obj: Obj) -> str | None:
    return (obj["metadata"].get("labels") or {}).get(QUEUE)


def prepared(rest: Rest, labels: dict[str, str] | None = None) -> Place:
    place = Place(rest, labels=labels)
    eventually(lambda: rest.get(f"/api/v1/namespaces/{place.ns}/serviceaccounts/default"))
    return place


def sent(rest: Rest) -> set[str]:
    """The namespaces whose Jobs without a queue name are sent to the manager."""
    (entry,) = [
        each for each in rest.get(CONFIGURATION)["webhooks"] if each["name"] == "mjob-default.kb.io"
    ]
    expressions = entry["namespaceSelector"]["matchExpressions"]
    return {name for each in expressions for name in each.get("values") or ()}


def settled(rest: Rest, place: Place, *, wanted: bool) -> None:
    """The API server follows a changed configuration a little later."""
    eventually(lambda: (place.ns in sent(rest)) is wanted)
    time.sleep(2.0)


def deployment(place: Place, name: str, replicas: int = 0) -> Obj:
    pod = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
    return place.rest.create(
        DEPLOYMENTS.format(place.ns), {"metadata": {"name": name}, "spec": spec}
    )


def template_queue(obj: Obj) -> str | None:
    return queue_of(obj["spec"]["template"])


def changed(place: Place, name: str) -> Obj:
    """A Deployment after a change that has nothing to do with queues."""
    path = f"{DEPLOYMENTS.format(place.ns)}/{name}"
    return place.rest.merge(path, {"spec": {"minReadySeconds": 5}})


def declared_kinds_have_it_too(place: Place) -> None:
    sample = samples()[JOB_SET]
    resource = sample.resource
    path = f"/apis/{resource.api_version}/namespaces/{place.ns}/{resource.plural}"
    eventually(lambda: place.rest.items(path) == [])
    made = place.rest.create(path, sample.job(name="set"))
    assert (queue_of(made), made["spec"]["suspend"]) == ("default", True)
    with pytest.raises(httpx.HTTPStatusError, match="LocalQueue default"):
        place.rest.merge(
            f"{path}/set", {"metadata": {"labels": {QUEUE: None}}, "spec": {"suspend": True}}
        )
    eventually(lambda: not place.rest.get(f"{path}/set")["spec"].get("suspend"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("made", [embedded, REAL])
def test_jobs_without_a_queue_name_go_to_the_default_queue(made: Callable, tmp_path: Path) -> None:
    with made(tmp_path) as (cluster, rest):
        here, elsewhere = prepared(rest), prepared(rest)
        left_out = prepared(rest, {"left-out": "yes"})
        for crd in samples()[JOB_SET].crds:
            rest.create(CRDS, crd)
        before = here.job("before", None)
        assert queue_of(before) is None
        for replicas, name in enumerate(("idle", "ready")):
            assert queue_of(deployment(here, name, replicas)) is None
        path = f"{DEPLOYMENTS.format(here.ns)}/ready"
        eventually(lambda: rest.get(path)["status"].get("readyReplicas") == 1)
        here.queue(10, "default")
        left_out.queue(10, "default")
        settled(rest, here, wanted=True)

        assert queue_of(rest.get(f"{here.jobs}/before")) is None
        job = here.job("job", None)
        assert queue_of(job) == "default"
        assert job["spec"]["suspend"], "suspended before it was stored"
        eventually(lambda: not rest.get(f"{here.jobs}/job")["spec"].get("suspend"))
        pod = here.pod("pod", None)
        assert (queue_of(pod), gates(pod)) == ("default", GATES)
        made_by_job = here.pod(
            "child", None, owner={**job, "apiVersion": "batch/v1", "kind": "Job"}
        )
        assert (queue_of(made_by_job), gates(made_by_job)) == (None, [])
        served = deployment(here, "web")
        assert queue_of(served) == template_queue(served) == "default"
        idle = changed(here, "idle")
        assert queue_of(idle) == template_queue(idle) == "default"
        assert queue_of(changed(here, "ready")) is None
        declared_kinds_have_it_too(here)
        assert queue_of(here.job("own", "other")) == "other"
        for place in (elsewhere, left_out):
            plain = place.job("plain", None)
            assert (queue_of(plain), plain["spec"].get("suspend", False)) == (None, False)
            assert gates(place.pod("plain-pod", None)) == []

        cluster.processes.kill("manager")
        for place in (elsewhere, left_out):
            assert queue_of(place.job("away", None)) is None
            place.pod("pod-away", None)
        rest.merge(path, {"spec": {"minReadySeconds": 7}})
        with pytest.raises(httpx.HTTPStatusError, match="mjob-default"):
            here.job("away", None)
        rest.delete(f"{KUEUE}/namespaces/{here.ns}/localqueues/default")
        cluster.start_manager()
        cluster.wait_for_manager()
        settled(rest, here, wanted=False)
        assert queue_of(here.job("after", None)) is None
