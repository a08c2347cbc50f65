from __future__ import annotations

import asyncio
import base64
import io
import ssl
import time
from typing import Any

import aiohttp
import jsonpatch
import orjson
import pytest
import structlog

from kueuelib.errors import FieldError, InvalidObject
from kueuelib.runtime.certificates import ServerNames, host_names, load, renewed, server_context
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.admission import ValidationResult, aggregate, shortened
from kueuelib.runtime.webhook.server import MAX_BODY, WebhookServer


def with_default(obj: dict[str, Any]) -> dict[str, Any]:
    spec = obj.setdefault("spec", {})
    spec.setdefault("size", 1)
    return obj


def small(new: Any, old: Any, request: Any) -> list[FieldError]:
    if request.operation == "DELETE":
        return [FieldError("metadata.name", "FieldValueForbidden", "Forbidden: stays")]
    errors = []
    if new["spec"]["size"] > 9:
        errors.append(FieldError("spec.size", "FieldValueInvalid", "Invalid value: too big"))
    if old is not None and old["spec"] != new["spec"]:
        errors.append(FieldError("spec", "FieldValueInvalid", "Invalid value: immutable"))
    return errors


def refuse(_: Any) -> dict[str, Any]:
    raise InvalidObject("Thing", "a", [FieldError("spec", "FieldValueRequired", "Required value")])


def crash(*_: Any) -> Any:
    raise RuntimeError("bug")


def convert(obj: dict[str, Any], version: str) -> dict[str, Any]:
    if obj["metadata"]["name"] == "bad":
        raise ValueError("cannot")
    if obj["metadata"]["name"] == "crash":
        raise RuntimeError("bug")
    meta = dict(obj["metadata"])
    if meta["name"] == "renamed":
        meta["name"] = "other"
    return {**obj, "metadata": meta, "apiVersion": f"g/{version}", "via": "webhook"}


@pytest.fixture
async def hooks():

    certificates = renewed(None, host_names(["127.0.0.1"]), time.time())
    context = server_context()
    load(context, certificates)
    telemetry = Telemetry()
    server = WebhookServer("127.0.0.1", 0, context, telemetry=telemetry)
    server.mutate("/mutate", with_default)
    server.mutate("/refuse", refuse)
    server.mutate("/mutate-crash", crash)
    server.mutate_with_request("/who", lambda obj, req: {**obj, "by": req.user["username"]})
    server.validate("/validate", small, SIZED)
    server.validate("/validate-crash", lambda *_: {}["missing"])
    server.validate("/warn", lambda *_: ValidationResult(warnings=["old", "x" * 300]))
    server.convert("/convert", convert)
    running: list[int] = []

    async def slow(_: Any) -> dict[str, Any]:
        running.append(1)
        hooks.most = max(hooks.most, len(running))
        await asyncio.sleep(0.01)
        running.pop()
        return {"allowed": True}

    server.admit("/slow", slow)
    ready = asyncio.Event()
    task = asyncio.create_task(server.run(ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    trust = ssl.create_default_context(cadata=certificates.ca_cert.decode())
    async with aiohttp.ClientSession(f"https://127.0.0.1:{server.port}") as session:
        hooks = Hooks(session, trust, telemetry, context, certificates)
        yield hooks
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Hooks:
    def __init__(self, session, trust, telemetry, context, certificates):
        self.session, self.trust, self.telemetry = session, trust, telemetry
        self.context, self.certificates = context, certificates
        self.most = 0

    async def post(self, path: str, body: Any, content_type: str = "application/json"):
        data = io.BytesIO(body if isinstance(body, bytes) else orjson.dumps(body))
        headers = {"Content-Type": content_type}
        async with self.session.post(path, data=data, headers=headers, ssl=self.trust) as answer:
            text = await answer.read()
            if answer.content_type == "application/json":
                return answer.status, orjson.loads(text)
            return answer.status, text.decode()

    async def admit(self, path: str, new=None, old=None, operation="CREATE"):
        request = {
            "uid": "u1",
            "operation": operation,
            "kind": {"group": "g", "version": "v1", "kind": "Thing"},
            "object": new,
            "oldObject": old,
            "userInfo": {"username": "me"},
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        status, body = await self.post(path, {**review, "request": request})
        assert status == 200
        assert body["apiVersion"] == "admission.k8s.io/v1"
        assert body["response"]["uid"] == "u1"
        return body["response"]

    async def convert(self, *objects):
        review = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": "c1", "desiredAPIVersion": "g/v2", "objects": list(objects)},
        }
        status, body = await self.post("/convert", review)
        assert (status, body["kind"]) == (200, "ConversionReview")
        return body["response"]


SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}}
SIZED = {"g/v1": {"type": "object", "properties": {"spec": SIZE}}}


