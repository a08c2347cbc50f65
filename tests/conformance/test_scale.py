"""The subresource scale of the kinds that the server brings."""

from __future__ import annotations

import pytest

APPS = "/apis/apps/v1/namespaces/default"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TEMPLATE = {
    "metadata": {"labels": {"a": "b", "b": "c"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
EXPRESSIONS = [
    {"key": "z", "operator": "DoesNotExist"},
    {"key": "a", "operator": "In", "values": ["c", "b"]},
    {"key": "a", "operator": "Exists"},
    {"key": "q", "operator": "NotIn", "values": ["y", "x"]},
]
SELECTOR = {"matchLabels": {"b": "c", "a": "b"}, "matchExpressions": EXPRESSIONS}
KINDS = {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


@pytest.fixture(params=KINDS)
async def path(request, api):
    spec = {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}
    if request.param == "StatefulSet":
        spec["serviceName"] = "s"
    found = f"{APPS}/{KINDS[request.param]}"
    assert (await api.post(found, {"metadata": {"name": "s"}, "spec": spec})).status == 201
    return f"{found}/s/scale"


async def test_a_scale_tells_the_selector(api, path):
    found = (await api.get(path)).body
    assert found["status"] == {
        "replicas": 0,
        "selector": "a=b,a in (b,c),a,b=c,q notin (x,y),!z",
    }


async def test_a_plain_selector_is_told_too(api):
    path = "/api/v1/namespaces/default/replicationcontrollers"
    spec = {"selector": {"b": "c", "a": "b"}, "template": TEMPLATE}
    made = await api.post(path, {"metadata": {"name": "s"}, "spec": spec})
    assert made.status == 201
    found = (await api.get(f"{path}/s/scale")).body
    assert found["status"]["selector"] == "a=b,b=c"


@pytest.mark.parametrize("type_", ["application/merge-patch+json", STRATEGIC])
async def test_a_scale_is_patched(api, path, type_):
    found = await api.patch(path, {"spec": {"replicas": 3}}, type_)
    assert (found.status, found.body["kind"], found.body["spec"]) == (200, "Scale", {"replicas": 3})
    assert (await api.get(path.removesuffix("/scale"))).body["spec"]["replicas"] == 3


async def test_a_scale_is_applied_by_its_owner(api, path):
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 4}}
    refused = await api.patch(path, scale, APPLY, params={"fieldManager": "x"})
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (
        409,
        ".spec.replicas",
    )
    forced = await api.patch(path, scale, APPLY, params={"fieldManager": "x", "force": "true"})
    assert (forced.status, forced.body["spec"]) == (200, {"replicas": 4})


async def test_a_scale_without_a_number_is_zero(api, path):
    found = await api.put(path, {"metadata": {"name": "s"}, "spec": {}})
    assert (found.status, found.body["spec"]) == (200, {})


async def test_a_scale_is_not_negative(api, path):
    found = await api.put(path, {"metadata": {"name": "s"}, "spec": {"replicas": -1}})
    assert found.status == 422
    (cause,) = found.body["details"]["causes"]
    assert (cause["field"], cause["message"]) == (
        "spec.replicas",
        "Invalid value: -1: must be greater than or equal to 0",
    )


async def test_a_patch_of_a_scale_has_a_known_type(api, path):
    found = await api.call("PATCH", path, "{}", headers={"Content-Type": "text/plain"})
    assert (found.status, found.body["message"]) == (415, "415: Unsupported Media Type")


@pytest.mark.parametrize("type_", ["application/merge-patch+json", STRATEGIC])
async def test_a_scale_stores_32_bits(api, path, type_):
    """This server refuses more; kube-apiserver drops the upper bits in a strategic merge."""
    await api.patch(path, {"spec": {"replicas": 99999999999}}, type_)
    assert "99999999999" not in str((await api.get(path)).body)
