"""The `ApiClient` of a client: what it sends, and what it makes of answers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from aiohttp import web
from kubernetes_asyncio import client as k8s

from kueuelib.errors import ConfigError
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.transport import Transport

MAP = k8s.V1ConfigMap(metadata=k8s.V1ObjectMeta(name="a"))


class Server:
    """Answers every call with the same, and keeps the queries."""

    def __init__(self, body: bytes = b"{}", status: int = 200, **headers: str) -> None:
        self.answer: dict[str, Any] = {"body": body, "status": status, "headers": headers}
        self.queries: list[dict[str, str]] = []

    async def __call__(self, request: web.Request) -> web.Response:
        self.queries.append(dict(request.query))
        return web.Response(**self.answer)


def core_of(url: str, **more: Any) -> k8s.CoreV1Api:
    return k8s.CoreV1Api(Client(Transport(Endpoint(url=url)), **more).api_client())


async def test_writes_are_recorded_under_the_name_of_the_client(serve):
    server = Server()
    core = core_of(await serve(server), field_manager="ported")
    await core.create_namespaced_config_map("d", MAP)
    await core.replace_namespaced_config_map("proxy", "d", MAP)
    await core.patch_namespaced_config_map("a", "d", {}, field_manager="other")
    await core.read_namespaced_config_map("a", "d")
    await core.delete_namespaced_config_map("a", "d")
    await core.connect_post_namespaced_service_proxy_with_path("a", "d", "proxy")
    assert [each.get("fieldManager") for each in server.queries] == [
        "ported",
        "ported",
        "other",
        None,
        None,
        None,
    ]


async def test_headers_and_bodies_are_handed_out_as_they_came(serve):
    core = core_of(await serve(Server(b"<p>no</p>", 503, Server="proxy", **{"X-Trace": "1"})))
    with pytest.raises(k8s.ApiException) as caught:
        await core.list_namespace()
    assert (caught.value.status, caught.value.body) == (503, "<p>no</p>")
    assert (caught.value.headers["x-trace"], caught.value.headers["Server"]) == ("1", "proxy")
    core = core_of(await serve(Server(**{"Content-Type": "application/json", "X-Trace": "2"})))
    _, _, headers = await core.list_namespace_with_http_info()
    assert headers["X-TRACE"] == "2"


async def test_a_timeout_limits_a_call_with_its_repetitions(serve):
    core = core_of(await serve(Server(b"", 429, **{"Retry-After": "3"})))
    with anyio.fail_after(2), pytest.raises(k8s.ApiException) as found:
        await core.list_namespace(_request_timeout=0.2)
    assert found.value.status == 429  # rather than that there was no answer in time


@pytest.mark.parametrize("limit", [(3, None), (None, 3), (3, 3), 3, 3.5])
async def test_what_limits_a_call(serve, limit):
    core = core_of(await serve(Server(**{"Content-Type": "application/json"})))
    assert (await core.list_namespace(_request_timeout=limit)).items is None


@pytest.mark.parametrize("limit", ["3", [3, 3], (1, 2, 3)])
async def test_what_is_no_limit_is_refused(limit):
    with pytest.raises(ConfigError, match="_request_timeout: is .*; give seconds, a pair"):
        await core_of("http://127.0.0.1:1").list_namespace(_request_timeout=limit)


async def test_the_configuration_is_like_the_given_one():
    given = k8s.Configuration(host="http://127.0.0.1:1")
    given.client_side_validation = False
    async with await connect(given) as client:
        api = client.api_client()
        assert api.client_side_validation is False
        assert api.configuration.client_side_validation is False
        assert not api.configuration.api_key