def thing(name: str = "a", version: str = "g/v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "Thing", "metadata": {"name": name}, "spec": spec}


async def test_defaults_come_as_a_patch_of_the_raw_object(hooks):
    given = thing(unknown={"kept": True})
    answer = await hooks.admit("/mutate", given)
    patch = orjson.loads(base64.b64decode(answer["patch"]))
    assert (answer["allowed"], answer["patchType"]) == (True, "JSONPatch")
    assert patch == [{"op": "add", "path": "/spec/size", "value": 1}]
    assert jsonpatch.apply_patch(given, patch)["spec"] == {"unknown": {"kept": True}, "size": 1}


async def test_an_unchanged_object_gets_no_patch_and_a_deletion_no_question(hooks):
    assert await hooks.admit("/mutate", thing(size=2)) == {"allowed": True, "uid": "u1"}
    answer = await hooks.admit("/refuse", None, thing(), "DELETE")
    assert answer == {"allowed": True, "uid": "u1"}


async def test_a_mutator_may_look_at_the_request(hooks):
    answer = await hooks.admit("/who", thing())
    patch = orjson.loads(base64.b64decode(answer["patch"]))
    assert patch == [{"op": "add", "path": "/by", "value": "me"}]


async def test_a_mutator_may_refuse(hooks):
    answer = await hooks.admit("/refuse", thing())
    assert answer["allowed"] is False
    assert (answer["status"]["code"], answer["status"]["reason"]) == (422, "Invalid")
    assert answer["status"]["details"]["causes"][0]["field"] == "spec"


async def test_broken_rules_deny_with_all_of_them(hooks):
    assert (await hooks.admit("/validate", thing(size=2)))["allowed"] is True
    one = await hooks.admit("/validate", thing(size=10))
    assert one["allowed"] is False
    assert one["status"]["code"] == 403
    assert one["status"]["reason"] == "Forbidden"
    assert one["status"]["message"] == "spec.size: Invalid value: too big"
    two = await hooks.admit("/validate", thing(size=10), thing(size=1), "UPDATE")
    assert two["status"]["message"] == (
        "[spec.size: Invalid value: too big, spec: Invalid value: immutable]"
    )


async def test_deletions_are_validated_with_the_old_object_only(hooks):
    answer = await hooks.admit("/validate", None, thing(size=1), "DELETE")
    assert answer["status"]["message"] == "metadata.name: Forbidden: stays"


async def test_warnings_are_shortened_and_do_not_deny(hooks):
    answer = await hooks.admit("/warn", thing())
    assert answer["allowed"] is True
    assert answer["warnings"][0] == "old"
    assert len(answer["warnings"][1]) == 256


async def test_a_handler_that_crashes_denies_with_500_and_is_counted(hooks):
    answer = await hooks.admit("/mutate-crash", thing())
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)
    text = hooks.telemetry.render().decode()
    assert 'controller_runtime_webhook_panics_total{webhook="/mutate-crash"} 1.0' in text
    assert 'requests_total{code="500",webhook="/mutate-crash"} 1.0' in text


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        (thing(size="x"), None, "spec.size: a whole number is expected"),
        (thing(size=True), None, "spec.size: a whole number is expected"),
        (thing(size=1), thing(size=[]), "oldObject.spec.size: a whole number is expected"),
        (thing(version="g/v7", size=1), None, "apiVersion: g/v1 is expected"),
    ],
)
async def test_an_object_of_another_form_is_denied_with_400_and_the_field(hooks, new, old, said):
    answer = await hooks.admit("/validate", new, old, "CREATE" if old is None else "UPDATE")
    assert (answer["allowed"], answer["status"]["code"]) == (False, 400)
    assert answer["status"]["message"] == said


