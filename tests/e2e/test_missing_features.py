"""A request for a feature that is missing: a warning, a reason, and the way on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_plane import lacking, real_cluster
from rest import JOBS, WORKLOADS, Obj, Rest, condition, eventually, job, queues
from test_doctor_alive import embedded_cluster
from warm import kueuelib

from kueuelib.testing.processes import LocalCluster

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
NO_TOPOLOGY = "this version has no topology-aware scheduling, requested by"
NO_QUOTA = "this version has no quota for devices of resource claims (DRA), requested by"


REAL = pytest.param(
    real_cluster,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
    id="real",
)


@pytest.fixture(params=[pytest.param(embedded_cluster, id="embedded"), REAL])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    with request.param(tmp_path) as found:
        found.frameworks = ("batch/job", "pod", "deployment", "statefulset")
        found.install()
        found.start_manager()
        found.wait_for_manager()
        yield found


def in_rack(made: Obj) -> Obj:
    """The object with a request in its pod template."""
    made["spec"]["template"]["metadata"]["annotations"][TOPOLOGY] = "rack"
    return made


def with_claims(made: Obj) -> Obj:
    """The Job with devices of a template that does not exist."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "missing"}]
    made["spec"]["template"]["spec"]["resourceClaims"] = claims
    return made


def assert_waits(rest: Rest, kind: str, name: str, reason: str, text: str) -> None:
    """The Workload of an object says soon that it waits, and why."""

    def found() -> bool:
        owned = [
            one
            for one in rest.items(WORKLOADS)
            for ref in one["metadata"]["ownerReferences"]
            if (ref["kind"], ref["name"]) == (kind, name)
        ]
        assert len(owned) == 1
        reserved = condition(owned[0], "QuotaReserved")
        assert (reserved["reason"], text in reserved["message"]) == (reason, True), reserved
        return True

    eventually(found)


def test_a_request_is_warned_about_waits_and_holds_nobody_else_up(
    cluster: LocalCluster, rest: Rest
) -> None:
    queues(rest, cpu=3)
    rest.create(JOBS, in_rack(job("rack", seconds=600)))
    (warning,) = rest.warnings
    assert f"it will wait: {NO_TOPOLOGY} {TOPOLOGY} of pod set main" in warning
    rest.create(JOBS, with_claims(job("gpu", seconds=600)))
    (warning,) = rest.warnings
    assert f"it will wait: {NO_QUOTA} resourceClaims[gpu] of pod set main" in warning
    elastic = job("elastic", seconds=600)
    elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    rest.create(JOBS, elastic)
    (warning,) = rest.warnings
    assert "requested by kueue.x-k8s.io/elastic-job of the Job" in warning
    rest.create(JOBS, job("plain", seconds=600))
    assert rest.warnings == []
    eventually(lambda: not rest.get(f"{JOBS}/plain")["spec"]["suspend"])

    assert_waits(
        rest, "Job", "rack", "NoMatchingFlavor", f"{NO_TOPOLOGY} {TOPOLOGY} of pod set main"
    )
    text = f"{NO_QUOTA} resourceClaims[gpu] of pod set main"
    assert_waits(rest, "Job", "gpu", "Misconfigured", text)
    assert_waits(rest, "Job", "elastic", "Misconfigured", "elastic-job of the Workload")

    options = ("--kubeconfig", cluster.kubeconfig, "-o", "json")
    items = json.loads(kueuelib("pending", *options).stdout)["items"]
    listed = {one["owner"]: one["why"] for one in items}
    assert listed == {
        "Job/rack": "no topology-aware scheduling in this version",
        "Job/gpu": "no quota for devices of resource claims (DRA) in this version",
        "Job/elastic": "no elastic jobs by workload slices in this version",
    }
    told = kueuelib("explain", "job/rack", "--kubeconfig", cluster.kubeconfig).stdout
    assert f"It waits: NoMatchingFlavor: {NO_TOPOLOGY}" in told
    assert f"submit it without {TOPOLOGY}" in told

    rest.merge(
        f"{JOBS}/elastic", {"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": None}}}
    )
    eventually(lambda: not rest.get(f"{JOBS}/elastic")["spec"]["suspend"])
    template = {"metadata": {"annotations": {TOPOLOGY: None}}}
    rest.merge(f"{JOBS}/rack", {"spec": {"template": template}})
    eventually(lambda: not rest.get(f"{JOBS}/rack")["spec"]["suspend"])
    assert rest.get(f"{JOBS}/gpu")["spec"]["suspend"]


def test_pods_ask_as_well(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    template = in_rack(job("any", seconds=600))["spec"]["template"]
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    meta = {"name": "rack", "labels": labels, "annotations": template["metadata"]["annotations"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
    rest.create(PODS, pod)
    (warning,) = rest.warnings
    assert f"{NO_TOPOLOGY} {TOPOLOGY} of pod set main" in warning
    assert_waits(rest, "Pod", "rack", "NoMatchingFlavor", NO_TOPOLOGY)

    template = {**template, "spec": {**template["spec"], "restartPolicy": "Always"}}
    template["metadata"]["labels"] = {"app": "a"}
    rest.create(
        DEPLOYMENTS,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "served", "labels": labels},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
        },
    )
    (warning,) = rest.warnings
    assert f"{NO_TOPOLOGY} {TOPOLOGY} of pod set template" in warning


def test_a_parent_asks_for_its_pods(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    template = job("any", seconds=600)["spec"]["template"]
    template["spec"]["restartPolicy"] = "Always"
    template["metadata"]["labels"] = {"app": "a"}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    meta = {"name": "served", "labels": labels, "annotations": {TOPOLOGY: "rack"}}
    spec = {
        "serviceName": "served",
        "selector": {"matchLabels": {"app": "a"}},
        "template": template,
        "replicas": 2,
    }
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}
    rest.create(STATEFUL_SETS, made)
    (warning,) = rest.warnings
    assert f"{NO_TOPOLOGY} {TOPOLOGY} of the StatefulSet, {TOPOLOGY} of pod set" in warning
    assert_waits(rest, "StatefulSet", "served", "NoMatchingFlavor", NO_TOPOLOGY)


def test_a_job_of_another_cluster_waits(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    made = job("away", seconds=600)
    made["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    rest.create(JOBS, made)
    (warning,) = rest.warnings
    text = "this version has no dispatch to other clusters (MultiKueue), requested by managedBy of"
    assert f"it will wait: {text} the Job" in warning
    assert_waits(rest, "Job", "away", "Misconfigured", f"{text} the Workload")
