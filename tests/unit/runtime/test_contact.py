"""When the API server counts as away."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from aiohttp import web

from kueuelib.api.kinds import NAMESPACES
from kueuelib.errors import ApiError
from kueuelib.runtime.client import Client
from kueuelib.runtime.cluster import ServerContact
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.transport import Transport


class Ended(Exception):
    pass


class Steps:
    """A clock that notes what the contact says before each pause, for so many pauses."""

    def __init__(self, pauses: int) -> None:
        self.at = 1000.0
        self.left = pauses
        self.contact: ServerContact | None = None
        self.said: list[str] = []

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.said.append(self.contact.problem())
        self.left -= 1
        if self.left < 0:
            raise Ended
        self.at += seconds


async def live(contact: ServerContact, clock: Steps) -> list[str]:
    clock.contact = contact
    with pytest.raises(Ended):
        await contact.run(lambda: None)
    return clock.said


async def test_a_server_that_answers_is_asked_only_while_nobody_else_asks(serve):
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"metadata": {}, "items": []})

    clock = Steps(4)
    transport = Transport(Endpoint(url=await serve(handler)), clock=clock)
    async with Client(transport) as client:
        assert await live(ServerContact(client, clock=clock), clock) == [""] * 5
        assert asked == ["/version"] * 4
        asked.clear()
        clock.left = 0
        await client.list(NAMESPACES)
        await live(ServerContact(client, clock=clock), clock)
        assert asked == ["/api/v1/namespaces"]


@pytest.mark.parametrize("status", [401, 403, 404, 429])
async def test_a_refusal_is_an_answer(serve, status):
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({}, status=status)

    clock = Steps(6)
    transport = Transport(Endpoint(url=await serve(handler)), clock=clock)
    async with Client(transport) as client:
        assert set(await live(ServerContact(client, clock=clock), clock)) == {""}


async def test_a_server_that_is_away_is_told_with_the_time_and_the_reason(serve):
    broken = True

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({}, status=503 if broken else 200)

    clock = Steps(6)
    transport = Transport(Endpoint(url=await serve(handler)), clock=clock)
    async with Client(transport) as client:
        contact = ServerContact(client, clock=clock)
        with structlog.testing.capture_logs() as logs:
            said = await live(contact, clock)
            assert said[:4] == [""] * 4
            assert said[4].startswith("the API server has not answered for 20 s (")
            assert said[6].startswith("the API server has not answered for 30 s (")
            broken = False
            clock.left = 1
            await live(contact, clock)
        assert contact.problem() == ""
        assert [line["event"] for line in logs] == ["not ready", "the API server answers again"]


async def test_a_failed_call_of_somebody_else_is_no_answer(serve):
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({}, status=500)

    clock = Steps(0)
    transport = Transport(Endpoint(url=await serve(handler)), clock=clock)
    async with Client(transport) as client:
        with pytest.raises(ApiError):
            await client.transport.request("GET", "/apis")
        assert client.transport.answered_at is None


async def test_an_opened_watch_is_an_answer(serve):
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        await asyncio.sleep(60)
        return answer

    clock = Steps(0)
    transport = Transport(Endpoint(url=await serve(handler)), clock=clock)
    async with Client(transport) as client:
        stream = await client.transport.watch("/api/v1/pods", timeout=60)
        assert client.transport.answered_at == 1000.0
        await stream.aclose()
