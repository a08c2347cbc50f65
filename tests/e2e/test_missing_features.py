"""A request for a feature that is missing, or turned off: a warning, a reason, and the way on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from real_plane import lacking, real_cluster
from rest import (
    JOBS,
    KUEUE,
    WORKLOADS,
    Obj,
    Rest,
    condition,
    eventually,
    is_true,
    job,
    queues,
)
from test_doctor_alive import embedded_cluster
from warm import kueuelib

from kueuelib.testing.processes import LocalCluster

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
ELASTIC = "kueue.x-k8s.io/elastic-job"
TURNED_OFF = "topology-aware scheduling is turned off by the feature gate TopologyAwareScheduling"
NO_TOPOLOGY = f"{TURNED_OFF}, requested by topologyRequest.required"
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
        found.settings = "featureGates: {TopologyAwareScheduling: false}"
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
    assert f"it will wait: {NO_TOPOLOGY} of pod set main" in warning
    rest.create(JOBS, with_claims(job("gpu", seconds=600)))
    (warning,) = rest.warnings
    assert f"it will wait: {NO_QUOTA} resourceClaims[gpu] of pod set main" in warning
    elastic = job("elastic", seconds=600)
    elastic["metadata"]["annotations"] = {ELASTIC: "true"}
    rest.create(JOBS, elastic)
    (warning,) = rest.warnings
    assert f"requested by {ELASTIC} of the Job" in warning
    rest.create(JOBS, job("plain", seconds=600))
    assert rest.warnings == []
    eventually(lambda: not rest.get(f"{JOBS}/plain")["spec"]["suspend"])

    assert_waits(rest, "Job", "rack", "NoMatchingFlavor", f"{NO_TOPOLOGY} of pod set main")
    text = f"{NO_QUOTA} resourceClaims[gpu] of pod set main"
    assert_waits(rest, "Job", "gpu", "Misconfigured", text)
    assert_waits(rest, "Job", "elastic", "Misconfigured", "elastic-job of the Workload")

    options = ("--kubeconfig", cluster.kubeconfig, "-o", "json")
    items = json.loads(kueuelib("pending", *options).stdout)["items"]
    listed = {one["owner"]: one["why"] for one in items}
    assert listed == {
        "Job/rack": "topology-aware scheduling is turned off",
        "Job/gpu": "no quota for devices of resource claims (DRA) in this version",
        "Job/elastic": "no elastic jobs by workload slices in this version",
    }
    told = kueuelib("explain", "job/rack", "--kubeconfig", cluster.kubeconfig).stdout
    assert f"It waits: NoMatchingFlavor: {NO_TOPOLOGY}" in told
    assert "submit it without topologyRequest.required" in told

    rest.merge(f"{JOBS}/elastic", {"metadata": {"annotations": {ELASTIC: None}}})
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
    assert f"{NO_TOPOLOGY} of pod set main" in warning
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
    assert f"{NO_TOPOLOGY} of pod set template" in warning


def test_a_parent_asks_for_its_pods(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    template = job("any", seconds=600)["spec"]["template"]
    template["spec"]["restartPolicy"] = "Always"
    template["metadata"]["labels"] = {"app": "a"}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    meta = {"name": "served", "labels": labels, "annotations": {ELASTIC: "true"}}
    spec = {
        "serviceName": "served",
        "selector": {"matchLabels": {"app": "a"}},
        "template": template,
        "replicas": 2,
    }
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}
    rest.create(STATEFUL_SETS, made)
    (warning,) = rest.warnings
    assert f"requested by {ELASTIC} of the StatefulSet, {ELASTIC} of pod set" in warning
    assert_waits(rest, "StatefulSet", "served", "Misconfigured", ELASTIC)


def test_a_job_of_another_cluster_waits(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    made = job("away", seconds=600)
    made["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    rest.create(JOBS, made)
    (warning,) = rest.warnings
    text = "this version has no dispatch to other clusters (MultiKueue), requested by managedBy of"
    assert f"it will wait: {text} the Job" in warning
    assert_waits(rest, "Job", "away", "Misconfigured", f"{text} the Workload")


FLAVORS, CLUSTER_QUEUES = f"{KUEUE}/resourceflavors", f"{KUEUE}/clusterqueues"
PLACED = {
    "levels": ["example.com/rack", "kubernetes.io/hostname"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "r1"},
                {"individual": {"prefix": "node-", "roots": ["1", "2"]}},
            ],
            "podCounts": {"individual": [1, 2]},
        }
    ],
}
DOMAINS = [{"values": ["r1", f"node-{number}"], "count": number} for number in (1, 2)]


def workload(name: str, **pod_set: Obj) -> Obj:
    template = job("any", seconds=600)["spec"]["template"]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {
            "queueName": "team",
            "podSets": [{"name": "main", "count": 3, "template": template, **pod_set}],
        },
    }


def test_a_workload_asks_by_its_topology_request(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    asked = {"required": "example.com/rack", "podIndexLabel": "index"}
    made = workload("rack", topologyRequest=asked)
    kept = rest.create(f"{WORKLOADS}?fieldValidation=Strict", made)
    assert kept["spec"]["podSets"][0]["topologyRequest"] == asked
    (warning,) = rest.warnings
    text = f"{NO_TOPOLOGY} of pod set main"
    assert f"it will wait: {text}" in warning

    def waits() -> bool:
        reserved = condition(rest.get(f"{WORKLOADS}/rack"), "QuotaReserved")
        return (reserved["reason"], reserved["message"]) == ("NoMatchingFlavor", text)

    eventually(waits)
    options = ("--kubeconfig", cluster.kubeconfig)
    told = kueuelib("explain", "workload/rack", *options).stdout
    assert f"It waits: NoMatchingFlavor: {text}" in told
    rest.create(WORKLOADS, workload("ranks", topologyRequest={"podIndexLabel": "index"}))
    assert rest.warnings == []
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/ranks"), "QuotaReserved"))


def test_quota_alone_decides_in_a_flavor_with_a_topology(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    labels = {"nodeLabels": {"example.com/pool": "a"}}
    made = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "racks"},
        "spec": {"topologyName": "default", **labels},
    }
    rest.create(f"{FLAVORS}?fieldValidation=Strict", made)
    (warning,) = rest.warnings
    assert "requested by spec.topologyName of the ResourceFlavor" in warning
    assert rest.get(f"{FLAVORS}/racks")["spec"] == made["spec"]
    old = FLAVORS.replace("v1beta2", "v1beta1")
    assert rest.get(f"{old}/racks")["spec"] == made["spec"]
    with pytest.raises(httpx.HTTPStatusError, match="immutable once it is set"):
        rest.merge(f"{FLAVORS}/racks", {"spec": {"topologyName": "other"}})

    (queue,) = rest.items(CLUSTER_QUEUES)
    group = queue["spec"]["resourceGroups"][0]
    group["flavors"].append({**group["flavors"][0], "name": "racks"})
    rest.replace(f"{CLUSTER_QUEUES}/{queue['metadata']['name']}", queue)
    rest.create(JOBS, job("plain", seconds=600))
    eventually(lambda: not rest.get(f"{JOBS}/plain")["spec"]["suspend"])
    told = kueuelib("explain", "job/plain", "--kubeconfig", cluster.kubeconfig).stdout
    assert f"ResourceFlavor racks: spec.topologyName has no effect: {TURNED_OFF}" in told
    found = kueuelib("doctor", "--kubeconfig", cluster.kubeconfig).stdout
    assert "warning: ResourceFlavor racks (flavor-topology)" in found


def test_what_another_manager_has_placed_keeps_its_places(
    cluster: LocalCluster, rest: Rest
) -> None:
    """As if it was stored before a takeover, and then written in both versions."""
    queues(rest, cpu=3)
    rest.create(WORKLOADS, workload("placed", topologyRequest={"required": "example.com/rack"}))
    (queue,) = rest.items(CLUSTER_QUEUES)
    flavor = queue["spec"]["resourceGroups"][0]["flavors"][0]["name"]
    now = "2026-01-01T00:00:00Z"
    held = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    assignment = {
        "name": "main",
        "count": 3,
        "flavors": {"cpu": flavor},
        "resourceUsage": {"cpu": "3"},
        "topologyAssignment": PLACED,
        "delayedTopologyRequest": "Ready",
    }
    status = {
        "conditions": [{**held, "lastTransitionTime": now}],
        "admission": {
            "clusterQueue": queue["metadata"]["name"],
            "podSetAssignments": [assignment],
        },
        "unhealthyNodes": [{"name": "node-1"}],
    }
    rest.merge(f"{WORKLOADS}/placed/status", {"status": status})
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/placed"), "Admitted"))
    old = WORKLOADS.replace("v1beta2", "v1beta1")
    seen = rest.get(f"{old}/placed")
    (place,) = seen["status"]["admission"]["podSetAssignments"]
    assert place["topologyAssignment"] == {"levels": PLACED["levels"], "domains": DOMAINS}
    seen["metadata"]["labels"] = {"seen": "true"}
    rest.replace(f"{old}/placed", seen)
    stored = rest.get(f"{WORKLOADS}/placed")
    assert stored["metadata"]["labels"]["seen"] == "true"
    assert stored["status"]["admission"]["podSetAssignments"] == [assignment]
    assert stored["status"]["unhealthyNodes"] == [{"name": "node-1"}]
    asked = stored["spec"]["podSets"][0]["topologyRequest"]
    assert asked == {"required": "example.com/rack"}
    found = kueuelib("doctor", "--kubeconfig", cluster.kubeconfig).stdout
    assert "it holds quota, without what it asks for" in found


def test_a_job_with_a_prebuilt_workload_waits_too(cluster: LocalCluster, rest: Rest) -> None:
    queues(rest, cpu=3)
    made = workload("made", count=1)
    del made["spec"]["podSets"][0]["template"]["metadata"]
    rest.create(WORKLOADS, made)
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/made"), "Admitted"))
    elastic = job("elastic", seconds=600)
    elastic["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = "made"
    elastic["metadata"]["annotations"] = {ELASTIC: "true"}
    rest.create(JOBS, elastic)
    assert f"requested by {ELASTIC} of the Job" in rest.warnings[0]
    assert_waits(rest, "Job", "elastic", "Misconfigured", "elastic-job of the Workload")
    assert rest.get(f"{JOBS}/elastic")["spec"]["suspend"]
    keys = {"annotations": {"kueue.x-k8s.io/elastic-job": None}}
    rest.merge(f"{JOBS}/elastic", {"metadata": keys})
    rest.merge(f"{WORKLOADS}/made", {"metadata": keys})
    eventually(lambda: not rest.get(f"{JOBS}/elastic")["spec"]["suspend"])


def test_what_runs_without_what_it_asks_for_is_told(cluster: LocalCluster, rest: Rest) -> None:
    """As if another manager had started it."""
    queues(rest, cpu=3)
    rest.create(JOBS, job("elastic", seconds=600))
    eventually(lambda: not rest.get(f"{JOBS}/elastic")["spec"]["suspend"])
    notes = {ELASTIC: "true"}
    rest.merge(f"{JOBS}/elastic", {"metadata": {"annotations": notes}})

    def told() -> bool:
        found = kueuelib("doctor", "--kubeconfig", cluster.kubeconfig).stdout
        assert "it holds quota, without what it asks for" in found, found
        return "requested by kueue.x-k8s.io/elastic-job of the Workload" in found

    eventually(told, pause=1)
    assert not rest.get(f"{JOBS}/elastic")["spec"]["suspend"]
