"""The server of the page: for the browsers of this machine, for reading, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import attrs
import orjson
import pytest
from report_worlds import facts, waits, world

from kueuelib.api.meta import ObjectKey
from kueuelib.app.overview.gathering import explained
from kueuelib.cli.report import serving as module
from kueuelib.cli.report.board import PageState, state_of
from kueuelib.cli.report.serving import LOOPBACK, MOST_ANSWERS, MOST_READERS, ReportSite
from kueuelib.runtime.http import serving
from kueuelib.scheduler.explain.answer import Explanation

FIRST = state_of("v1", facts())
SECOND = state_of("v2", facts(world().with_workload(waits("more", "a"))), FIRST)
PATIENCE = 30.0


@attrs.define
class Stub:
    """States that a test gives out."""

    state: PageState = FIRST
    trouble: str = ""
    readers: int = 0
    changed: anyio.Event = attrs.field(factory=anyio.Event)
    answers: anyio.Event = attrs.field(factory=anyio.Event)

    def publish(self, state: PageState) -> None:
        self.state = state
        self.changed.set()
        self.changed = anyio.Event()

    async def explain(self, key: ObjectKey) -> Explanation | None:
        if key.name == "slow":
            await self.answers.wait()
        return explained(self.state.facts, key)


@attrs.frozen
class Running:
    stub: Stub
    site: ReportSite
    http: aiohttp.ClientSession

    def url(self, path: str = "/") -> str:
        return f"http://{LOOPBACK}:{self.site.port}{path}"

    async def get(self, path: str = "/", **headers: str) -> aiohttp.ClientResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.get(self.url(path), headers=named)


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    stub = Stub()
    site = ReportSite(stub)  # type: ignore[arg-type]
    async with (
        serving(site.application(), LOOPBACK, 0, drain=0.1) as site.port,
        aiohttp.ClientSession() as http,
    ):
        yield Running(stub, site, http)
        site.close()


async def test_the_page_comes_with_strict_headers() -> None:
    async with running() as found, await found.get() as answer:
        text = await answer.text()
        assert answer.status == 200
        assert 'data-live="v1"' in text
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost"])
async def test_a_name_that_leads_here_by_accident_or_malice_is_refused(host: str) -> None:
    async with running() as found:
        for path in ("/", "/events", "/explain/ns/wait-0"):
            async with await found.get(path, Host=host) as answer:
                assert answer.status == 421
                assert "wait-0" not in await answer.text()
                assert answer.headers["X-Frame-Options"] == "DENY"


async def test_localhost_is_this_machine_too() -> None:
    async with running() as found, await found.get(Host=f"localhost:{found.site.port}") as answer:
        assert answer.status == 200


async def test_other_sites_may_link_to_the_page_and_read_nothing() -> None:
    async with running() as found:
        for path, mode, status in (
            ("/", "navigate", 200),
            ("/", "no-cors", 403),
            ("/explain/ns/wait-0", "navigate", 403),
            ("/events?from=", "cors", 403),
        ):
            headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": mode}
            async with await found.get(path, **headers) as answer:
                assert (path, mode, answer.status) == (path, mode, status)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"])
async def test_it_can_only_be_read(method: str) -> None:
    async with running() as found, found.http.request(method, found.url()) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_what_is_not_there_is_not_found() -> None:
    async with running() as found:
        for path in ("/absent", "/explain/ns/absent", "/explain/ns"):
            async with await found.get(path) as answer:
                assert answer.status == 404
                assert "Content-Security-Policy" in answer.headers


async def test_a_whole_answer_is_a_part_of_a_page() -> None:
    async with running() as found, await found.get("/explain/ns/wait-0") as answer:
        text = await answer.text()
        assert answer.status == 200
        assert "raise nominalQuota" in text
        assert "<html" not in text


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, Any]]:
    """The events of a stream: name, id, data."""
    fields: dict[str, str] = {}
    async for line in answer.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif fields:
            if "data" in fields:
                yield fields["event"], fields.get("id", ""), orjson.loads(fields["data"])
            fields = {}


async def test_an_open_page_hears_of_what_changed_and_of_nothing_else() -> None:
    async with running() as found, asyncio.timeout(PATIENCE):
        async with await found.get("/events?from=v1") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert "Content-Security-Policy" in answer.headers
            stream = events(answer)
            found.stub.publish(SECOND)
            name, version, data = await anext(stream)
            assert (name, version, data["whole"]) == ("change", "v2", False)
            assert "waits/ns/more" in data["html"]
            assert "waits/ns/wait-1" not in data["html"]
            assert data["order"] == {"queue/a/rows": list(SECOND.shown.order["queue/a/rows"])}
        async with await found.get("/events", Last_Event_ID="older") as answer:
            name, version, data = await anext(events(answer))
            assert (name, version, data["whole"]) == ("change", "v2", True)
            assert set(data["html"]) == set(SECOND.shown.html)


async def test_a_page_hears_that_the_state_may_be_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr(module, "HEARTBEAT", 0.01)
    async with (
        running() as found,
        asyncio.timeout(PATIENCE),
        await found.get("/events?from=v1") as answer,
    ):
        stream = events(answer)
        found.stub.trouble = "the watch broke"
        assert await anext(stream) == ("trouble", "", "the watch broke")
        found.stub.trouble = ""
        assert await anext(stream) == ("well", "", "")


async def test_silence_is_broken_by_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr(module, "HEARTBEAT", 0.01)
    async with (
        running() as found,
        asyncio.timeout(PATIENCE),
        await found.get("/events?from=v1") as answer,
    ):
        lines = [await answer.content.readline() for _ in range(3)]
        assert lines == [b"retry: 2000\n", b"\n", b": still here\n"]


async def test_pages_and_answers_are_limited() -> None:
    async with running() as found, asyncio.timeout(PATIENCE):
        pages = [await found.get("/events?from=v1") for _ in range(MOST_READERS)]
        async with await found.get("/events?from=v1") as answer:
            assert answer.status == 503
        pages.pop().close()
        while found.stub.readers == MOST_READERS:
            found.stub.publish(SECOND if found.stub.state is FIRST else FIRST)
            await asyncio.sleep(0.01)
        async with await found.get("/events?from=v1") as answer:
            assert answer.status == 200
        slow = [asyncio.create_task(found.get("/explain/ns/slow")) for _ in range(MOST_ANSWERS)]
        while found.site.answers < MOST_ANSWERS:
            await asyncio.sleep(0.01)
        async with await found.get("/explain/ns/wait-0") as answer:
            assert answer.status == 503
        found.stub.answers.set()
        assert [(await one).status for one in slow] == [404] * MOST_ANSWERS
        for page in pages:
            page.close()


async def test_the_end_of_the_server_ends_open_pages() -> None:
    async with (
        running() as found,
        asyncio.timeout(PATIENCE),
        await found.get("/events?from=v1") as answer,
    ):
        found.site.close()
        assert [event async for event in events(answer)] == []
