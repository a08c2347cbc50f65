from __future__ import annotations

import asyncio
import socket
import time
from unittest.mock import patch

import pytest
import structlog
import yaml
from aiohttp import web

from kueuelib.errors import ConfigError
from kueuelib.runtime import dialling
from kueuelib.runtime.certificates import host_names, load, renewed, server_context
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect, wait_for_server
from kueuelib.runtime.endpoint import Endpoint, TlsFiles, client_tls
from kueuelib.runtime.transport import Throttle, Transport


def client_for(url: str, **more) -> Client:
    return Client(Transport(Endpoint(url=url, source="the.kubeconfig", **more)))


async def test_a_server_that_comes_late_is_waited_for_visibly(serve, clock):
    answers = iter([503, 500, 200])

    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/version"
        return web.json_response({}, status=next(answers))

    async with client_for(await serve(handler)) as client:
        with structlog.testing.capture_logs() as logs:
            await wait_for_server(client, clock=clock)
    assert [line["event"] for line in logs] == ["waiting for the API server"] * 2
    assert clock.slept[1] > clock.slept[0]


async def test_an_unreachable_server_is_given_up_in_time(clock):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{found.getsockname()[1]}"
        async with client_for(url) as client:
            with pytest.raises(ConfigError) as caught:
                await wait_for_server(client, 60, clock=clock)
    text = str(caught.value)
    assert text.startswith(f"{url} (from the.kubeconfig): the API server did not answer within 60")
    assert "Connection refused" in text
    assert sum(clock.slept) == pytest.approx(60)


async def test_who_only_asks_does_not_wait_for_a_port_where_nobody_listens(clock):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{found.getsockname()[1]}"
        async with client_for(url) as client:
            with pytest.raises(ConfigError) as caught:
                await wait_for_server(client, 60, starting=False, clock=clock)
    text = str(caught.value)
    assert text.startswith(f"{url} (from the.kubeconfig): no API server listens there")
    assert text.endswith("; start it, or correct the cluster's server")
    assert clock.slept == []


async def test_who_only_asks_waits_for_a_server_that_may_recover(serve, clock):
    answers = iter([503, 429, 200])

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({}, status=next(answers))

    async with client_for(await serve(handler)) as client:
        await wait_for_server(client, starting=False, clock=clock)
    assert len(clock.slept) == 2


async def test_refused_credentials_are_told_at_once(serve, clock):
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "message": "who?"}, status=401)

    async with client_for(await serve(handler)) as client:
        with pytest.raises(ConfigError, match=r"refused the credentials \(who\?\)"):
            await wait_for_server(client, clock=clock)
    assert clock.slept == []


async def test_a_user_who_may_do_little_has_reached_the_server(serve, clock):
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status"}, status=403)

    async with client_for(await serve(handler)) as client:
        await wait_for_server(client, clock=clock)
    assert clock.slept == []


async def test_something_else_than_an_api_server_is_told_at_once(serve, clock):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=404, text="nothing here")

    async with client_for(await serve(handler)) as client:
        with pytest.raises(ConfigError, match="is not an API server"):
            await wait_for_server(client, clock=clock)


async def test_an_untrusted_server_is_told_at_once(serve, clock):
    made = renewed(None, host_names(["127.0.0.1"]), time.time())
    context = server_context()
    load(context, made)

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({})

    url = await serve(handler, context)
    other = renewed(None, host_names(["x"]), time.time())
    tls = client_tls(TlsFiles(ca_data=other.ca_cert), "test")
    async with client_for(url, tls=tls) as client:
        with pytest.raises(ConfigError, match="check the cluster's server and certificate-auth"):
            await wait_for_server(client, clock=clock)
    assert clock.slept == []


async def test_connecting_checks_the_configuration_without_a_request(tmp_path):
    path = tmp_path / "config"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1/"}}],
    }
    path.write_text(yaml.safe_dump(document))
    async with await connect(path, qps=5) as client:
        assert (await client.transport.endpoint()).url == "http://127.0.0.1:1"
    path.write_text("{")
    with pytest.raises(ConfigError):
        await connect(path)


async def test_a_throttle_spreads_calls(clock):
    throttle = Throttle(10, 2, clock)
    for _ in range(4):
        await throttle()
    assert clock.slept == pytest.approx([0.1, 0.1])


@pytest.fixture
async def silent(serve):
    """A client whose server ends no answer, its sockets, and an event when a call is there."""
    sockets, asked = [], asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        if request.path != "/silent":
            await answer.prepare(request)
        asked.set()
        await asyncio.sleep(3600)
        return answer

    def made(address):
        sockets.append(make(address))
        return sockets[-1]

    certificate = renewed(None, host_names(["127.0.0.1"]), time.time())
    context = server_context()
    load(context, certificate)
    url = await serve(handler, context)
    tls = client_tls(TlsFiles(ca_data=certificate.ca_cert), "test")
    make = dialling.new_socket
    with patch.object(dialling, "new_socket", made):
        async with client_for(url, tls=tls) as client:
            yield client, sockets, asked


async def test_the_socket_of_a_watch_that_is_left_closes_without_a_goodbye(silent):
    """The goodbye of TLS takes a round trip, which an event loop may not live to see."""
    client, sockets, _ = silent
    stream = await client.transport.watch("/api/v1/pods", timeout=60)
    await stream.aclose()
    await asyncio.sleep(0)
    assert [each.fileno() for each in sockets] == [-1]


@pytest.mark.parametrize("path", ["/silent", "/half"])
async def test_the_socket_of_a_call_that_is_left_closes_without_a_goodbye(silent, path):
    client, sockets, asked = silent
    call = asyncio.create_task(client.transport.request("GET", path))
    await asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)
    assert [each.fileno() for each in sockets] == [-1]
