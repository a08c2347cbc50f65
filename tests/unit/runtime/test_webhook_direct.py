"""Common reviews are answered without aiohttp, all others as aiohttp answers them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import orjson
import pytest

from kueuelib.runtime import server_limits
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook import fast_path
from kueuelib.runtime.webhook.fast_path import MOST, MOST_HEAD, RECENT
from kueuelib.runtime.webhook.server import WebhookServer

HOST = "127.0.0.1"
OLD = aiohttp.__version__.startswith("3.13.")
LINES = ("Host: a", "Content-Type: application/json")


def review(**spec: Any) -> bytes:
    thing = {"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}
    request = {"uid": "u", "operation": "CREATE", "object": thing}
    return orjson.dumps({"apiVersion": "v1", "kind": "AdmissionReview", "request": request})


def request(body: bytes, *more: str, path: str = "/v", length: int | None = None) -> bytes:
    size = f"Content-Length: {len(body) if length is None else length}"
    lines = (f"POST {path} HTTP/1.1", *LINES, *((size,) if length != -1 else ()), *more, "", "")
    return "\r\n".join(lines).encode() + body


def chunked(body: bytes) -> bytes:
    return request(
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), "Transfer-Encoding: chunked", length=-1
    )


@pytest.fixture
async def server(monkeypatch):
    """Serves `/v`, `/crash` and `/later`; `read` counts the requests that aiohttp reads."""
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 8.0)
    made = WebhookServer(HOST, 0, None, telemetry=Telemetry())
    made.read, handle = [], made._handle

    async def counted(asked):
        made.read.append(asked.path)
        return await handle(asked)

    made._handle = counted

    async def later(_: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"allowed": True, "warnings": ["later"]}

    made.validate("/v", lambda *_: ())
    made.validate("/crash", lambda *_: {}["missing"])
    made.convert("/convert", lambda obj, version: {**obj, "apiVersion": f"g/{version}"})
    made.admit("/later", later, at_once=lambda asked: None)
    ready = asyncio.Event()
    task = asyncio.create_task(made.run(ready.set))
    async with asyncio.timeout(60):
        await ready.wait()
    yield made
    task.cancel()
    await asyncio.wait((task,))


class Caller:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def __call__(self, *parts: bytes, pause: float = 0.02) -> tuple[int, Any]:
        for part in parts:
            self.writer.write(part)
            if len(parts) > 1:
                await asyncio.sleep(pause)
        return await self.answer()

    async def answer(self) -> tuple[int, Any]:
        async with asyncio.timeout(30):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            body = await self.reader.readexactly(size)
        assert "\r\ndate: " in head
        return int(head.split()[1]), orjson.loads(body) if body[:1] == b"{" else body.decode()


@pytest.fixture
async def call(server):
    reader, writer = await asyncio.open_connection(HOST, server.port)
    yield Caller(reader, writer)
    writer.transport.abort()


ALLOWED = {"apiVersion": "v1", "kind": "AdmissionReview", "response": {"allowed": True, "uid": "u"}}


async def test_common_reviews_on_one_connection_are_answered_without_aiohttp(server, call):
    common = request(review(), "Accept: application/json, */*", path="/v?timeout=10s")
    for _ in range(3):
        assert await call(common) == (200, ALLOWED)
    assert server.read == []
    text = server._metrics._telemetry.render().decode()
    assert 'webhook_requests_total{code="200",webhook="/v"} 3.0' in text
    assert 'webhook_requests_in_flight{webhook="/v"} 0.0' in text


@pytest.mark.parametrize(("count", "read"), [(99, 0), (100, 1)])
async def test_a_few_objects_are_converted_without_aiohttp(server, call, count, read):
    thing = {"apiVersion": "g/v1", "kind": "T", "metadata": {"name": "a"}}
    wanted = {"uid": "c", "desiredAPIVersion": "g/v2", "objects": [thing] * count}
    body = {"apiVersion": "v1", "kind": "ConversionReview", "request": wanted}
    status, answered = await call(request(orjson.dumps(body), path="/convert"))
    assert (status, answered["response"]["result"]) == (200, {"status": "Success"})
    converted = answered["response"]["convertedObjects"]
    assert converted == [{**thing, "apiVersion": "g/v2"}] * count
    assert len(server.read) == read


@pytest.mark.parametrize("cut", [1, 30, len(request(b"")) - 2, len(request(b"")) + 20])
async def test_a_review_in_pieces_is_put_together(server, call, cut):
    whole = request(review())
    assert await call(whole[:cut], whole[cut:]) == (200, ALLOWED)
    assert await call(whole) == (200, ALLOWED)
    assert server.read == []


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request(b"{"), 400),
        (request(b"", length=0), 400),
        (request(review(), path="/crash"), 200),
        (request(review(), path="/later"), 200),
        (request(review(data="x" * MOST)), 200),
        (request(review()).replace(b"application/json", b"text/plain"), 415),
        (request(review(), path="/nowhere"), 404),
        (request(review(), path="/%76"), 200),
        (request(review()).replace(b"POST", b"PUT"), 405),
        (chunked(review()), 200),
        (request(review(), "Accept: \xe4"), 200),
        (request(review(), "Connection: keep-alive"), 200),
    ],
)
async def test_others_are_answered_by_aiohttp_and_common_ones_follow(server, call, asked, status):
    assert (await call(asked))[0] == status
    assert len(server.read) == 1
    assert await call(request(review())) == (200, ALLOWED)


@pytest.mark.parametrize(
    "asked",
    [
        request(review(), "Content-Type: application/json"),
        request(review(), "Content-Length: 5"),
        request(review(), "X: a\nTransfer-Encoding: chunked"),
        request(review(), " folded: x"),
        request(review()).replace(b"HTTP/1.1", b"HTTP/1.9"),
        pytest.param(
            request(review()).replace(b"Host: a\r\n", b""),
            marks=pytest.mark.skipif(OLD, reason="aiohttp 3.13 does not ask for a Host"),
        ),
        request(review(), "Host: b"),
        request(review(), "User-Agent: a", "User-Agent: b"),
        request(review(), f"X: {'x' * 9000}"),
        request(review(), *("X: x",) * 300),
        request(review(), path=f"/v?{'x' * 9000}"),
    ],
)
async def test_what_is_doubtful_is_refused(call, asked):
    assert (await call(asked))[0] == 400


async def test_no_header_of_a_long_head_is_looked_at(call, monkeypatch):
    looked = []
    monkeypatch.setattr(fast_path, "_size", lambda headers: looked.append(headers) or 0)
    spaces = b"x%by" % (b" " * 2**15)
    assert (await call(request(review()).replace(b"application/json", spaces)))[0] == 400
    assert looked == []


async def test_reviews_of_many_lengths_leave_few_heads_behind(server, call):
    for number in range(2 * RECENT):
        assert await call(request(review(data="x" * number))) == (200, ALLOWED)
    assert server.read == []
    assert fast_path._size.cache_info().currsize <= RECENT


async def test_long_heads_are_left_to_aiohttp(server, call):
    full = MOST_HEAD - len(request(b"", "X: ", length=len(review())))
    assert await call(request(review(), f"X: {'x' * full}")) == (200, ALLOWED)
    assert server.read == []
    assert await call(request(review(), f"X: {'x' * (full + 1)}")) == (200, ALLOWED)
    assert await call(request(review(), *("X: x",) * 58)) == (200, ALLOWED)
    assert server.read == ["/v", "/v"]


async def test_after_a_large_review_common_ones_are_read_here_again(server, call):
    large = request(review(data="x" * 3 * MOST))
    for number in range(1, 3):
        assert await call(large[: 2 * MOST], large[2 * MOST :]) == (200, ALLOWED)
        assert await call(request(review())) == (200, ALLOWED)
        assert await call(request(review(), path="/later")) != (200, ALLOWED)
        assert len(server.read) == 2 * number


@pytest.mark.parametrize("first", [request(review()), request(review(), path="/later")])
async def test_requests_sent_at_once_are_answered_in_their_order(server, call, first):
    assert (await call(first + request(b"{") + request(review())))[0] == 200
    assert (await call.answer())[0] == 400
    assert await call.answer() == (200, ALLOWED)
    assert len(server.read) == 3


async def test_while_aiohttp_answers_it_reads_what_follows(server, call):
    whole = request(review())
    call.writer.write(request(review(), path="/later"))
    call.writer.write(whole[:50])
    assert (await call.answer())[1]["response"]["warnings"] == ["later"]
    assert await call(whole[50:]) == (200, ALLOWED)


async def test_who_wants_the_connection_closed_gets_that(server, call):
    assert await call(request(review(), "Connection: close")) == (200, ALLOWED)
    assert await call.reader.read() == b""


async def test_who_waits_with_the_body_is_told_to_go_on(server, call):
    call.writer.write(request(b"", "Expect: 100-continue", length=len(review())))
    async with asyncio.timeout(30):
        assert await call.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert await call(review()) == (200, ALLOWED)


async def test_a_rest_that_is_late_is_left_to_aiohttp(server, call, monkeypatch):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 2.0)
    whole = request(review())
    assert await call(whole[:-9], whole[-9:], pause=0.5) == (200, ALLOWED)
    assert server.read == ["/v"]


async def test_each_review_in_pieces_has_a_moment_of_its_own(server, call, monkeypatch):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 16.0)
    whole = request(review())
    for _ in range(3):
        assert await call(whole[:-9], whole[-9:], pause=0.4) == (200, ALLOWED)
    assert server.read == []
    call.writer.write(whole[:-9])
    await asyncio.sleep(1.5)
    assert server.read == ["/v"]


async def test_a_body_that_comes_byte_by_byte_is_left_to_aiohttp(server, call, monkeypatch):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 4.8)
    whole = request(review())
    sent = len(whole) - 30
    call.writer.write(whole[:sent])
    while not server.read and sent < len(whole):
        await asyncio.sleep(0.08)
        call.writer.write(whole[sent : sent + 1])
        sent += 1
    assert server.read == ["/v"]
    assert sent < len(whole)
    assert await call(whole[sent:]) == (200, ALLOWED)


async def test_who_leaves_in_the_middle_of_a_body_is_no_error(server, call, caplog):
    call.writer.write(request(review(), "Connection: keep-alive")[:-1])
    async with asyncio.timeout(30):
        while not server.read:
            await asyncio.sleep(0.01)
    call.writer.transport.abort()
    await asyncio.sleep(0.1)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_body_that_never_comes_is_answered_with_408(server, call, monkeypatch):
    monkeypatch.setattr(server_limits, "SILENT_SECONDS", 1.0)
    assert (await call(request(review())[:-1]))[0] == 408


@pytest.mark.parametrize("sent", [b"", b"POST /v HT", request(review())[:-1], request(review())])
async def test_the_server_stops_at_once(server, call, sent):
    if sent == request(review()):
        await call(sent)
    else:
        call.writer.write(sent)
        await asyncio.sleep(0.05)
    (task,) = (each for each in asyncio.all_tasks() if "WebhookServer.run" in repr(each))
    task.cancel()
    async with asyncio.timeout(3):
        await asyncio.wait((task,))
        assert await call.reader.read() == b""


async def test_who_goes_away_in_the_middle_leaves_nothing(server, call):
    call.writer.write(request(review())[:-1])
    await asyncio.sleep(0.05)
    call.writer.transport.abort()
    await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_connection(HOST, server.port)
    assert await Caller(reader, writer)(request(review())) == (200, ALLOWED)
    writer.transport.abort()


async def test_who_takes_no_answers_is_left_to_aiohttp(server, call):
    call.writer.transport.pause_reading()
    for _ in range(4000):
        call.writer.write(request(review()))
        await asyncio.sleep(0)
        if server.read:
            break
    call.writer.transport.resume_reading()
    assert await call.answer() == (200, ALLOWED)
