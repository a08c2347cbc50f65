"""Bytes, headers and types that no client of good will sends: the very words of the answers."""

from __future__ import annotations

import pytest
from real_server import RealServer

MAPS = "/api/v1/namespaces/default/configmaps"
APPLY = "application/apply-patch+yaml"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
UNRECOGNIZED = (
    "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
    "json parse error: json: cannot unmarshal "
)
STRUCT = (
    r'value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; '
    r'Kind string "json:\"kind,omitempty\"" }'
)
UNNAMED = "the name of the object (m based on URL) was undeterminable: name must be provided"
UNTYPED = "failed to create typed patch object (/%s; /v1, Kind=ConfigMap): %s"
INTO_A_MAP = "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "


@pytest.mark.parametrize("path", [MAPS, "/readyz"])
async def test_a_token_that_is_no_text_is_nobodys(api, path):
    found = await api.get(path, headers={"Authorization": b"Bearer \xff\xfe"})
    assert (found.status, found.body["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "odd"])
async def test_the_coding_of_a_body_means_nothing(api, coding):
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    assert (await api.post(MAPS, MAP, headers=headers)).status == 201


@pytest.mark.parametrize(
    ("body", "into"),
    [
        ('{"kind":[]}', 'array into Go struct field .kind of type string ({"kind":[]})'),
        ('{"KIND":{}}', 'object into Go struct field .KIND of type string ({"KIND":{}})'),
        (
            '{"apiVersion":5,"data":{}}',
            'number into Go struct field .apiVersion of type string ({"apiVersion":5,"data":{}})',
        ),
        ('{"kind":false}', 'bool into Go struct field .kind of type string ({"kind":false})'),
        ("[]", f"array into Go {STRUCT} (5b5d)"),
        ("5", f"number into Go {STRUCT} (35)"),
        ('"x"', f"string into Go {STRUCT} (227822)"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_an_object_says_in_texts_what_it_is(api, method, body, into):
    found = await api.call(method, MAPS if method == "POST" else f"{MAPS}/m", body)
    assert (found.status, found.body["message"]) == (400, UNRECOGNIZED + into)


async def test_a_kind_that_is_null_is_not_said(api):
    assert (await api.post(MAPS, {**MAP, "kind": None, "apiVersion": None})).status == 201


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"data": "x"}, 500, UNTYPED % ("m", ".data: expected map, got &{x}")),
        (
            {"data": {"a": 1}},
            500,
            UNTYPED % ("m", ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        ),
        (
            {"metadata": {"name": 5}},
            500,
            UNTYPED
            % ("", ".metadata.name: expected string, got &value.valueUnstructured{Value:5}"),
        ),
        ({"metadata": None}, 400, UNNAMED),
        ({"metadata": {}}, 400, UNNAMED),
        ({"metadata": {"name": ""}}, 400, UNNAMED),
        ({"kind": []}, 400, "invalid object type: /v1, Kind="),
        ({"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": None}, 400, "invalid object type: /, Kind=ConfigMap"),
    ],
)
async def test_an_apply_of_something_else_makes_nothing(api, change, status, message):
    found = await api.patch(f"{MAPS}/m", {**MAP, **change}, APPLY, params={"fieldManager": "x"})
    assert (found.status, found.body["message"]) == (status, message)
    assert (await api.get(f"{MAPS}/m")).status == 404


@pytest.mark.parametrize(("metadata", "shown"), [("x", "x"), ([1, "a"], "[1 a]"), (5, "5")])
async def test_an_apply_without_a_map_of_metadata_is_the_fault_of_the_client(
    api, server, metadata, shown
):
    """The only failure of this kind for which the embedded server has a status of its own."""
    wanted = 500 if isinstance(server, RealServer) else 400
    body = {**MAP, "metadata": metadata}
    found = await api.patch(f"{MAPS}/m", body, APPLY, params={"fieldManager": "x"})
    message = UNTYPED % ("", f".metadata: expected map, got &{{{shown}}}")
    assert (found.status, found.body["message"]) == (wanted, message)
    assert (await api.get(f"{MAPS}/m")).status == 404


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "invalid object type: /, Kind="),
        ("null", "invalid object type: /, Kind="),
        ("[]", f"{INTO_A_MAP}unmarshal array into Go value of type map[string]interface {{}}"),
    ],
)
async def test_an_apply_of_no_object_is_told(api, body, message):
    found = await api.patch(f"{MAPS}/m", body, APPLY, params={"fieldManager": "x"})
    assert (found.status, found.body["message"]) == (400, message)