async def test_a_bug_in_a_handler_is_500_and_one_traceback_that_names_it(hooks):
    with structlog.testing.capture_logs() as logged:
        answer = await hooks.admit("/validate-crash", thing())
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)
    assert "KeyError" not in answer["status"]["message"]
    (line,) = logged
    assert (line["log_level"], type(line["exc_info"])) == ("error", KeyError)
    assert line["handler"] == f"{__name__}.hooks.<locals>.<lambda>"


async def test_a_body_that_cannot_be_decoded_is_refused(hooks):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    async with hooks.session.post(
        "/validate", data=io.BytesIO(b"no gzip"), headers=headers, ssl=hooks.trust
    ) as answer:
        assert answer.status == 400


async def test_objects_are_converted_and_those_in_the_version_pass(hooks):
    same = thing("same", "g/v2")
    answer = await hooks.convert(thing("a", size=1), same)
    assert answer["uid"] == "c1"
    assert answer["result"] == {"status": "Success"}
    assert [obj["apiVersion"] for obj in answer["convertedObjects"]] == ["g/v2", "g/v2"]
    assert answer["convertedObjects"][1] == same


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("bad", "g/v1", "Thing /bad: g/v1 to g/v2: cannot"),
        ("renamed", "g/v1", "changed metadata.name"),
        ("a", "h/v1", "cannot become g/v2"),
        ("crash", "g/v1", "the webhook failed; its log has the reason"),
    ],
)
async def test_one_failure_fails_the_whole_conversion(hooks, name, version, said):
    answer = await hooks.convert(thing("good"), thing(name, version))
    assert answer["convertedObjects"] == []
    assert answer["result"]["status"] == "Failure"
    assert said in answer["result"]["message"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"uid": 5}, "request.uid: a text is expected"),
        ({"uid": None}, "request.uid is missing"),
        ({"operation": []}, "request.operation: a text is expected"),
        ({"operation": ""}, "request.operation is missing"),
        ({"operation": "UPDATE", "object": thing()}, "request.oldObject is missing"),
        ({"object": {}}, "request.object.metadata is missing"),
        ({"object": {"metadata": {"labels": {"a": 1}}}}, "request.object.metadata.labels[a]: a"),
        ({"object": {"metadata": {"ownerReferences": [None]}}}, "ownerReferences[0]: an object"),
        ({"kind": "x"}, "request.kind: an object is expected"),
        ({"kind": {"group": 1}}, "request.kind.group: a text is expected"),
        ({"object": "x"}, "request.object: an object is expected"),
        ({"object": {"metadata": []}}, "request.object.metadata: an object is expected"),
        ({"object": {"metadata": {"name": {}}}}, "request.object.metadata.name: a text is"),
        ({"oldObject": {"spec": 5}}, "request.oldObject.spec: an object is expected"),
        ({"userInfo": {"groups": "x"}}, "request.userInfo.groups: a list is expected"),
        ({"dryRun": "yes"}, "request.dryRun: true or false is expected"),
    ],
)
async def test_a_review_with_wrong_types_is_refused_with_the_field(hooks, change, said):
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    request = {"uid": "u", "operation": "CREATE", **change}
    status, text = await hooks.post("/mutate", {**review, "request": request})
    assert status == 400
    assert said in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"objects": {}}, "request.objects: a list is expected"),
        ({"objects": [thing(), 5]}, "request.objects[1]: an object is expected"),
        ({"objects": [{"metadata": 5}]}, "request.objects[0].metadata: an object is expected"),
        ({"desiredAPIVersion": 5}, "request.desiredAPIVersion: a text is expected"),
        ({"desiredAPIVersion": ""}, "request.desiredAPIVersion is missing"),
    ],
)
async def test_a_conversion_with_wrong_types_is_refused_with_the_field(hooks, change, said):
    request = {"uid": "u", "desiredAPIVersion": "g/v2", "objects": [], **change}
    review = {"apiVersion": "v1", "kind": "ConversionReview", "request": request}
    status, text = await hooks.post("/convert", review)
    assert status == 400
    assert said in text


