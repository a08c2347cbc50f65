"""The face: who may come in, which forms there are, what mistakes are called."""

from __future__ import annotations

import asyncio
import json
import ssl

import httpx
import pytest
import yaml

from kueuelib.embedded.cluster.nodes import node_status
from kueuelib.embedded.registry.builtin_kinds import RELEASE, VERSION
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ConfigError

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
async def test_health_is_told_to_anybody(api, path):
    found = await api.get(path, headers={"Authorization": ""})
    assert (found.status, found.text) == (200, "ok")
    inner = f"{path}/ping"
    assert (await api.get(inner)).text == "ok"
    assert (await api.get(inner, headers={"Authorization": ""})).status == 401


async def test_strangers_are_turned_away(api):
    for header in ("", "Bearer wrong", "Basic eA=="):
        found = await api.get("/api/v1/namespaces", headers={"Authorization": header})
        assert (found.status, found.body["reason"]) == (401, "Unauthorized")
    assert (await api.get("/version", headers={"Authorization": ""})).body["major"] == "1"


@pytest.mark.embedded
async def test_a_client_certificate_is_as_good_as_a_token(server, tmp_path):
    user = server.kubeconfig()["users"][0]["user"]
    import base64

    for name in ("certificate", "key"):
        data = base64.b64decode(user[f"client-{name}-data"])
        (tmp_path / name).write_bytes(data)
    context = ssl.create_default_context(cadata=server.ca.decode())
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    async with httpx.AsyncClient(base_url=server.url, verify=context, trust_env=False) as client:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=body)
    who = found.json()["status"]["userInfo"]
    assert who["username"] == "kubernetes-admin"
    assert "system:masters" in who["groups"]


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/api/v2/pods", 404, "NotFound"),
        ("GET", "/api/v1/unicorns", 404, "NotFound"),
        ("GET", "/api/v1/pods/a", 404, "NotFound"),
        ("GET", f"{MAPS}/a/status", 404, "NotFound"),
        ("GET", f"{MAPS}/a/b/c/d", 404, "NotFound"),
        ("POST", f"{MAPS}/a", 405, "MethodNotAllowed"),
        ("PUT", MAPS, 405, "MethodNotAllowed"),
        ("POST", "/api/v1/configmaps", 405, "MethodNotAllowed"),
    ],
)
async def test_paths_that_lead_nowhere_have_their_status(api, method, path, status, reason):
    found = await api.call(method, path, {} if method in ("POST", "PUT") else None)
    assert (found.status, found.body["reason"]) == (status, reason)
    assert (found.body["kind"], found.body["status"]) == ("Status", "Failure")


@pytest.mark.parametrize("path", ["/nothing", "/apis/none.example.com", "/apis/none/v1/x"])
async def test_paths_of_nobody_are_answered_in_plain_text(api, path):
    found = await api.get(path)
    assert (found.status, found.text) == (404, "404 page not found\n")
    assert found.headers["content-type"] == "text/plain; charset=utf-8"


async def test_null_is_an_object_without_a_name(api):
    found = await api.post(MAPS, "null")
    assert (found.status, found.body["reason"]) == (422, "Invalid")


@pytest.mark.parametrize("body", ["{", "[]", '"text"', "", "\x00", '{"metadata":'])
async def test_a_body_that_is_no_object_is_a_bad_request(api, body):
    found = await api.post(MAPS, body)
    assert (found.status, found.body["reason"]) == (400, "BadRequest")