async def test_an_apply_leaves_out_the_name_of_what_is_there(api):
    await api.post(MAPS, MAP)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
    found = await api.patch(f"{MAPS}/m", body, APPLY, params={"fieldManager": "x"})
    assert (found.status, found.body["data"]) == (200, {"a": "b"})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (rb"\ud800", "\ufffd"),
        (rb"\\ud800", r"\ud800"),
        (rb"\ud83d\ude00\udc00x", "\U0001f600\ufffdx"),
        (rb"\ud800\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\ud800\u0041", "\ufffdA"),
        (b"\xff\xfe.", "\ufffd\ufffd."),
    ],
)
async def test_half_a_pair_and_bytes_of_no_text_are_replaced(api, given, read):
    body = b'{"metadata":{"name":"m"},"data":{"a":"%s"}}' % given
    assert (await api.post(MAPS, body)).status == 201
    assert (await api.get(f"{MAPS}/m")).body["data"] == {"a": read}
    found = await api.patch(f"{MAPS}/m", b'{"data":{"b":"%s"}}' % given)
    assert (found.status, found.body["data"]["b"]) == (200, read)


async def test_half_a_pair_is_no_name(api):
    found = await api.post(MAPS, rb'{"metadata":{"name":"m\udfff"}}')
    assert (found.status, found.body["details"]["name"]) == (422, "m\ufffd")


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("NaN", "invalid character 'N' looking for beginning of value"),
        ("Infinity", "invalid character 'I' looking for beginning of value"),
        ("-Infinity", "invalid character 'I' in numeric literal"),
    ],
)
async def test_json_has_no_such_numbers(api, number, why):
    body = f'{{"metadata":{{"name":"m"}},"data":{{"a":{number}}}}}'
    found = await api.post(MAPS, body)
    assert found.status == 400
    assert f"couldn't get version/kind; json parse error: {why} (" in found.body["message"]
    await api.post(MAPS, MAP)
    found = await api.patch(f"{MAPS}/m", f'{{"data":{{"a":{number}}}}}')
    assert (found.status, found.body["message"]) == (400, f"error decoding patch: {why}")


@pytest.mark.parametrize(
    ("number", "shown"), [(".nan", "NaN"), (".inf", "+Inf"), ("-.inf", "-Inf")]
)
async def test_yaml_has_numbers_that_json_has_not(api, number, shown):
    body = f"metadata: {{name: m}}\ndata: {{a: {number}}}\n"
    found = await api.post(MAPS, body, headers={"Content-Type": "application/yaml"})
    assert found.status == 400
    assert f": json: unsupported value: {shown} (" in found.body["message"]


BIG = "1" * 5000
YAML = {"Content-Type": "application/yaml"}


@pytest.mark.parametrize(
    ("rest", "read"),
    [
        ("---\n---\n", {}),
        ("---\nmetadata: {name: other}\n", {}),
        ("---\n}", {}),
        (f"data: {{a: {BIG}}}\n", {"a": BIG}),
        (f"data: {{a: 0x{BIG}}}\n", {"a": f"0x{BIG}"}),
        (f"other: {{a: -{BIG}.5}}\n", {}),
        ("other: {a: 99999999999999999999999}\n", {}),
        ("data: {a: !foo b}\n", {"a": "b"}),
        ("data: {a: !foo null}\n", {"a": "null"}),
        ("data: !foo {a: b}\n", {"a": "b"}),
        ("data: {a: !!binary aGVsbG8=}\n", {"a": "hello"}),
        ("data: {a: !!timestamp 2001-01-01}\n", {"a": "2001-01-01"}),
        ("other: !!omap [a: b]\n", {}),
        ("data: {true: b, 0x10: c}\n", {"true": "b", "16": "c"}),
    ],
)
async def test_what_yaml_means(api, rest, read):
    """The first document counts, unknown tags mean nothing, and too large numbers are texts."""
    found = await api.post(MAPS, f"metadata: {{name: m}}\n{rest}", headers=YAML)
    assert (found.status, found.body.get("data", {})) == (201, read)


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("data: {null: b}", 'unsupported map key of type: %!s(<nil>), key: <nil>, value: "b"'),
        ("other: {~: b}", 'unsupported map key of type: %!s(<nil>), key: <nil>, value: "b"'),
        ("data: {a: !!int b}", "yaml: cannot decode !!str `b` as a !!int"),
        ("other: !!int 1.5", "yaml: cannot decode !!float `1.5` as a !!int"),
        ('data: {a: !!binary "%%"}', "yaml: !!binary value contains invalid base64 data"),
    ],
)
async def test_what_yaml_cannot_mean(api, rest, why):
    found = await api.post(MAPS, f"metadata: {{name: m}}\n{rest}\n", headers=YAML)
    assert found.status == 400
    assert f"(must be of type ConfigMap): {why} (" in found.body["message"]


