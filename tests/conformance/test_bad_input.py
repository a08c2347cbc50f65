"""What hostile, clumsy and slow clients get; everybody else is served meanwhile."""

from __future__ import annotations

import asyncio
import json
import ssl
import time

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
CONTAINER = {"name": "c", "image": "i"}


def named(name="m", **fields):
    return {"metadata": {"name": name}, **fields}


async def made(api, name="m"):
    found = await api.post(MAPS, named(name, data={"x": "1"}))
    assert found.status == 201
    return found.body


@pytest.mark.parametrize(
    "selector",
    ["a b", "a=", "a in", "a in (", "a in (b", "=b", "!", "a==b==c", "a notin b", "a,,b", "(a)",
     "é=x", "a" * 500, "a=" + "b" * 64, "a in (" + "b," * 10 + ")", "x/y/z=a"],
)  # fmt: skip
async def test_a_label_selector_that_is_none_is_a_bad_request(api, selector):
    found = await api.get(MAPS, params={"labelSelector": selector})
    if selector in ("a=", "a in (" + "b," * 10 + ")"):
        assert found.status == 200
        return
    assert (found.status, found.body["reason"]) == (400, "BadRequest"), found


@pytest.mark.parametrize("selector", ["a", "metadata.name", "metadata.name>a", "spec.none=a", "=a"])
async def test_a_field_selector_that_is_none_is_a_bad_request(api, selector):
    found = await api.get(MAPS, params={"fieldSelector": selector})
    assert (found.status, found.body["reason"]) == (400, "BadRequest")


async def test_a_replacement_without_a_name_is_a_bad_request(api):
    await made(api)
    found = await api.put(f"{MAPS}/m", {"data": {}})
    assert (found.status, found.body["message"]) == (
        400,
        "the name of the object (m based on URL) was undeterminable: name must be provided",
    )


async def test_a_huge_selector_is_answered_soon(api):
    terms = ",".join(f"k{i} notin (a,b)" for i in range(200))
    assert (await api.get(MAPS, params={"labelSelector": terms})).status == 200


@pytest.mark.parametrize(
    ("type_", "body", "status"),
    [
        (MERGE, "[]", 400),
        (MERGE, "{", 400),
        (MERGE, "null", 400),
        (MERGE, '"x"', 400),
        (MERGE, '{"metadata":null}', 400),
        (MERGE, '{"metadata":{"name":null}}', 400),
        (MERGE, '{"metadata":[]}', 422),
        (MERGE, '{"metadata":{"name":"other"}}', 400),
        (MERGE, '{"metadata":{"uid":"other"}}', 422),
        (MERGE, '{"metadata":{"resourceVersion":"1"}}', 409),
        (MERGE, '{"metadata":{"labels":{"a":1}}}', 422),
        (MERGE, '{"metadata":{"labels":{"a b":"1"}}}', 422),
        (MERGE, '{"kind":"Secret"}', 422),
        (MERGE, '{"apiVersion":"v2"}', 422),
        (JSON_PATCH, "{}", 400),
        (JSON_PATCH, "[1]", 400),
        (JSON_PATCH, '[{"op":"odd","path":"/a"}]', 422),
        (JSON_PATCH, '[{"op":"add"}]', 422),
        (JSON_PATCH, '[{"op":"remove","path":"/data/none"}]', 422),
        (JSON_PATCH, '[{"op":"test","path":"/data/x","value":"2"}]', 422),
        (JSON_PATCH, '[{"op":"replace","path":"","value":1}]', 422),
        (JSON_PATCH, '[{"op":"move","from":"/data","path":"/data/x"}]', 422),
        (JSON_PATCH, json.dumps([{"op": "test", "path": "/data/x", "value": "1"}] * 10_001), 413),
        (STRATEGIC, '{"data":{"$patch":"odd"}}', 500),
        (STRATEGIC, "[]", 400),
        (APPLY, "{", 400),
        (APPLY, "[]", 400),
        ("text/plain", "{}", 415),
    ],
)  # fmt: skip
async def test_a_bad_patch_changes_nothing(api, type_, body, status):
    before = await made(api)
    found = await api.patch(f"{MAPS}/m", body, type_, params={"fieldManager": "x"})
    assert found.status == status, found
    assert found.body["kind"] == "Status"
    assert (await api.get(f"{MAPS}/m")).body == before