async def test_a_body_that_is_too_long_is_refused(api):
    body = {"metadata": {"name": "a"}, "data": {"x": "y" * (3 * 2**20)}}
    found = await api.post(MAPS, body)
    assert (found.status, found.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_deep_nesting_is_a_bad_request(api):
    for depth in (300, 1_000, 100_000):
        body = '{"metadata":{"name":"a"},"data":' + '{"a":' * depth + "1" + "}" * depth + "}"
        found = await api.post(MAPS, body)
        assert (found.status, found.body["reason"]) == (400, "BadRequest")


async def test_yaml_is_read_and_written(api):
    text = "metadata:\n  name: a\ndata:\n  day: '2020-01-01'\n"
    headers = {"Content-Type": "application/yaml", "Accept": "application/yaml"}
    made = await api.call("POST", MAPS, text, headers=headers)
    assert made.status == 201
    assert yaml.safe_load(made.text)["data"] == {"day": "2020-01-01"}
    bad = await api.call("POST", MAPS, "a: [", headers={"Content-Type": "application/yaml"})
    assert bad.status == 400


async def test_yaml_that_multiplies_is_refused(api):
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    bomb = "\n".join(lines)
    found = await api.call("POST", MAPS, bomb, headers={"Content-Type": "application/yaml"})
    assert found.status == 400
    assert "document contains excessive aliasing" in found.body["message"]


async def test_unknown_media_types_are_refused(api):
    found = await api.get(MAPS, headers={"Accept": "text/html"})
    assert (found.status, found.body["reason"]) == (406, "NotAcceptable")
    found = await api.call("POST", MAPS, "x", headers={"Content-Type": "text/html"})
    assert (found.status, found.body["reason"]) == (415, "UnsupportedMediaType")


async def test_a_table_has_the_columns_of_kubectl(api):
    await api.post(MAPS, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}})
    found = (await api.get(MAPS, headers={"Accept": TABLE})).body
    assert found["kind"] == "Table"
    assert [each["name"] for each in found["columnDefinitions"]] == ["Name", "Data", "Age"]
    (row,) = found["rows"]
    assert row["cells"][:2] == ["a", 2]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    one = (await api.get(f"{MAPS}/a", headers={"Accept": TABLE})).body
    assert one["rows"][0]["cells"][:2] == ["a", 2]
    bare = await api.get(MAPS, headers={"Accept": TABLE}, params={"includeObject": "None"})
    assert bare.body["rows"][0]["object"] is None
    whole = await api.get(MAPS, headers={"Accept": TABLE}, params={"includeObject": "Object"})
    assert whole.body["rows"][0]["object"]["data"] == {"x": "1", "y": "2"}