@pytest.mark.parametrize(
    ("media", "status"), [("json", 200), ("strategic-merge", 200), ("merge", 400)]
)
async def test_a_patch_of_nothing_changes_nothing(api, media, status):
    made = await api.post(MAPS, MAP)
    found = await api.patch(f"{MAPS}/m", "null", f"application/{media}-patch+json")
    assert found.status == status
    assert found.body["message"] == "Invalid JSON Patch" if status == 400 else True
    assert (await api.get(f"{MAPS}/m")).body["metadata"] == made.body["metadata"]


@pytest.mark.parametrize("path", ["//api/v1/namespaces", "/api/v1//namespaces"])
async def test_a_path_has_no_empty_parts(api, path):
    url = api.client.base_url.copy_with(raw_path=path.encode())
    found = await api.client.get(url)
    assert found.status_code == 404
    assert (found.text == "404 page not found\n") is path.startswith("//")


NOT_SET = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
NOT_ASKED = (
    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
)
CONTINUED = "Forbidden: resourceVersionMatch is forbidden when continue is provided"


def unknown(match):
    return f'Unsupported value: "{match}": supported values: "NotOlderThan"'


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("sendInitialEvents=true", [NOT_SET]),
        ("resourceVersionMatch=Exact", [NOT_ASKED, unknown("Exact")]),
        ("sendInitialEvents=true&resourceVersionMatch=Foo", [NOT_SET, unknown("Foo")]),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", [CONTINUED]),
    ],
)
@pytest.mark.parametrize("version", ["x", "1"])
async def test_the_options_of_a_watch_come_before_its_version(api, query, causes, version):
    found = await api.get(f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version}&{query}")
    assert found.status == 422
    told = found.body["details"]["causes"]
    assert [each["message"] for each in told] == causes
    assert {each["field"] for each in told} == {"resourceVersionMatch"}


async def test_a_watch_of_the_present_does_not_continue(api):
    found = await api.get(f"{MAPS}?watch=1&timeoutSeconds=1&continue=x")
    assert found.status == 422
    assert found.body["details"]["causes"][0]["message"] == CONTINUED


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("x", 'cannot parse "x" as "2006"'),
        ("2024-01-01", 'cannot parse "" as "T"'),
        ("20240201T000000Z", 'cannot parse "0201T000000Z" as "-"'),
        ("2024-01-01T00:00:00Z", 'cannot parse "Z" as ".000000"'),
        ("2024-01-01T00:00:00.1234567Z", 'cannot parse "7Z" as "Z07:00"'),
        ("2024-13-01T00:00:00.000000Z", "month out of range"),
        ("2024-02-30T00:00:00.000000Z", "day out of range"),
        ("2024-02-01T25:00:00.000000Z", "hour out of range"),
        ("2024-02-01T00:00:00.000000+25:00", "time zone offset hour out of range"),
        ("2024-02-01T00:00:00.000000Zx", 'extra text: "x"'),
    ],
)
async def test_why_a_time_cannot_be_read(api, time, why):
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    found = await api.post(leases, {"metadata": {"name": "m"}, "spec": {"renewTime": time}})
    layout = ' as "2006-01-02T15:04:05.000000Z07:00"' if "cannot" in why else ""
    assert found.status == 400
    assert found.body["message"].endswith(f': parsing time "{time}"{layout}: {why}')