async def test_copies_that_multiply_are_refused(api):
    """Each operation doubles the object: thirty of them would be a billion values."""
    await made(api)
    grow = [{"op": "copy", "from": "/metadata/annotations", "path": "/metadata/annotations/a"}]
    await api.patch(f"{MAPS}/m", {"metadata": {"annotations": {"b": "c" * 1000}}})
    started = time.process_time()
    found = await api.patch(f"{MAPS}/m", grow * 40, JSON_PATCH)
    assert found.status in (400, 413, 422)
    assert time.process_time() - started < 10  # of this process: a busy machine counts for nothing


NAMES = ["", "A", "a_b", "-a", "a-", "a..b", "a/b", "é", "x" * 254, ".", ".."]


@pytest.mark.parametrize("name", NAMES)
async def test_a_bad_name_is_invalid(api, name):
    found = await api.post(MAPS, named(name))
    assert found.status == 422
    assert found.body["details"]["causes"][0]["field"] == "metadata.name"


@pytest.mark.parametrize("version", ["x", "-1", "1.5", "9" * 30, "0x1"])
async def test_a_bad_resource_version_is_told(api, version):
    found = await api.get(MAPS, params={"resourceVersion": version})
    assert (found.status, found.body["reason"]) == (400, "BadRequest")
    params = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": version}
    found = await api.get(MAPS, params=params)
    assert (found.status, found.body.get("reason")) == (500, None)


async def test_a_version_of_the_future_is_told_to_wait(api):
    found = await api.get(MAPS, params={"resourceVersion": "999999"})
    assert (found.status, found.body["reason"]) == (504, "Timeout")
    assert found.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    "token", ["x", "e30", "!!!", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Inh4In0"]
)
async def test_a_bad_continue_token_is_a_bad_request(api, token):
    found = await api.get(MAPS, params={"limit": "1", "continue": token})
    assert (found.status, found.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds"])
async def test_a_number_that_is_empty_is_none(api, name):
    found = await api.get(f"{MAPS}?{name}=")
    assert (found.status, found.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("pair", ["limit=%zz", "limit=1;a=2", "%=1", "labelSelector=%1"])
async def test_a_part_of_a_query_that_cannot_be_decoded_is_dropped(api, pair):
    for name in ("a", "b"):
        await made(api, name)
    found = await api.get(f"{MAPS}?{pair}&fieldSelector=metadata.name%3Da")
    assert (found.status, [each["metadata"]["name"] for each in found.body["items"]]) == (
        200,
        ["a"],
    )


@pytest.mark.parametrize("body", [b"\xff\xfe", b"\x00" * 10, b'{"a":NaN}', b"{'a':1}"])
async def test_bytes_that_are_no_json_are_a_bad_request(api, body):
    assert (await api.post(MAPS, body)).status == 400


@pytest.mark.parametrize(
    "content_type", ["application/yaml", "application/vnd.kubernetes.protobuf"]
)
@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"\x00", b"&a [*a]", b"? {a: b}\n: c", b"k8s\x00\xff"]
)
async def test_bytes_of_other_types_are_a_bad_request(api, content_type, body):
    headers = {"Content-Type": content_type}
    found = await api.call("POST", MAPS, body, headers=headers)
    assert found.status in (400, 415, 422)


async def test_a_body_just_below_the_limit_is_read(api):
    value = "x" * (2**20 - 100)
    assert (await api.post(MAPS, named(data={"x": value}))).status == 201
    wide = {"metadata": {"name": "n"}, "spec": {"containers": [CONTAINER] * 2_000}}
    found = await api.post(PODS, wide)
    assert found.status == 422


async def test_odd_paths_are_not_found(api):
    for path in (
        "/api/v1/namespaces/default/none",
        "/api/v2/pods",
        "/apis/none/v1/x",
        "/api/v1/namespaces/default/pods/a/b/c",
        "/api/v1/pods/a",
        "/none",
        "/apis//v1",
        "/api/v1/namespaces/default/pods/%2e%2e/x",
    ):
        found = await api.get(path)
        assert found.status == 404, path


async def test_deep_nesting_in_any_form_is_refused(api):
    await made(api)
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    for type_ in (MERGE, STRATEGIC):
        found = await api.patch(f"{MAPS}/m", f'{{"data":{deep}}}', type_)
        assert found.status in (400, 422)
    yaml = "[" * 5000
    headers = {"Content-Type": "application/yaml"}
    assert (await api.call("POST", MAPS, yaml, headers=headers)).status == 400
    quoted = '{"metadata":{"name":"q","annotations":{"a":' + json.dumps(deep) + "}}}"
    assert (await api.post(MAPS, quoted)).status == 201


# ---- slow, idle and broken connections