@pytest.mark.parametrize("body", [b"[" + b"{}," * 160_000 + b"{}]", b"[" + b"1," * 700_000 + b"1]"])
async def test_a_review_of_too_many_values_is_not_decoded(hooks, body):
    """Five bytes of it take a hundred and more when they are decoded."""
    assert len(body) < MAX_BODY
    for path in ("/convert", "/mutate"):
        status, text = await hooks.post(path, body)
        assert (status, text) == (413, "the review has too many values")


async def test_large_reviews_are_handled_one_at_a_time(hooks):
    body = orjson.dumps({**thing(), "data": "x" * 300_000})
    review = (
        b'{"apiVersion":"v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"'
    )
    sent = review + b',"object":' + body + b"}}"
    before = hooks.most
    found = await asyncio.gather(*(hooks.post("/slow", sent) for _ in range(4)))
    assert [(status, answer["response"]["allowed"]) for status, answer in found] == [
        (200, True)
    ] * 4
    assert (before, hooks.most) == (0, 1)


async def test_what_is_no_review_is_refused(hooks):
    review = {"apiVersion": "v1", "kind": "AdmissionReview"}
    assert (await hooks.post("/nowhere", {}))[0] == 404
    assert (await hooks.post("/mutate", b""))[0] == 400
    assert (await hooks.post("/mutate", b"{"))[0] == 400
    assert (await hooks.post("/mutate", b"[]"))[0] == 400
    assert (await hooks.post("/mutate", review))[0] == 400
    assert (await hooks.post("/mutate", {**review, "request": {}}))[0] == 400
    assert (await hooks.post("/convert", {**review, "kind": "ConversionReview", "request": {}}))[
        0
    ] == 400
    assert (await hooks.post("/mutate", b"{}", "text/plain"))[0] == 415
    assert (await hooks.post("/mutate", b" " * (MAX_BODY + 1)))[0] == 413
    async with hooks.session.get("/mutate", ssl=hooks.trust) as answer:
        assert answer.status == 405


async def test_the_certificate_is_replaced_while_serving(hooks):

    more = host_names(["127.0.0.1"]) | ServerNames({"more"})
    load(hooks.context, renewed(hooks.certificates, more, time.time()))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", hooks.session._base_url.port, ssl=hooks.trust
    )
    names = writer.get_extra_info("peercert")["subjectAltName"]
    assert ("DNS", "more") in names
    writer.close()
    await writer.wait_closed()
    assert (await hooks.admit("/mutate", thing(size=2)))["allowed"] is True
    assert reader is not None


async def test_a_path_is_served_once(hooks):
    server = WebhookServer("127.0.0.1", 0, None)
    server.mutate("/a", with_default)
    with pytest.raises(ValueError, match="/a is served already"):
        server.validate("/a", small)


def test_field_errors_are_aggregated_without_repetition():
    one = FieldError("a", "FieldValueInvalid", "m")
    assert aggregate([one, one]) == "a: m"
    assert aggregate([one, FieldError("b", "FieldValueInvalid", "m")]) == "[a: m, b: m]"


def test_warnings_stop_at_the_limit_of_all():
    assert len(shortened(["x" * 200] * 100)) == 20
