"""APIs of other servers behind this one."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from aiohttp import web
from test_webhooks import SERVICES, Hook, service

REGISTERED = "/apis/apiregistration.k8s.io/v1/apiservices"


class Backend(Hook):
    """A server that answers everything, and remembers the paths."""

    async def handle(self, request):
        self.requests.append(request.raw_path)
        return web.json_response({"kind": "Thing"})


@pytest.fixture
async def backend(tmp_path):
    async with Backend(tmp_path) as backend:
        yield backend


async def register(api, backend, name):
    version, _, group = name.partition(".")
    spec = {
        "group": group,
        "version": version,
        "caBundle": backend.ca,
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
        "service": {"namespace": "default", "name": "hook", "port": backend.port},
    }
    outside = service(type="ExternalName", externalName="localhost")
    assert (await api.post(SERVICES, outside)).status == 201
    return await api.post(REGISTERED, {"metadata": {"name": name}, "spec": spec})


async def test_a_path_goes_to_the_other_server_as_it_was_authorized(api, backend, open_api):
    assert (await register(api, backend, "v1.agg.io")).status == 201
    try:
        root = "/apis/agg.io/v1/namespaces/n1/things"
        assert await api.becomes(200, root)
        for given, received in (
            ("/../../n2/things/a", "/../../n2/things/a"),
            ("/%2e%2e/%2E%2e/n2/things/a?x=%2F..", "/../../n2/things/a?x=%2F.."),
            ("/a%2f..%20%C3%A9", "/a/..%20%C3%A9"),
        ):
            assert await raw_status(api, root + given) == 200
            assert backend.requests[-1] == root + received
    finally:
        await api.delete(f"{REGISTERED}/v1.agg.io")


async def raw_status(api, path):
    """The status of an answer for a path that no client library tidies up."""
    server = api.server
    context = ssl.create_default_context(cadata=server.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    writer.write(f"{head}Authorization: Bearer {server.token}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


@pytest.mark.parametrize("name", ["v1.apiregistration.k8s.io", "v1.authorization.k8s.io"])
async def test_no_other_server_takes_over_a_group_of_this_one(api, backend, name):
    made = await register(api, backend, name)
    assert made.status in (201, 409)
    try:
        group = name.partition(".")[2]
        assert (await api.get(f"/apis/{group}/v1")).body["groupVersion"] == f"{group}/v1"
        assert (await api.get(REGISTERED)).body["kind"] == "APIServiceList"
    finally:
        if made.status == 201:
            assert (await api.delete(f"{REGISTERED}/{name}")).status == 200
