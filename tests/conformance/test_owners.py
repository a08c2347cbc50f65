"""Owners of fields that clients write themselves, and the way from client-side to server-side."""

from __future__ import annotations

import json

import pytest

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
PORTS_TWICE = (
    '.spec.containers[name="a"].ports: duplicate entries for key [containerPort=1,protocol="TCP"]'
)
LAST = "kubectl.kubernetes.io/last-applied-configuration"


def config(last=None, **data):
    """A ConfigMap; with `last`, as the client leaves it that has applied this before."""
    meta = {"name": "a"}
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    if last is None:
        return found
    text = json.dumps({**found, "data": last})
    return {**found, "metadata": {**meta, "annotations": {LAST: text}}}


def entry(manager, *fields, operation="Update", **more):
    owned = {"f:data": {f"f:{name}": {} for name in fields}}
    found = {"manager": manager, "operation": operation, "apiVersion": "v1"}
    return {**found, "fieldsType": "FieldsV1", "fieldsV1": owned, **more}


def owners(answer):
    entries = answer.body["metadata"].get("managedFields") or []
    return {(e.get("manager"), e["operation"]): sorted(_names(e["fieldsV1"])) for e in entries}


def _names(fields):
    return [name.removeprefix("f:") for name in fields.get("f:data", {}) if name != "."]


async def apply(api, obj, manager="kubectl", **params):
    return await api.patch(f"{MAPS}/a", obj, APPLY, params={"fieldManager": manager, **params})


async def before(api, obj, manager="kubectl-client-side-apply"):
    made = await api.post(MAPS, obj, params={"fieldManager": manager})
    assert made.status == 201, made


async def test_what_was_applied_on_the_clients_side_is_no_conflict(api):
    await before(api, config(last={"x": "1"}, x="1"))
    assert (await apply(api, config(x="9"), "other")).status == 409
    changed = await apply(api, config(x="9"))
    assert (changed.status, changed.body["data"]) == (200, {"x": "9"})
    assert owners(changed)["kubectl", "Apply"] == ["x"]


async def test_what_somebody_changed_since_is_a_conflict(api):
    await before(api, config(last={"x": "1", "y": "1"}, x="1", y="1"))
    meddled = {"data": {"y": "5"}}
    await api.patch(f"{MAPS}/a", meddled, params={"fieldManager": "meddler"})
    refused = await apply(api, config(x="9", y="9"))
    assert refused.status == 409
    fields = [each["field"] for each in refused.body["details"]["causes"]]
    assert fields == [".data.y"]


async def test_what_the_annotation_does_not_tell_is_a_conflict(api):
    await before(api, config(last={"y": "1"}, x="1"))
    assert (await apply(api, config(x="9"))).status == 409


@pytest.mark.parametrize("text", ["", "{", "[]", '{"apiVersion":"v2","data":{"x":"1"}}'])
async def test_an_annotation_that_tells_nothing_helps_nobody(api, text):
    given = config(x="1")
    given["metadata"]["annotations"] = {LAST: text}
    await before(api, given)
    assert (await apply(api, config(x="9"))).status == 409


async def test_the_annotation_tells_of_the_apply_on_the_servers_side(api):
    await before(api, config(last={"x": "1"}, x="1"))
    given = config(x="<9>")
    changed = await apply(api, given)
    text = changed.body["metadata"]["annotations"][LAST]
    want = json.dumps(given, separators=(",", ":"), sort_keys=True)
    assert text == want.replace("<", "\\u003c").replace(">", "\\u003e") + "\n"
    other = await apply(api, config(z="1"), "other")
    assert other.body["metadata"]["annotations"][LAST] == text


async def test_without_the_annotation_none_is_made(api):
    await before(api, config(x="1"))
    changed = await apply(api, config(x="1"))
    assert "annotations" not in changed.body["metadata"]


async def test_owners_that_a_client_writes_are_the_owners(api):
    await before(api, config(x="1", y="1"))
    given = [entry("kubectl", "x", "y", operation="Apply")]
    changed = await api.patch(f"{MAPS}/a", {"metadata": {"managedFields": given}})
    assert (changed.status, owners(changed)) == (200, {("kubectl", "Apply"): ["x", "y"]})
    applied = await apply(api, config(x="1"))
    assert applied.body["data"] == {"x": "1"}


