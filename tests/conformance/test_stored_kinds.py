"""Kinds that are only stored, and what every cluster has."""

from __future__ import annotations

import json

import pytest
from tests.conformance.fuzz.making import SAMPLES, TABLE, Episode

CONTAINER = {"name": "c", "image": "i"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
SELECTOR = {"matchLabels": {"a": "b"}}
ONCE = {"accessModes": ["ReadWriteOnce"]}
CORE, SPACE = "/api/v1/namespaces/default", "namespaces/default"
APPS = f"/apis/apps/v1/{SPACE}"
CRON = {
    "schedule": "@daily",
    "jobTemplate": {"spec": {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}},
}
HOST_PATH = {"hostPath": {"path": "/x"}, "capacity": {"storage": "1Gi"}, **ONCE}
CLAIM = {"resources": {"requests": {"storage": "1Gi"}}, **ONCE}
STATEFUL = {"selector": SELECTOR, "template": TEMPLATE, "serviceName": "s"}
SET = {"selector": SELECTOR, "template": TEMPLATE}
GOOD = [
    (f"{APPS}/daemonsets", SET, ("updateStrategy", "type"), "RollingUpdate"),
    (f"{APPS}/replicasets", SET, ("replicas",), 1),
    (f"{APPS}/statefulsets", STATEFUL, ("podManagementPolicy",), "OrderedReady"),
    (f"{CORE}/replicationcontrollers", {"template": TEMPLATE}, ("selector", "a"), "b"),
    (f"/apis/batch/v1/{SPACE}/cronjobs", CRON, ("concurrencyPolicy",), "Allow"),
    ("/api/v1/persistentvolumes", HOST_PATH, ("persistentVolumeReclaimPolicy",), "Retain"),
    (f"{CORE}/persistentvolumeclaims", CLAIM, ("volumeMode",), "Filesystem"),
]


@pytest.mark.parametrize(("path", "spec", "way", "value"), GOOD)
async def test_a_stored_kind_has_defaults_and_a_life(api, path, spec, way, value):
    made = await api.post(path, {"metadata": {"name": "stored"}, "spec": spec})
    assert made.status == 201, made
    found = made.body["spec"]
    for step in way:
        found = found[step]
    assert found == value
    labelled = await api.patch(f"{path}/stored", {"metadata": {"labels": {"x": "y"}}})
    assert labelled.status == 200
    listed = await api.get(path, params={"labelSelector": "x=y"})
    assert [each["metadata"]["name"] for each in listed.body["items"]] == ["stored"]
    assert (await api.delete(f"{path}/stored", {"propagationPolicy": "Background"})).status == 200


@pytest.mark.parametrize("plural", [each for each in SAMPLES if each != "widgets"])
async def test_every_kind_lives_from_its_creation_to_its_deletion(api, plural):
    path = Episode(None, "default", plural).collection
    text = json.dumps(SAMPLES[plural]["samples"][0])
    sample = json.loads(text.replace("{name}", "sample").replace("{namespace}", "default"))
    made = await api.post(path, sample)
    assert made.status == 201, made
    found = await api.patch(f"{path}/sample", {"metadata": {"labels": {"of": "sample"}}})
    assert (found.status, found.body["metadata"]["name"]) == (200, "sample"), found
    table = await api.get(path, params={"labelSelector": "of=sample"}, headers={"Accept": TABLE})
    (row,) = table.body["rows"]
    assert len(row["cells"]) == len(table.body["columnDefinitions"])
    assert row["object"]["metadata"]["name"] == "sample"
    assert (await api.delete(f"{path}/sample")).status in (200, 202)


@pytest.mark.parametrize(
    ("path", "spec", "field"),
    [
        (f"{APPS}/daemonsets", {"template": TEMPLATE}, "spec.template.metadata.labels"),
        (f"{APPS}/replicasets", {"template": TEMPLATE}, "spec.selector"),
        (
            f"{APPS}/replicasets",
            {"selector": {"matchLabels": {"a": "c"}}, "template": TEMPLATE},
            "spec.template.metadata.labels",
        ),
        (f"{APPS}/statefulsets", {**STATEFUL, "replicas": -1}, "spec.replicas"),
        (f"/apis/batch/v1/{SPACE}/cronjobs", {**CRON, "schedule": ""}, "spec.schedule"),
        (f"{CORE}/persistentvolumeclaims", {"resources": CLAIM["resources"]}, "spec.accessModes"),
        (f"/apis/networking.k8s.io/v1/{SPACE}/ingresses", {}, "spec"),
    ],
)
async def test_a_stored_kind_has_rules(api, path, spec, field):
    found = await api.post(path, {"metadata": {"name": "stored"}, "spec": spec})
    assert found.status == 422, found
    assert field in [each["field"] for each in found.body["details"]["causes"]]


async def test_endpoints_are_deprecated(api):
    subset = {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}
    made = await api.post(f"{CORE}/endpoints", {"metadata": {"name": "e"}, "subsets": [subset]})
    assert made.status == 201
    assert "v1 Endpoints is deprecated in v1.33+" in made.headers["warning"]


async def test_an_endpoint_slice_has_a_type_of_address(api):
    path = f"/apis/discovery.k8s.io/v1/{SPACE}/endpointslices"
    body = {"metadata": {"name": "e"}, "endpoints": [{"addresses": ["10.0.0.1"]}]}
    assert (await api.post(path, body)).status == 422
    made = await api.post(path, {**body, "addressType": "IPv4"})
    assert made.status == 201, made


async def test_the_server_is_a_service(api):
    found = (await api.get(f"{CORE}/services/kubernetes")).body
    assert found["spec"]["clusterIP"] == "10.96.0.1"
    assert [each["port"] for each in found["spec"]["ports"]] == [443]
    assert found["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}


async def test_a_quota_has_its_columns(api):
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    found = (await api.get(f"{CORE}/resourcequotas", headers=headers)).body
    names = [each["name"] for each in found["columnDefinitions"]]
    assert sorted(names) == ["Age", "Limit", "Name", "Request"]


async def test_a_limit_range_tells_what_it_has_set(api):
    await api.post("/api/v1/namespaces", {"metadata": {"name": "limited"}})
    base = "/api/v1/namespaces/limited"
    limit = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}
    await api.post(f"{base}/serviceaccounts", {"metadata": {"name": "default"}})
    await api.post(f"{base}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    spec = {"containers": [CONTAINER], "initContainers": [{"name": "i", "image": "i"}]}
    made = await api.post(f"{base}/pods", {"metadata": {"name": "p"}, "spec": spec})
    assert made.status == 201, made
    assert made.body["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c; "
        "cpu request for init container i; cpu limit for init container i"
    )


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (
            "/api/v1/namespaces/kube-public",
            {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}},
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
            {"f:description": {}, "f:preemptionPolicy": {}, "f:value": {}},
        ),
    ],
)
async def test_what_the_server_makes_is_managed_by_it(api, path, fields):
    (entry,) = (await api.get(path)).body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kube-apiserver", "Update")
    assert entry["fieldsV1"] == fields
