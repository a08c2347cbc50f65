"""Admission and conversion webhooks over HTTPS."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time

import pytest
from aiohttp import web

from kueuelib.embedded.credentials import Authority
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ConfigError

HOOKS = "/apis/admissionregistration.k8s.io/v1"
NOBODY = "https://127.0.0.1:1/x"
MAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Hook:
    """An HTTPS server that answers reviews with what a function says."""

    def __init__(self, tmp_path):
        self.folder = tmp_path
        self.requests = []
        self.answers = {}
        authority = Authority(time.time())
        certificate, key = authority.issue("hook", hosts=("127.0.0.1", "hook.default.svc"))
        self.ca = base64.b64encode(authority.pem).decode()
        (tmp_path / "hook.pem").write_bytes(key + certificate)

    async def __aenter__(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "hook.pem")
        self.server = web.Server(self.handle)
        self.runner = web.ServerRunner(self.server)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = self.runner.addresses[0][1]
        self.url = f"https://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exc):
        open_ones = [each.transport for each in self.server.connections if each.transport]
        await self.runner.cleanup()
        for transport in open_ones:
            transport.abort()  # a server of another process keeps its connection
        await asyncio.sleep(0)

    async def handle(self, request):
        review = await request.json()
        asked = review["request"]
        self.requests.append((request.path, asked))
        answer = self.answers[request.path](asked)
        if isinstance(answer, web.Response):
            return answer
        response = {"uid": asked["uid"], **answer}
        return web.json_response({**review, "request": None, "response": response})

    def client(self, path):
        return {"url": self.url + path, "caBundle": self.ca}


@pytest.fixture
async def hook(tmp_path):
    async with Hook(tmp_path) as hook:
        yield hook


def rule(
    operations=("CREATE", "UPDATE"), resources=("configmaps",), groups=("",), versions=("v1",)
):
    return {
        "operations": list(operations),
        "apiGroups": list(groups),
        "apiVersions": list(versions),
        "resources": list(resources),
    }


async def register(api, hook, kind="validating", path="/hook", **fields):
    webhook = {
        "name": f"{path.strip('/')}.example.com",
        "clientConfig": hook.client(path),
        "rules": [rule()],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }
    body = {"metadata": {"name": path.strip("/")}, "webhooks": [webhook]}
    made = await api.post(f"{HOOKS}/{kind}webhookconfigurations", body)
    assert made.status == 201, made
    return made.body


def patch(*operations):
    data = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": data}


def config_map(name="a", **labels):
    return {"metadata": {"name": name, "labels": labels}, "data": {"x": "1"}}


async def test_a_refusal_carries_the_words_of_the_hook(api, hook):
    status = {"code": 403, "message": "not on Sundays", "reason": "Forbidden"}
    hook.answers["/hook"] = lambda _: {"allowed": False, "status": status}
    await register(api, hook)
    made = await api.post(MAPS, config_map())
    assert (made.status, made.body["reason"]) == (403, "Forbidden")
    assert made.body["message"] == (
        'admission webhook "hook.example.com" denied the request: not on Sundays'
    )
    assert (await api.get(f"{MAPS}/a")).status == 404


async def test_a_hook_sees_the_whole_request(api, hook):
    hook.answers["/hook"] = lambda _: {"allowed": True, "warnings": ["mind the gap"]}
    await register(api, hook, rules=[rule(("*",))])
    made = await api.post(MAPS, config_map())
    assert made.headers["warning"] == '299 - "mind the gap"'
    await api.patch(f"{MAPS}/a", {"data": {"x": "2"}})
    await api.delete(f"{MAPS}/a")
    create, update, delete = (each for _, each in hook.requests)
    assert create["operation"] == "CREATE"
    assert create["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert create["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (create["name"], create["namespace"]) == ("a", "default")
    assert create["userInfo"]["username"] == "kubernetes-admin"
    assert create["object"]["metadata"]["uid"]
    assert create["oldObject"] is None
    assert (update["object"]["data"], update["oldObject"]["data"]) == ({"x": "2"}, {"x": "1"})
    assert delete["object"] is None
    assert delete["oldObject"]["data"] == {"x": "2"}
    assert delete["options"]["kind"] == "DeleteOptions"


async def test_a_mutating_hook_changes_what_is_stored(api, hook):
    hook.answers["/mutate"] = lambda _: patch({"op": "add", "path": "/data/y", "value": "2"})
    hook.answers["/check"] = lambda asked: {"allowed": asked["object"]["data"]["y"] == "2"}
    await register(api, hook, "mutating", "/mutate")
    await register(api, hook, "validating", "/check")
    made = await api.post(MAPS, config_map())
    assert made.status == 201
    assert made.body["data"] == {"x": "1", "y": "2"}
    first = hook.requests[0][1]["object"]["metadata"]
    assert "uid" not in first


async def test_a_hook_is_asked_again_after_others(api, hook):
    def first(asked):
        count = int(asked["object"]["data"].get("count", "0")) + 1
        return patch({"op": "add", "path": "/data/count", "value": str(count)})

    hook.answers["/a"] = first
    hook.answers["/b"] = lambda _: patch({"op": "add", "path": "/data/late", "value": "yes"})
    await register(api, hook, "mutating", "/a", reinvocationPolicy="IfNeeded")
    await register(api, hook, "mutating", "/b")
    made = await api.post(MAPS, config_map())
    assert made.body["data"] == {"x": "1", "late": "yes", "count": "2"}


async def test_selectors_spare_the_others(api, hook):
    hook.answers["/hook"] = lambda _: {"allowed": False}
    await register(
        api,
        hook,
        objectSelector={"matchLabels": {"watched": "yes"}},
        namespaceSelector={
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system"],
                }
            ]
        },
    )
    assert (await api.post(MAPS, config_map("free"))).status == 201
    refused = await api.post(MAPS, config_map(watched="yes"))
    assert refused.status == 400
    assert refused.body["message"].endswith("denied the request without explanation")
    away = MAPS.replace("default", "kube-system")
    assert (await api.post(away, config_map(watched="yes"))).status == 201
    assert (await api.patch(f"{away}/a", {"metadata": {"labels": None}})).status == 200


async def test_a_status_is_another_resource(api, hook):
    hook.answers["/hook"] = lambda _: {"allowed": False}
    await register(api, hook, rules=[rule(resources=("pods/status",))])
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    assert (await api.post(pods, {"metadata": {"name": "p"}, "spec": spec})).status == 201
    assert (await api.patch(f"{pods}/p", {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert (await api.patch(f"{pods}/p/status", {"status": {"phase": "Running"}})).status == 400
    assert hook.requests[0][1]["subResource"] == "status"


async def test_the_policy_decides_over_a_hook_that_fails(api, hook):
    hook.answers["/hook"] = lambda _: web.Response(status=500, text="broken")
    made = await register(api, hook)
    refused = await api.post(MAPS, config_map())
    assert (refused.status, refused.body["reason"]) == (500, "InternalError")
    assert 'failed calling webhook "hook.example.com"' in refused.body["message"]
    made["webhooks"][0]["failurePolicy"] = "Ignore"
    await api.put(f"{HOOKS}/validatingwebhookconfigurations/hook", made)
    assert (await api.post(MAPS, config_map())).status == 201


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (
            {"url": NOBODY},
            f'Post "{NOBODY}?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused',
        ),
        (
            {"service": {"namespace": "a", "name": "b"}},
            'Post "https://b.a.svc:443/?timeout=10s": service "b" not found',
        ),
    ],
)
async def test_a_hook_that_cannot_be_reached_says_so(api, hook, client, text):
    await register(api, hook, clientConfig=client)
    refused = await api.post(MAPS, config_map())
    assert refused.status == 500
    assert text in refused.body["message"]


def by_service(hook, name="hook", **fields):
    service = {"namespace": "default", "name": name, "port": hook.port, "path": "/hook", **fields}
    return {"service": service, "caBundle": hook.ca}


def service(name="hook", **spec):
    return {"metadata": {"name": name}, "spec": spec}


SERVICES = "/api/v1/namespaces/default/services"


async def test_a_hook_is_called_by_the_name_of_its_service(api, hook):
    hook.answers["/hook"] = lambda _: {"allowed": False}
    outside = service(type="ExternalName", externalName="localhost")
    assert (await api.post(SERVICES, outside)).status == 201
    await register(api, hook, clientConfig=by_service(hook))
    assert (await api.post(MAPS, config_map())).status == 400
    assert [path for path, _ in hook.requests] == ["/hook"]


async def test_the_certificate_of_a_service_has_its_name(api, hook):
    outside = service("other", type="ExternalName", externalName="localhost")
    assert (await api.post(SERVICES, outside)).status == 201
    await register(api, hook, clientConfig=by_service(hook, "other"))
    refused = await api.post(MAPS, config_map())
    assert refused.status == 500
    assert "tls: failed to verify certificate: x509: " in refused.body["message"]
    assert "other.default.svc" in refused.body["message"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"clusterIP": "None", "ports": [{"port": 443}]},
            'cannot route to service with ClusterIP "None"',
        ),
        ({"ports": [{"port": 1}]}, 'no service port 443 found for service "hook"'),
    ],
)
async def test_a_service_that_leads_nowhere_says_so(api, hook, spec, text):
    assert (await api.post(SERVICES, service(**spec))).status == 201
    await register(api, hook, clientConfig=by_service(hook, port=443))
    refused = await api.post(MAPS, config_map())
    assert refused.status == 500
    assert text in refused.body["message"]


@pytest.mark.embedded
async def test_a_service_is_where_the_user_says(hook, open_api):
    hook.answers["/hook"] = lambda _: {"allowed": False}
    where = {"default/hook": f"127.0.0.1:{hook.port}"}
    async with ApiServer(services=where) as server, open_api(server) as api:
        await register(api, hook, clientConfig=by_service(hook, port=443))
        assert (await api.post(MAPS, config_map())).status == 400
    assert [path for path, _ in hook.requests] == ["/hook"]


@pytest.mark.embedded
@pytest.mark.parametrize("given", [{"a": "b:1"}, {"a/b": "c"}, {"a/b": "c:0"}, {"a/b": "c:99999"}])
def test_an_address_that_is_none_is_refused(given):
    with pytest.raises(ConfigError):
        ApiServer(services=given)


PATCH = base64.b64encode(b'[{"op":"add","path":"/data/z","value":"1"}]').decode()


@pytest.mark.parametrize(
    ("kind", "response", "text"),
    [
        (
            "mutating",
            {"patch": PATCH},
            "webhook returned response.patch but not response.patchType",
        ),
        (
            "mutating",
            {"patchType": "JSONPatch"},
            "webhook returned response.patchType but not response.patch",
        ),
        ("validating", {"patch": PATCH}, "validating webhook may not return response.patch"),
        (
            "validating",
            {"patchType": "JSONPatch"},
            "validating webhook may not return response.patchType",
        ),
        ("validating", {"uid": "x"}, 'got "x"'),
    ],
)
async def test_a_response_that_makes_no_sense_is_a_failure(api, hook, kind, response, text):
    hook.answers["/hook"] = lambda _: {"allowed": True, **response}
    made = await register(api, hook, kind)
    refused = await api.post(MAPS, config_map())
    assert refused.status == 500, refused
    start = 'failed calling webhook "hook.example.com": received invalid webhook response: '
    assert start in refused.body["message"]
    assert text in refused.body["message"]
    made["webhooks"][0]["failurePolicy"] = "Ignore"
    await api.put(f"{HOOKS}/{kind}webhookconfigurations/hook", made)
    assert (await api.post(MAPS, config_map())).status == 201


async def test_a_hook_with_a_foreign_certificate_is_not_trusted(api, hook):
    foreign = base64.b64encode(Authority(time.time()).pem).decode()
    await register(api, hook, clientConfig={"url": f"{hook.url}/hook", "caBundle": foreign})
    refused = await api.post(MAPS, config_map())
    assert refused.status == 500
    assert "tls: failed to verify certificate: x509: " in refused.body["message"]
    assert "_ssl" not in refused.body["message"]


async def test_a_dry_run_spares_hooks_with_side_effects(api, hook):
    hook.answers["/hook"] = lambda _: {"allowed": True}
    await register(api, hook, sideEffects="NoneOnDryRun")
    assert (await api.post(MAPS, config_map(), params={"dryRun": "All"})).status == 201
    assert hook.requests[0][1]["dryRun"] is True


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": "short"}, "webhooks[0].name"),
        ({"sideEffects": None}, "webhooks[0].sideEffects"),
        ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions"),
        ({"clientConfig": {"url": "http://a"}}, "webhooks[0].clientConfig.url"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig"),
        ({"timeoutSeconds": 99}, "webhooks[0].timeoutSeconds"),
        ({"failurePolicy": "Maybe"}, "webhooks[0].failurePolicy"),
        ({"rules": [rule(("WATCH",))]}, "webhooks[0].rules[0].operations[0]"),
        ({"rules": [rule(("*", "CREATE"))]}, "webhooks[0].rules[0].operations"),
        ({"rules": [rule(resources=("*", "pods"))]}, "webhooks[0].rules[0].resources"),
        ({"rules": [rule(resources=("*/*", "pods"))]}, "webhooks[0].rules[0].resources"),
        ({"rules": [rule(resources=("a/*", "a/b"))]}, "webhooks[0].rules[0].resources[1]"),
        ({"rules": [rule(groups=("*", "a"))]}, "webhooks[0].rules[0].apiGroups"),
        ({"rules": [rule(versions=("*", "v1"))]}, "webhooks[0].rules[0].apiVersions"),
        ({"clientConfig": {"url": "https://a?b=c"}}, "webhooks[0].clientConfig.url"),
        (
            {"clientConfig": {"service": {"namespace": "a", "name": "b", "path": "//"}}},
            "webhooks[0].clientConfig.service.path",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "object.x +"}]},
            "webhooks[0].matchConditions[0].expression",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "object.x"}]},
            "webhooks[0].matchConditions[0].expression",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "1"}]},
            "webhooks[0].matchConditions[0].expression",
        ),
    ],
)
async def test_a_broken_configuration_is_invalid(api, hook, fields, path):
    webhook = {
        "name": "a.example.com",
        "clientConfig": hook.client("/hook"),
        "rules": [rule()],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }
    body = {"metadata": {"name": "a"}, "webhooks": [webhook]}
    made = await api.post(f"{HOOKS}/validatingwebhookconfigurations", body)
    assert (made.status, made.body["reason"]) == (422, "Invalid")
    assert path in {each["field"] for each in made.body["details"]["causes"]}


# ---- conversion


def two_versions(hook):
    def version(name, field, *, storage):
        properties = {field: {"type": "string"}}
        spec = {"type": "object", "properties": properties}
        schema = {"type": "object", "properties": {"spec": spec}}
        return {
            "name": name,
            "served": True,
            "storage": storage,
            "schema": {"openAPIV3Schema": schema},
        }

    webhook = {"clientConfig": hook.client("/convert"), "conversionReviewVersions": ["v1"]}
    return {
        "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "boxes", "kind": "Box"},
            "versions": [
                version("v1", "name", storage=False),
                version("v2", "title", storage=True),
            ],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


def box(version, **spec):
    about = {"apiVersion": f"example.com/{version}", "kind": "Box"}
    return {**about, "metadata": {"name": "b"}, "spec": spec}


def convert(asked):
    new = asked["desiredAPIVersion"]
    old, field = ("name", "title") if new.endswith("v2") else ("title", "name")
    found = []
    for obj in asked["objects"]:
        spec = dict(obj["spec"])
        if old in spec:
            spec[field] = spec.pop(old)
        found.append({**obj, "apiVersion": new, "spec": spec})
    return {"convertedObjects": found, "result": {"status": "Success"}}


@pytest.fixture
async def boxes(api, hook):
    hook.answers["/convert"] = convert
    assert (await api.post(CRDS, two_versions(hook))).status == 201
    return "/apis/example.com/{}/namespaces/default/boxes"


async def test_objects_are_converted_on_the_way_in_and_out(api, hook, boxes):
    old, new = boxes.format("v1"), boxes.format("v2")
    made = await api.post(old, box("v1", name="x"))
    assert made.body["spec"] == {"name": "x"}
    assert (await api.get(f"{new}/b")).body["spec"] == {"title": "x"}
    changed = await api.patch(f"{old}/b", {"spec": {"name": "y"}})
    assert changed.body["spec"] == {"name": "y"}
    assert (await api.get(new)).body["items"][0]["spec"] == {"title": "y"}
    (event,) = await api.watch(old, 1)
    assert event["object"]["spec"] == {"name": "y"}


async def test_a_list_is_converted_once(api, hook, boxes):
    for name in "abc":
        body = {**box("v2", title=name), "metadata": {"name": name}}
        await api.post(boxes.format("v2"), body)
    found = (await api.get(boxes.format("v1"))).body["items"]
    assert [each["spec"] for each in found] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    asked = len(hook.requests)
    assert asked >= 1
    await api.get(boxes.format("v1"))
    assert len(hook.requests) == asked


async def test_a_failing_conversion_is_told(api, hook, boxes):
    await api.post(boxes.format("v2"), box("v2", title="x"))
    failed = {"result": {"status": "Failed", "message": "too old"}, "convertedObjects": []}
    hook.answers["/convert"] = lambda _: failed
    found = await api.get(f"{boxes.format('v1')}/b")
    assert found.status == 500
    assert (
        "conversion webhook for example.com/v2, Kind=Box failed: too old" in found.body["message"]
    )
    assert (await api.get(f"{boxes.format('v2')}/b")).status == 200


@pytest.mark.parametrize("converted", [None, 5, "x", {"apiVersion": "example.com/v1"}])
async def test_a_conversion_into_nonsense_is_told(api, hook, boxes, converted):
    await api.post(boxes.format("v2"), box("v2", title="x"))
    answer = {"result": {"status": "Success"}, "convertedObjects": [converted]}
    hook.answers["/convert"] = lambda _: answer
    found = await api.get(f"{boxes.format('v1')}/b")
    assert found.status == 500
    assert "Error:" not in found.body["message"]


async def test_a_converted_object_keeps_its_name(api, hook, boxes):
    await api.post(boxes.format("v2"), box("v2", title="x"))

    def renamed(asked):
        found = convert(asked)
        for each in found["convertedObjects"]:
            each["metadata"] = {**each["metadata"], "name": "other"}
        return found

    hook.answers["/convert"] = renamed
    found = await api.get(f"{boxes.format('v1')}/b")
    assert found.status == 500
    assert "must have the same name" in found.body["message"]


async def test_lists_at_another_version_go_on_while_the_conversion_is_away(api, hook, boxes):
    """The watch cache of a version holds objects that were converted when they were written."""
    old, new = boxes.format("v1"), boxes.format("v2")
    assert (await api.get(old)).body["items"] == []
    made = await api.post(new, box("v2", title="x"))
    await api.patch(f"{new}/b", {"spec": {"title": "y"}})
    assert [each["spec"] for each in (await api.get(old)).body["items"]] == [{"name": "y"}]
    failed = {"result": {"status": "Failed", "message": "away"}, "convertedObjects": []}
    hook.answers["/convert"] = lambda _: failed
    listed = await api.get(old)
    assert (listed.status, len(listed.body["items"])) == (200, 1)
    (found,) = listed.body["items"]
    assert (found["apiVersion"], found["spec"]) == ("example.com/v1", {"name": "y"})
    assert found["metadata"]["uid"] == made.body["metadata"]["uid"]
    stored = (await api.get(f"{new}/b")).body["metadata"]
    assert found["metadata"]["resourceVersion"] == stored["resourceVersion"]
    assert (await api.get(f"{old}/b")).status == 500  # it reads the storage


async def test_a_write_is_stored_while_the_conversion_for_others_is_away(api, hook, boxes):
    old, new = boxes.format("v1"), boxes.format("v2")
    assert (await api.get(old)).status == 200
    failed = {"result": {"status": "Failed", "message": "away"}, "convertedObjects": []}
    hook.answers["/convert"] = lambda _: failed
    body = box("v2", title="x")
    assert (await api.post(new, body)).status == 201
    assert (await api.get(new)).body["items"][0]["spec"] == {"title": "x"}


async def test_a_dry_run_is_converted_to_what_would_be_stored(api, hook, boxes):
    old = boxes.format("v1")
    assert (await api.get(old)).body["items"] == []
    failed = {"result": {"status": "Failed", "message": "away"}, "convertedObjects": []}
    for answer, status in ((convert, 201), (lambda _: failed, 500)):
        hook.answers["/convert"] = answer
        made = await api.post(f"{old}?dryRun=All", box("v1", name="x"))
        assert made.status == status, made.body
    assert "conversion webhook for example.com/v1, Kind=Box failed: away" in made.body["message"]
    hook.answers["/convert"] = convert
    assert (await api.post(old, box("v1", name="x"))).status == 201
    hook.answers["/convert"] = lambda _: failed
    body = {"spec": {"name": "y"}}
    assert (await api.patch(f"{old}/b?dryRun=All", body)).status == 500


async def test_a_hook_for_one_version_sees_writes_of_the_other(api, hook, boxes):
    hook.answers["/hook"] = lambda asked: {"allowed": asked["object"]["spec"] == {"name": "x"}}
    rules = [rule(resources=("boxes",), groups=("example.com",))]
    await register(api, hook, rules=rules)
    made = await api.post(boxes.format("v2"), box("v2", title="x"))
    assert made.status == 201
    asked = hook.requests[-1][1] if hook.requests[-1][0] == "/hook" else hook.requests[-2][1]
    assert asked["kind"]["version"] == "v1"
    assert asked["requestKind"]["version"] == "v2"


async def test_match_conditions_choose_the_requests_of_a_hook(api, hook):
    hook.answers["/hook"] = lambda _: {"allowed": False}
    conditions = [
        {"name": "named-b", "expression": "object.metadata.name == 'b'"},
        {"name": "by-admin", "expression": "request.userInfo.username != ''"},
        {"name": "new", "expression": "oldObject == null && request.operation == 'CREATE'"},
    ]
    await register(api, hook, matchConditions=conditions)
    assert (await api.post(MAPS, config_map("a"))).status == 201
    assert (await api.post(MAPS, config_map("b"))).status == 400
    assert len(hook.requests) == 1


@pytest.mark.parametrize(("policy", "status"), [("Fail", 403), ("Ignore", 201)])
async def test_a_condition_without_a_value_fails_as_the_policy_says(api, hook, policy, status):
    conditions = [{"name": "broken", "expression": "object.nothing.here == 1"}]
    await register(api, hook, matchConditions=conditions, failurePolicy=policy)
    made = await api.post(MAPS, config_map("a"))
    assert made.status == status
    assert not hook.requests


async def test_one_condition_that_says_no_outweighs_a_broken_one(api, hook):
    conditions = [
        {"name": "broken", "expression": "object.nothing.here == 1"},
        {"name": "never", "expression": "false"},
    ]
    await register(api, hook, matchConditions=conditions)
    assert (await api.post(MAPS, config_map("a"))).status == 201


def small(kind):
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "kind": kind}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.example.com"}, "spec": spec}


async def test_no_hook_of_a_deleted_kind_is_called_for_a_new_one(api, hook):
    hook.answers["/hook"] = lambda _: {"allowed": False}
    await register(api, hook, rules=[rule(groups=["example.com"], resources=["guardeds"])])
    await asyncio.sleep(0.5)
    for number in range(20):
        kind = ("Guarded", "Free")[number % 2]
        path = f"/apis/example.com/v1/{kind.lower()}s"
        made = await api.post(CRDS, small(kind))
        assert made.status == 201, made
        assert await api.becomes(200, path)
        body = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "a"}}
        assert (await api.post(path, body)).status == (201 if kind == "Free" else 400), number
        await api.delete(f"{CRDS}/{kind.lower()}s.example.com")
        assert await api.becomes(404, path)
