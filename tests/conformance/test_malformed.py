"""Bytes, headers and types that no client of good will sends: the very words of the answers."""

from __future__ import annotations

import pytest

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
        ({"metadata": "x"}, 500, UNTYPED % ("", ".metadata: expected map, got &{x}")),
        ({"metadata": [1, "a"]}, 500, UNTYPED % ("", ".metadata: expected map, got &{[1 a]}")),
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
