"""Servers and credentials that an `ApiClient` or a `Configuration` of kubernetes_asyncio names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from kubernetes_asyncio import client as k8s

from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError, TransportError, Unauthorized
from kueuelib.runtime.certificates import host_names, load, renewed, server_context
from kueuelib.runtime.connection import connect
from kueuelib.runtime.endpoint import REFRESH, ConfigurationSource
from kueuelib.runtime.transport import FORCED_REFRESH_PAUSE

ONE = ObjectKey("ns", "a")


async def echo(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") == "Bearer refused":
        return web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401)
    return web.json_response(dict(request.headers))


@pytest.fixture
async def given(serve: Any) -> k8s.Configuration:
    return k8s.Configuration(host=await serve(echo))


async def ask(given: Any, **more: Any) -> Any:
    client = await connect(given, **more)
    async with client:
        return await client.get(JOBS, ONE)


async def test_a_configuration_says_the_server_and_the_token(given: k8s.Configuration) -> None:
    assert "Authorization" not in await ask(given)
    given.api_key = {"BearerToken": "Bearer  t\n"}
    got = await ask(given)
    assert (got["Authorization"], got["User-Agent"]) == ("Bearer t", "kueuelib")
    given.api_key, given.api_key_prefix = {"BearerToken": "u"}, {"BearerToken": "Bearer"}
    assert (await ask(given))["Authorization"] == "Bearer u"
    given.api_key, given.username, given.password = {}, "u", "p"
    assert (await ask(given))["Authorization"] == "Basic dTpw"


async def test_a_client_has_headers_as_well(given: k8s.Configuration) -> None:
    async with k8s.ApiClient(given, "Impersonate-User", "boss", cookie="a=b") as api:
        got = await ask(api)
        assert (got["Impersonate-User"], got["Cookie"]) == ("boss", "a=b")
        assert got["User-Agent"] == "kueuelib"
        api.user_agent = "mine"
        assert (await ask(api))["User-Agent"] == "mine"
        assert (await ask(api, user_agent="other"))["User-Agent"] == "other"


@pytest.mark.parametrize("awaited", [True, False])
async def test_the_hook_is_asked_again_and_a_changed_token_is_used(
    given: k8s.Configuration, clock: Any, awaited: bool
) -> None:
    asked: list[str] = []

    def refresh(configuration: k8s.Configuration) -> None:
        asked.append(f"Bearer {len(asked)}")
        configuration.api_key["BearerToken"] = asked[-1]

    async def refresh_later(configuration: k8s.Configuration) -> None:
        refresh(configuration)

    given.refresh_api_key_hook = refresh_later if awaited else refresh
    async with await connect(given, clock=clock) as client:
        assert (await client.get(JOBS, ONE))["Authorization"] == "Bearer 0"
        assert (await client.get(JOBS, ONE))["Authorization"] == "Bearer 0"
        clock.at += REFRESH
        assert (await client.get(JOBS, ONE))["Authorization"] == "Bearer 1"
        given.refresh_api_key_hook = None
        given.api_key["BearerToken"] = "Bearer mine"
        clock.at += REFRESH
        assert (await client.get(JOBS, ONE))["Authorization"] == "Bearer mine"


async def test_a_refused_token_makes_the_hook_be_asked_at_once(
    given: k8s.Configuration, clock: Any
) -> None:
    tokens = ["Bearer refused", "Bearer good"]

    def refresh(configuration: k8s.Configuration) -> None:
        configuration.api_key["BearerToken"] = tokens.pop(0)

    given.refresh_api_key_hook = refresh
    assert (await ask(given, clock=clock))["Authorization"] == "Bearer good"


async def test_a_hook_that_fails_is_named(given: k8s.Configuration) -> None:
    given.refresh_api_key_hook = lambda _: 1 / 0
    with pytest.raises(ConfigError, match=r"its refresh_api_key_hook failed \(ZeroDivisionError"):
        await connect(given)


async def test_a_hook_that_fails_later_is_named_with_the_refusal(
    given: k8s.Configuration, clock: Any
) -> None:
    async with await connect(given, clock=clock) as client:
        await client.get(JOBS, ONE)
        given.api_key["BearerToken"] = "Bearer refused"
        clock.at += REFRESH
        with pytest.raises(Unauthorized) as caught:
            await client.get(JOBS, ONE)
        assert caught.value.__cause__ is None
        given.refresh_api_key_hook = lambda _: 1 / 0
        clock.at += FORCED_REFRESH_PAUSE
        with pytest.raises(Unauthorized) as caught:
            await client.get(JOBS, ONE)
        assert "refresh_api_key_hook failed (ZeroDivisionError" in str(caught.value.__cause__)
        given.refresh_api_key_hook = None
        given.api_key["BearerToken"] = "Bearer good"
        clock.at += FORCED_REFRESH_PAUSE
        await client.get(JOBS, ONE)


async def test_a_hook_that_never_answers_is_given_up(given: k8s.Configuration) -> None:
    given.refresh_api_key_hook = lambda _: asyncio.sleep(1000)
    with pytest.raises(ConfigError, match=r"its refresh_api_key_hook failed \(TimeoutError"):
        await connect(given, timeout=0.1)


async def test_certificates_names_and_proxies_are_used(serve: Any, tmp_path: Any) -> None:
    pki = renewed(None, host_names(["127.0.0.1", "api.example"]), 1_800_000_000.0 - 3600)
    context = server_context()
    load(context, pki)
    url = await serve(echo, context)
    given = k8s.Configuration(host=url)
    with pytest.raises(TransportError, match="certificate"):
        await ask(given)
    given.verify_ssl = False
    assert await ask(given)
    given.verify_ssl = True
    (tmp_path / "ca").write_bytes(pki.ca_cert)
    given.ssl_ca_cert = str(tmp_path / "ca")
    given.host, given.tls_server_name = url.replace("127.0.0.1", "localhost"), "api.example"
    source = ConfigurationSource(given)
    endpoint = await source.load()
    assert endpoint.server_hostname == "api.example"
    assert endpoint.tls is (await source.load()).tls, "made once"
    given.proxy = "http://proxy:1"
    assert (await source.load()).proxy == "http://proxy:1"
    given.proxy_headers = {"a": "b"}
    with pytest.raises(ConfigError, match="has proxy_headers, which are not sent"):
        await source.load()


async def test_other_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="3: does not say where a server is; give a path"):
        await connect(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="write the kubeconfig to a file, or use load"):
        await connect({"clusters": []})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Configuration: has no contexts, but context='c'"):
        await connect(k8s.Configuration(), "c")
    with pytest.raises(ConfigError, match="the server '' is not an http or https URL"):
        await connect(k8s.Configuration(host=""))


async def test_an_aio_client_of_the_official_package_works_the_same(serve: Any) -> None:
    aio = pytest.importorskip("kubernetes.aio.client", reason="kubernetes 37 is not installed")
    given = aio.Configuration(host=await serve(echo))
    given.api_key = {"authorization": "Bearer t"}
    assert (await ask(given))["Authorization"] == "Bearer t"
    async with aio.ApiClient(given, "X-Mine", "yes") as api:
        assert (await ask(api))["X-Mine"] == "yes"
    from kubernetes.client import Configuration

    plain = Configuration(host=given.host)
    plain.api_key = {"authorization": "Bearer u"}
    assert (await ask(plain))["Authorization"] == "Bearer u"
    async with await connect(given) as client:
        pods = aio.CoreV1Api(client.api_client())
        with pytest.raises(ConfigError, match=r"use client\.of\(MODEL\)"):
            await pods.list_namespace()