async def connect(server):
    context = ssl.create_default_context(cadata=server.ca.decode())
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=context)


def head(server, path, method="GET", **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.token}"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def test_a_thousand_idle_watchers_cost_the_others_nothing(api, server):
    count = 1000
    streams = []
    gate = asyncio.Semaphore(50)

    async def open_one():
        async with gate:
            reader, writer = await connect(server)
            writer.write(head(server, f"{MAPS}?watch=true"))
            line = await reader.readline()
            assert b"200" in line
            streams.append((reader, writer))

    async with asyncio.timeout(90):
        await asyncio.gather(*(open_one() for _ in range(count)))
        await made(api, "seen")
        assert (await api.get(f"{MAPS}/seen")).status == 200

        async def told(reader):
            await reader.readuntil(b'"name":"seen"')

        await asyncio.gather(*(told(reader) for reader, _ in streams))
    for _, writer in streams:
        writer.transport.abort()
    await asyncio.sleep(0)
    assert (await api.get(f"{MAPS}/seen")).status == 200


async def test_a_watcher_that_does_not_read_does_not_hold_the_others_up(api, server):
    """Its events wait in the log, which is bounded; others get theirs."""
    reader, writer = await connect(server)
    writer.write(head(server, f"{MAPS}?watch=true"))
    await reader.readline()
    await made(api)
    value = "x" * 100_000
    for i in range(150):
        changed = await api.patch(f"{MAPS}/m", {"data": {"x": f"{value}{i}"}})
        assert changed.status == 200
    events = await api.watch(MAPS, 1)
    assert events[0]["object"]["data"]["x"].endswith("149")
    writer.transport.abort()
    await asyncio.sleep(0)


async def test_half_open_connections_do_not_hold_the_others_up(api, server):
    writers = []
    for start in (b"", b"GET /api", head(server, MAPS, "POST", Content_Length="100") + b"{"):
        for _ in range(20):
            _, writer = await connect(server)
            writer.write(start)
            writers.append(writer)
    raw = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
    for _ in range(5):
        assert (await api.get(MAPS)).status == 200
    for writer in (*writers, *(each for _, each in raw)):
        writer.transport.abort()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
)
async def test_what_is_no_http_is_answered_or_cut_off(api, server, sent):
    reader, writer = await connect(server)
    writer.write(sent)
    async with asyncio.timeout(60):
        first = await reader.readline()
    assert not first or first.split()[1] in (b"400", b"401", b"404", b"431", b"501", b"505")
    writer.transport.abort()
    assert (await api.get(MAPS)).status == 200


@pytest.mark.parametrize("path", ["/api/v1/%zz", "/api%", "/healthz/%4", f"{MAPS}/%g0"])
async def test_a_path_that_cannot_be_decoded_is_a_bad_request(server, path):
    reader, writer = await connect(server)
    writer.write(head(server, path, Connection="close"))
    async with asyncio.timeout(20):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"\r\n\r\n400 Bad Request")
    writer.transport.abort()


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "OPTIONS"])
async def test_who_forgets_tls_is_told(server, method):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"{method} /api HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    async with asyncio.timeout(20):
        assert await reader.read() == (
            b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
        )
    writer.transport.abort()


@pytest.mark.parametrize(("path", "status"), [(MAPS, 201), ("/api/v1/namespaces/a/none", 404)])
async def test_who_waits_with_a_body_is_told_to_go_on_where_it_is_read(server, path, status):
    reader, writer = await connect(server)
    body = json.dumps(named()).encode()
    more = {"Content_Type": "application/json", "Content_Length": str(len(body))}
    writer.write(head(server, path, "POST", Expect="100-continue", **more))
    async with asyncio.timeout(20):
        if status < 300:
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
        assert (await reader.readline()).startswith(f"HTTP/1.1 {status} ".encode())
    writer.transport.abort()


async def test_who_waits_for_something_else_is_refused(server):
    reader, writer = await connect(server)
    more = {"Content_Type": "application/json", "Content_Length": "2"}
    writer.write(head(server, MAPS, "POST", Expect="more", **more))
    async with asyncio.timeout(20):
        assert (await reader.readline()).startswith(b"HTTP/1.1 417 ")
    writer.transport.abort()


async def test_clients_that_leave_in_the_middle_are_forgotten(api, server):
    for i in range(30):
        _, writer = await connect(server)
        writer.write(head(server, f"{MAPS}?watch=true") if i % 2 else head(server, MAPS))
        writer.transport.abort()
    await made(api)
    assert (await api.get(MAPS)).status == 200