async def test_metadata_is_served_alone(api):
    await api.post(MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    found = (await api.get(MAPS, headers={"Accept": accept})).body
    assert found["kind"] == "PartialObjectMetadataList"
    assert found["items"][0]["kind"] == "PartialObjectMetadata"
    assert "data" not in found["items"][0]


async def test_discovery_names_every_kind(api):
    core = (await api.get("/api/v1")).body
    verbs = {each["name"]: each["verbs"] for each in core["resources"]}
    assert "watch" in verbs["pods"]
    assert verbs["pods/status"] == ["get", "patch", "update"]
    assert verbs["pods/binding"] == ["create"]
    groups = (await api.get("/apis")).body["groups"]
    batch = next(each for each in groups if each["name"] == "batch")
    assert batch["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    assert (await api.get("/apis/batch")).body["kind"] == "APIGroup"
    listed = (await api.get("/apis/batch/v1")).body["resources"]
    jobs = next(each for each in listed if each["name"] == "jobs")
    assert (jobs["name"], jobs["kind"], jobs["namespaced"]) == ("jobs", "Job", True)


async def test_discovery_comes_in_one_piece_for_those_who_ask(api):
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    found = await api.get("/apis", headers={"Accept": accept})
    assert found.headers["content-type"] == accept
    names = {each["metadata"]["name"] for each in found.body["items"]}
    assert {"batch", "apiextensions.k8s.io"} <= names
    core = (await api.get("/api", headers={"Accept": accept})).body["items"]
    resources = core[0]["versions"][0]["resources"]
    assert "pods" in {each["resource"] for each in resources}


async def test_openapi_describes_the_kinds(api):
    index = (await api.get("/openapi/v3")).body["paths"]
    where = index["apis/batch/v1"]["serverRelativeURL"]
    document = (await api.get(where)).body
    schemas = document["components"]["schemas"]
    gvk = schemas["io.k8s.api.batch.v1.Job"]["x-kubernetes-group-version-kind"]
    assert gvk == [{"group": "batch", "version": "v1", "kind": "Job"}]
    assert "/apis/batch/v1/namespaces/{namespace}/jobs/{name}" in document["paths"]
    assert (await api.get("/openapi/v3/apis/none/v1")).status == 404
    assert "swagger" in (await api.get("/openapi/v2")).body


async def test_those_who_are_in_may_do_everything(api):
    spec = {"resourceAttributes": {"verb": "create", "resource": "pods"}}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": spec,
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    found = await api.post(path, body)
    assert found.status == 201
    assert found.body["status"]["allowed"] is True
    assert (await api.post(path, {**body, "spec": {}})).status == 422
    assert (await api.get(path)).status == 405


@pytest.mark.embedded
async def test_a_taken_port_is_named_with_the_way_out(server):
    with pytest.raises(ConfigError) as caught:
        async with ApiServer(port=server.port):
            pass
    assert f"127.0.0.1:{server.port}" in str(caught.value)
    assert "choose another port" in str(caught.value)


@pytest.mark.embedded
async def test_many_servers_are_strangers_to_each_other(api):
    async with ApiServer() as other:
        found = await api.get(f"{MAPS}", headers={"Authorization": f"Bearer {other.token}"})
        assert found.status == 401
        assert other.port != api.server.port


async def test_openapi_tells_the_fields_of_built_in_kinds(api):
    document = (await api.get("/openapi/v3/api/v1")).body["components"]["schemas"]
    spec = document["io.k8s.api.core.v1.PodSpec"]
    assert spec["required"] == ["containers"]
    containers = spec["properties"]["containers"]
    assert containers["items"] == {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    container = document["io.k8s.api.core.v1.Container"]["properties"]
    assert container["stdin"]["type"] == "boolean"
    assert container["ports"]["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    limits = document["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"]
    assert limits["additionalProperties"]["$ref"].endswith(".api.resource.Quantity")


@pytest.mark.parametrize(
    ("name", "either", "text"),
    [
        ("util.intstr.IntOrString", ["integer", "string"], {"format": "int-or-string"}),
        ("api.resource.Quantity", ["string", "number"], {}),
    ],
)
async def test_openapi_tells_what_may_be_a_number_or_a_text(api, name, either, text):
    """Clients show the names of such types, where the document names no type."""
    full = f"io.k8s.apimachinery.pkg.{name}"
    third = (await api.get("/openapi/v3/api/v1")).body["components"]["schemas"][full]
    second = (await api.get("/openapi/v2")).body["definitions"][full]
    for each in (third, second):
        each.pop("description", None)
    assert third == {**text, "oneOf": [{"type": each} for each in either]}
    assert second == {**text, "type": "string"}


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1", "/openapi/v3/apis/batch/v1"])
async def test_openapi_refers_to_nothing_that_is_not_there(api, path):
    document = (await api.get(path)).body
    prefix = "#/definitions/" if "definitions" in document else "#/components/schemas/"
    found = document.get("definitions") or document["components"]["schemas"]
    references = set()

    def collect(value):
        if isinstance(value, dict):
            if str(value.get("$ref", "")).startswith(prefix):
                references.add(value["$ref"])
            for each in value.values():
                collect(each)
        elif isinstance(value, list):
            for each in value:
                collect(each)

    collect(document)
    assert references
    assert {each.removeprefix(prefix) for each in references} <= found.keys()


async def test_a_method_that_http_does_not_have_is_not_allowed(api):
    found = await api.call("FOO", MAPS)
    assert (found.status, found.body["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    "line", [b"GARBAGE\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nA b: c\r\n\r\n"]
)
@pytest.mark.embedded
async def test_what_is_no_request_is_a_bad_request_in_plain_words(server, line):
    context = ssl.create_default_context(cadata=server.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    writer.write(line)
    raw = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 400 ")
    assert json.loads(body)["message"] == "the request is malformed"


@pytest.mark.embedded
async def test_server_documents_and_nodes_tell_one_version(api):
    version = (await api.get("/version")).body
    assert version["gitVersion"] == VERSION
    assert VERSION.startswith(f"v{version['major']}.{version['minor']}.")
    assert (await api.get("/openapi/v3/api/v1")).body["info"]["version"] == RELEASE
    assert node_status({}, 0, 0.0)["nodeInfo"]["kubeletVersion"] == VERSION
