"""The APIs of other servers in discovery."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kueuelib.embedded.credentials import Authority
from kueuelib.embedded.http import aggregation
from kueuelib.embedded.server import ApiServer

pytestmark = pytest.mark.embedded
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
FLUNDER = {"name": "flunders", "kind": "Flunder", "namespaced": True, "verbs": ["get"]}


@asynccontextmanager
async def another(tmp_path, handle):
    """Its port."""
    certificate, key = Authority(time.time()).issue("other", hosts=("127.0.0.1",))
    (tmp_path / "other.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "other.pem")
    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
def api_of(tmp_path, open_api):
    """A server whose group `other.io` is served by a function."""

    @asynccontextmanager
    async def begin(handle):
        async with another(tmp_path, handle) as port:
            given = {"default/other": f"127.0.0.1:{port}"}
            async with ApiServer(services=given) as server, open_api(server) as api:
                spec = {
                    "group": "other.io",
                    "version": "v1",
                    "service": {"namespace": "default", "name": "other"},
                    "insecureSkipTLSVerify": True,
                    "groupPriorityMinimum": 1000,
                    "versionPriority": 15,
                }
                path = "/apis/apiregistration.k8s.io/v1/apiservices"
                body = {"metadata": {"name": "v1.other.io"}, "spec": spec}
                assert (await api.post(path, body)).status == 201
                yield api

    return begin


async def discovered(api):
    """The version `v1` of the other group; answered at once."""
    async with asyncio.timeout(2):
        found = await api.get("/apis", headers={"Accept": AGGREGATED})
    assert found.status == 200
    (group,) = [each for each in found.body["items"] if each["metadata"]["name"] == "other.io"]
    return group["versions"][0]


async def test_the_resources_of_another_server_are_learned(api_of):
    asked = []

    async def handle(request):
        asked.append((request.path, request.headers["X-Remote-User"]))
        return web.json_response({"kind": "APIResourceList", "resources": [FLUNDER]})

    async with api_of(handle) as api, asyncio.timeout(20):
        while (found := await discovered(api))["freshness"] == "Stale":
            await asyncio.sleep(0.01)
    assert [each["resource"] for each in found["resources"]] == ["flunders"]
    assert asked == [("/apis/other.io/v1", "system:kube-aggregator")]


@pytest.mark.parametrize(
    "resources",
    [
        [FLUNDER, 5],
        [FLUNDER, None],
        [{**FLUNDER, "name": None}],
        [{**FLUNDER, "verbs": 5}],
        [{**FLUNDER, "shortNames": [5]}],
        5,
    ],
)
async def test_a_server_that_lists_nonsense_is_stale(api_of, caplog, resources):
    caplog.set_level("INFO", "kueuelib.embedded")

    async def handle(request):
        return web.json_response({"kind": "APIResourceList", "resources": resources})

    async with api_of(handle) as api, asyncio.timeout(20):
        while "the resources of /apis/other.io/v1 are unknown" not in caplog.text:
            await asyncio.sleep(0.01)
        assert await discovered(api) == {"version": "v1", "freshness": "Stale"}


async def test_discovery_does_not_wait_for_a_server_that_hangs(api_of):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handle(request):
        begun.set()
        await ended.wait()
        return web.Response()

    async with api_of(handle) as api:
        async with asyncio.timeout(20):
            await begun.wait()
        assert (await discovered(api))["freshness"] == "Stale"
        ended.set()


async def test_a_list_without_end_is_given_up(api_of, caplog, monkeypatch):
    monkeypatch.setattr(aggregation, "LIST_SECONDS", 0.2)
    caplog.set_level("INFO", "kueuelib.embedded")

    async def handle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 1000)
            await asyncio.sleep(0)  # or else nobody learns that the connection is gone

    async with api_of(handle) as api, asyncio.timeout(20):
        while "the resources of /apis/other.io/v1 are unknown" not in caplog.text:
            await asyncio.sleep(0.01)
        assert (await discovered(api))["freshness"] == "Stale"