async def test_a_patch_of_operations_moves_the_owner(api):
    await before(api, config(x="1"))
    version = (await api.get(f"{MAPS}/a")).body["metadata"]["resourceVersion"]
    given = [entry("kubectl", "x", operation="Apply")]
    body = [
        {"op": "replace", "path": "/metadata/managedFields", "value": given},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]
    changed = await api.patch(f"{MAPS}/a", body, JSON_PATCH)
    assert (changed.status, owners(changed)) == (200, {("kubectl", "Apply"): ["x"]})
    assert (await api.patch(f"{MAPS}/a", body, JSON_PATCH)).status == 409


async def test_a_change_in_the_same_request_is_the_writers(api):
    await before(api, config(x="1", y="1"))
    given = {"data": {"x": "2"}, "metadata": {"managedFields": [entry("m", "x", "y")]}}
    changed = await api.patch(f"{MAPS}/a", given, params={"fieldManager": "writer"})
    assert owners(changed) == {("m", "Update"): ["y"], ("writer", "Update"): ["x"]}


async def test_through_a_subresource_owners_stay(api):
    container = {"name": "c", "image": "i"}
    meta = {"name": "p"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    made = (await api.post(PODS, pod, params={"fieldManager": "one"})).body
    given = {"metadata": {"managedFields": [entry("two", "x")]}, "status": {"message": "m"}}
    changed = await api.patch(f"{PODS}/p/status", given, params={"fieldManager": "three"})
    entries = changed.body["metadata"]["managedFields"]
    assert [each["manager"] for each in entries] == ["one", "three"]
    assert entries[0]["fieldsV1"] == made["metadata"]["managedFields"][0]["fieldsV1"]


@pytest.mark.parametrize("given", [[], [{}]])
async def test_forgotten_owners_stay_forgotten_until_an_apply(api, given):
    await before(api, config(x="1"))
    reset = {"metadata": {"managedFields": given}}
    assert owners(await api.patch(f"{MAPS}/a", reset)) == {}
    assert owners(await api.patch(f"{MAPS}/a", {"data": {"y": "1"}})) == {}
    applied = await apply(api, config(z="1"), "m")
    assert owners(applied) == {
        ("m", "Apply"): ["z"],
        ("before-first-apply", "Update"): ["x", "y"],
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "Foo"},
        {"fieldsType": "FieldsV2"},
        {"fieldsType": ""},
        {"apiVersion": ""},
        {"fieldsV1": {"y": {}}},
    ],
)
async def test_owners_that_cannot_be_read_change_nothing(api, wrong):
    await before(api, config(x="1"), "one")
    given = [entry("two", "x"), {**entry("three", "x"), **wrong}]
    changed = await api.patch(f"{MAPS}/a", {"metadata": {"managedFields": given}})
    assert (changed.status, owners(changed)) == (200, {("one", "Update"): ["x"]})


async def test_a_new_object_may_bring_owners_but_the_writer_has_what_it_writes(api):
    given = config(x="1")
    given["metadata"]["managedFields"] = [entry("m", "x")]
    made = await api.post(MAPS, given, params={"fieldManager": "writer"})
    assert owners(made) == {("writer", "Update"): ["x"]}


async def test_an_owner_without_a_name_and_one_with_a_long_one(api):
    await before(api, config(x="1"))
    nobody = {"metadata": {"managedFields": [entry("", "x")]}}
    changed = await api.patch(f"{MAPS}/a", nobody)
    assert "manager" not in changed.body["metadata"]["managedFields"][0]
    long = {"metadata": {"managedFields": [entry("n" * 129, "x")]}}
    refused = await api.patch(f"{MAPS}/a", long)
    assert refused.status == 422
    text = "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"
    assert text in refused.body["message"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "j"}]},
            '.spec.containers: duplicate entries for key [name="a"]',
        ),
        (
            {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 1}] * 2}]},
            PORTS_TWICE,
        ),
    ],
)
async def test_equal_items_cannot_be_applied(api, spec, text):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    found = await api.patch(f"{PODS}/p", pod, APPLY, params={"fieldManager": "m"})
    assert found.status == 500
    want = f"failed to create typed patch object (/p; /v1, Kind=Pod): {text}"
    assert found.body["message"] == want


async def test_an_item_without_a_name_is_invalid(api):
    spec = {"containers": [{"name": "a", "image": "i"}, {"image": "j"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    found = await api.patch(f"{PODS}/p", pod, APPLY, params={"fieldManager": "m"})
    assert found.status == 422
    assert "spec.containers[1].name: Required value" in found.body["message"]
