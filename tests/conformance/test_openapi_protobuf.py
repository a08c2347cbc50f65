"""`/openapi/v2` as kubectl asks for it."""

from __future__ import annotations

import pytest

TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def varint(data, at):
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def parts(data, wanted):
    """The values of one field of a message."""
    found, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        size, at = varint(data, at) if tag & 7 in (0, 2) else (8 if tag & 7 == 1 else 4, at)
        if tag & 7 == 0:
            continue
        if tag >> 3 == wanted:
            found.append(data[at : at + size])
        at += size
    return found


def named(data, number=1):
    """A map of messages by name."""
    return {parts(each, 1)[0].decode(): parts(each, 2)[0] for each in parts(data, number)}


@pytest.fixture
async def definitions(api):
    found = await api.client.get("/openapi/v2", headers={"Accept": TYPE})
    assert found.status_code == 200
    assert found.headers["content-type"] == TYPE.replace("@", ".")
    assert parts(found.content, 1) == [b"2.0"]
    assert parts(parts(found.content, 2)[0], 1) == [b"Kubernetes"]
    (all_,) = parts(found.content, 9)
    return named(all_)


async def test_the_document_has_the_schemas(definitions):
    schema = definitions["io.k8s.api.core.v1.ConfigMap"]
    (properties,) = parts(schema, 25)
    fields = named(properties)
    assert {"apiVersion", "kind", "metadata", "data", "immutable"} <= fields.keys()
    assert parts(parts(fields["immutable"], 22)[0], 1) == [b"boolean"]
    (values,) = parts(fields["data"], 21)
    assert parts(parts(parts(values, 1)[0], 22)[0], 1) == [b"string"]
    (ref,) = parts(fields["metadata"], 1)
    assert ref.decode().removeprefix("#/definitions/") in definitions


async def test_a_schema_names_its_kind(definitions):
    extensions = named(definitions["io.k8s.api.batch.v1.Job"], 31)
    told = parts(extensions["x-kubernetes-group-version-kind"], 2)[0].decode()
    for text in ("batch", "Job", "v1"):
        assert text in told


async def test_items_of_lists_are_described(definitions):
    fields = named(parts(definitions["io.k8s.api.core.v1.PodSpec"], 25)[0])
    (items,) = parts(fields["containers"], 23)
    (ref,) = parts(parts(items, 1)[0], 1)
    assert ref == b"#/definitions/io.k8s.api.core.v1.Container"
