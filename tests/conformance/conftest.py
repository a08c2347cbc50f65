"""An API server and a plain HTTP client for each test."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from real_server import RealServer, assets, running

from kueuelib.embedded.server import ApiServer

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Answer:
    """Status and decoded body of one answer."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.text = response.text
        kind = response.headers.get("content-type", "")
        told = "json" in kind or self.text.startswith("{")
        self.body: Any = response.json() if told and response.content else None

    def __repr__(self) -> str:
        return f"<{self.status} {self.text[:300]}>"


class Api:
    """One client with the administrator's token."""

    def __init__(self, server: Any, client: httpx.AsyncClient) -> None:
        self.server = server
        self.client = client

    async def call(self, method: str, path: str, body: Any = None, **kwargs: Any) -> Answer:
        if body is not None:
            kwargs.setdefault("headers", {}).setdefault("Content-Type", "application/json")
            kwargs["content"] = body if isinstance(body, str | bytes) else json.dumps(body)
        answer = Answer(await self.client.request(method, path, **kwargs))
        if isinstance(self.server, RealServer) and method != "GET" and answer.status < 300:
            await self.server.settle(path)
        return answer

    async def get(self, path: str, **kwargs: Any) -> Answer:
        return await self.call("GET", path, **kwargs)

    async def post(self, path: str, body: Any, **kwargs: Any) -> Answer:
        return await self.call("POST", path, body, **kwargs)

    async def put(self, path: str, body: Any, **kwargs: Any) -> Answer:
        return await self.call("PUT", path, body, **kwargs)

    async def patch(self, path: str, body: Any, type: str = MERGE, **kwargs: Any) -> Answer:
        return await self.call("PATCH", path, body, headers={"Content-Type": type}, **kwargs)

    async def delete(self, path: str, body: Any = None, **kwargs: Any) -> Answer:
        return await self.call("DELETE", path, body, **kwargs)

    async def becomes(self, status: int, path: str, **kwargs: Any) -> bool:
        """Whether this is the answer; a real server learns of some things later."""
        waits = 150 if isinstance(self.server, RealServer) else 1
        for _ in range(waits):
            if (await self.get(path, **kwargs)).status == status:
                return True
            await asyncio.sleep(0.1)
        return False

    async def watch(self, path: str, count: int, **params: Any) -> list[dict[str, Any]]:
        """The first events of a watch; fewer when it ends by itself."""
        events: list[dict[str, Any]] = []
        params = {"watch": "true", "timeoutSeconds": "5", **params}
        async with self.client.stream("GET", path, params=params) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                events.append(json.loads(line))
                if len(events) == count:
                    break
        return events


def config_map(name: str = "a", **fields: Any) -> dict[str, Any]:
    meta = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "1"}, **fields}


FLAVORS = ("embedded", "real") if assets() else ("embedded",)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "embedded: looks into the server, or at what it is alone in")
    config.addinivalue_line("markers", "server(**options): how the embedded server is started")


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = assets()
    assert folder is not None
    with running(folder, tmp_path_factory.mktemp("real")) as real:
        yield real


@pytest.fixture(params=FLAVORS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """The server that is asked; where the programs are there, every test asks both."""
    if request.param == "embedded":
        marker = request.node.get_closest_marker("server")
        async with ApiServer(**marker.kwargs if marker else {}) as server:
            yield server
        return
    if request.node.get_closest_marker("embedded"):
        pytest.skip("it is about the embedded server alone")
    real: RealServer = request.getfixturevalue("real_server")
    real.clean()
    yield real


@asynccontextmanager
async def opened(server: Any, token: str = "") -> AsyncIterator[Api]:
    """A client with a token, by default the administrator's."""
    context = ssl.create_default_context(cadata=server.ca.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    headers = {"Authorization": f"Bearer {token or server.token}", "User-Agent": "suite/1.0"}
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, verify=context, trust_env=False, timeout=10
    ) as client:
        yield Api(server, client)


@pytest.fixture
def open_api() -> Callable[..., AbstractAsyncContextManager[Api]]:
    return opened


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Api]:
    async with opened(server) as client:
        yield client
