"""Verbs, paths and parameters that are served rarely, or not at all."""

from __future__ import annotations

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
NAMESPACES = "/api/v1/namespaces"
PARTIAL = "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadata"
JSON_PATCH = "application/json-patch+json"


def named(name="a", **meta):
    return {"metadata": {"name": name, **meta}, "data": {"x": "1"}}


async def test_namespaces_are_not_deleted_all_at_once(api):
    await api.post(NAMESPACES, {"metadata": {"name": "kept"}})
    found = await api.delete(NAMESPACES)
    assert (found.status, found.body["reason"]) == (405, "MethodNotAllowed")
    assert (await api.get(f"{NAMESPACES}/kept")).body["status"] == {"phase": "Active"}
    listed = (await api.get("/api/v1")).body["resources"]
    verbs = {each["name"]: each["verbs"] for each in listed}
    assert verbs["namespaces"] == ["create", "delete", "get", "list", "patch", "update", "watch"]
    assert "deletecollection" in verbs["nodes"]


@pytest.mark.parametrize(
    "path",
    [
        f"{MAPS}/a/odd",
        "/api/v1/odds",
        "/apis/batch/v1/odds",
        "/apis/batch/v9",
        "/apis/batch/v1/namespaces/default/jobs/x/odd",
        "/api/v1/watch/odds",
    ],
)
async def test_a_failure_without_an_object_has_empty_details(api, path):
    found = await api.get(path)
    assert (found.status, found.body["details"]) == (404, {})


async def test_a_version_of_zero_insists_on_nothing(api):
    await api.post(MAPS, named())
    replaced = await api.put(f"{MAPS}/a", {**named(resourceVersion="0"), "data": {"x": "2"}})
    assert (replaced.status, replaced.body["data"]) == (200, {"x": "2"})
    long = await api.put(f"{MAPS}/a", named(resourceVersion="9" * 23))
    assert long.status == 500
    assert long.body["message"].endswith(f'parsing "{"9" * 23}": value out of range')


async def test_the_name_is_looked_at_before_the_object(api):
    other = await api.put(f"{MAPS}/nope", named("other"))
    assert other.status == 400
    assert "does not match the name on the URL" in other.body["message"]
    elsewhere = await api.put(f"{MAPS}/nope", named("nope", namespace="other"))
    assert elsewhere.status == 400
    assert "does not match the namespace sent on the request" in elsewhere.body["message"]
    assert (await api.put(f"{MAPS}/nope", named("nope"))).status == 404


@pytest.mark.parametrize(
    ("params", "fields"),
    [
        ({"sendInitialEvents": "true"}, ["sendInitialEvents"]),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
            ["resourceVersionMatch", "sendInitialEvents"],
        ),
        ({"resourceVersionMatch": "odd", "resourceVersion": "1"}, ["resourceVersionMatch"]),
        ({"resourceVersionMatch": "Exact"}, ["resourceVersionMatch"]),
    ],
)
async def test_a_list_has_no_use_for_some_parameters(api, params, fields):
    found = await api.get(MAPS, params=params)
    assert found.status == 422
    assert [each["field"] for each in found.body["details"]["causes"]] == fields


@pytest.mark.parametrize("name", ["timeoutSeconds", "limit"])
async def test_a_parameter_that_is_no_number_is_told(api, name):
    found = await api.get(MAPS, params={name: "abc"})
    assert found.status == 400
    assert found.body["message"] == 'strconv.ParseInt: parsing "abc": invalid syntax'


async def test_a_field_manager_is_printable(api):
    found = await api.post(f"{MAPS}?fieldManager=a%00", named())
    assert found.status == 422
    (cause,) = found.body["details"]["causes"]
    assert cause["field"] == "fieldManager"
    assert cause["message"].endswith("invalid character U+0000 (at position 1)")


async def test_only_an_apply_is_forced(api):
    await api.post(MAPS, named())
    found = await api.patch(f"{MAPS}/a?force=true", {"data": {"x": "2"}})
    assert found.status == 422
    assert "force: Forbidden: may not be specified for non-apply patch" in found.body["message"]


async def test_the_view_of_one_object_does_not_fit_a_list(api):
    await api.post(MAPS, named())
    found = await api.get(MAPS, headers={"Accept": PARTIAL})
    assert (found.status, found.body["message"]) == (
        406,
        (
            "you requested PartialObjectMetadata, but the requested object is a list "
            "(*core.ConfigMapList)"
        ),
    )
    single = await api.get(f"{MAPS}/a", headers={"Accept": f"{PARTIAL}List"})
    assert (single.status, single.body["reason"]) == (406, "NotAcceptable")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/watch/namespaces/default/configmaps", ["a", "b"]),
        ("/api/v1/watch/namespaces/default/configmaps/b", ["b"]),
    ],
)
async def test_old_paths_of_watches_are_served(api, path, names):
    for name in ("a", "b"):
        await api.post(MAPS, named(name))
    events = await api.watch(path, len(names))
    assert [each["object"]["metadata"]["name"] for each in events] == names


async def test_one_object_is_not_watched_by_its_own_path(api):
    await api.post(MAPS, named())
    found = await api.get(f"{MAPS}/a", params={"watch": "true", "timeoutSeconds": "1"})
    assert (found.status, found.body["kind"]) == (200, "ConfigMap")


async def test_an_old_watch_path_takes_no_writes(api):
    found = await api.post("/api/v1/watch/namespaces/default/configmaps", named())
    assert found.status == 405


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_health_is_told_part_by_part(api, path):
    found = await api.get(path, params={"verbose": ""})
    assert found.text.startswith("[+]ping ok\n[+]log ok\n")
    assert f"{path[1:]} check passed" in found.text
    assert (await api.get(f"{path}/odd")).text == "404 page not found\n"
