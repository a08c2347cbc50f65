from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from kueuelib.errors import ApiError, TransportError
from kueuelib.runtime import sessions
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.sessions import LARGE_BODY
from kueuelib.runtime.transport import Transport

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def listening(answering: Answering) -> AsyncIterator[str]:
    """A server that speaks bytes; gives its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answering(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def head(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


async def answering_always(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, accepted: list[list[str]]
) -> None:
    """Answers every request of a connection, and notes them by connection."""
    accepted.append(heads := [])
    with suppress(asyncio.IncompleteReadError):
        while True:
            heads.append(await head(reader))
            writer.write(OK)


async def test_a_request_has_one_host_and_the_length_of_its_body():
    heads: list[str] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for length in (0, 3, 0):
            heads.append(await head(reader))
            await reader.readexactly(length)
            writer.write(OK)

    async with listening(answering) as url:
        endpoint = Endpoint(f"{url}/a/prefix", headers=(("Impersonate-User", "me"),))
        async with Transport(endpoint, user_agent="us") as transport:
            await transport.request("GET", "/x y", params=(("a", "b c"),))
            await transport.request("POST", "/x", body=b"[1]", content_type="some/type")
            await transport.request("POST", "/x")
    get, post, empty = heads
    assert get.startswith("GET /a/prefix/x%20y?a=b+c HTTP/1.1\r\n")
    assert f"\r\nHost: {url.removeprefix('http://')}\r\n" in get
    for line in ("User-Agent: us", "Impersonate-User: me", "Accept: application/json"):
        assert get.count(f"\r\n{line}\r\n") == 1
    assert "Content-" not in get
    assert "\r\nContent-Type: some/type\r\nContent-Length: 3\r\n" in post
    assert "\r\nContent-Length: 0\r\n" in empty


@pytest.mark.parametrize(("method", "answered"), [("GET", True), ("PATCH", False)])
async def test_a_read_is_sent_again_when_the_server_had_hung_up(method, answered):
    asked: list[str] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await head(reader))
        if len(asked) != 2:
            writer.write(OK)
            asked.append(await head(reader))

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        await transport.request("GET", "/first")
        if answered:
            assert (await transport.request(method, "/second")).body == b"{}"
        else:
            with pytest.raises(TransportError, match=r"/second: the server disconnected"):
                await transport.request(method, "/second")
    assert len(asked) == (3 if answered else 2)


async def test_calls_at_a_time_beyond_all_limits_share_connections(monkeypatch):
    monkeypatch.setattr("kueuelib.runtime.sessions.CALL_CONNECTIONS", 3)
    accepted: list[list[str]] = []
    answering = partial(answering_always, accepted=accepted)
    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        async with asyncio.timeout(60):
            for _ in range(3):
                calls = [transport.request("PATCH", f"/{number}") for number in range(20)]
                assert {each.body for each in await asyncio.gather(*calls)} == {b"{}"}
            await transport.request("GET", "/alone")
    assert len(accepted) == 3


async def test_a_connection_that_rested_for_long_is_not_used_again(monkeypatch):
    accepted: list[list[str]] = []
    answering = partial(answering_always, accepted=accepted)
    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        await transport.request("PATCH", "/x")
        await transport.request("PATCH", "/x")
        assert len(accepted) == 1
        monkeypatch.setattr("kueuelib.runtime.sessions.KEPT_SECONDS", 0.0)
        await transport.request("PATCH", "/x")
    assert len(accepted) == 2


async def test_an_answer_that_comes_before_the_end_of_a_large_body_is_read():
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await head(reader)).startswith("GET"):
            writer.write(OK)
            return
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        while await reader.read(10) and not reader.at_eof():
            await asyncio.sleep(0)

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        with pytest.raises(ApiError) as caught:
            await transport.request("POST", "/x", body=b"x" * (64 * LARGE_BODY))
        assert caught.value.code == 413
        assert (await transport.request("GET", "/y")).body == b"{}"


async def test_what_is_not_http_is_named():
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        with pytest.raises(TransportError, match=f"{url}/x: the answer is not HTTP: b'SSH-2.0"):
            await transport.request("GET", "/x")


async def test_a_proxy_gets_whole_urls_and_its_credentials():
    heads: list[str] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head(reader))
        writer.write(OK)

    async with listening(answering) as proxy:
        known = proxy.replace("http://", "http://me:secret@")
        async with Transport(Endpoint("http://a.test:8080/b", proxy=known)) as transport:
            await transport.request("GET", "/x")
    assert heads[0].startswith("GET http://a.test:8080/b/x HTTP/1.1\r\nHost: a.test:8080\r\n")
    assert "\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n" in heads[0]


async def test_credentials_of_two_lines_are_refused():
    async with Transport(Endpoint("http://127.0.0.1:1", authorization="a\r\nb: c")) as transport:
        with pytest.raises(ValueError, match="more than one line"):
            await transport.request("GET", "/x")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"{}"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 22\r\n\r\n"
            + gzip.compress(b"{}", mtime=0),
            b"{}",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"10000\r\n%b\r\n" % (b"x" * 0x10000) * 10
            + b"0\r\n\r\n",
            b"x" * 0xA0000,
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"{}"),
    ],
)
async def test_answers_of_every_form_are_read(answer, body):
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        for part in (answer[:9], answer[9:60], answer[60:]):
            writer.write(part)
            await asyncio.sleep(0.01)

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        assert (await transport.request("GET", "/x")).body == body


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
)
async def test_an_answer_that_breaks_off_is_not_asked_for_again(answer):
    asked: list[str] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await head(reader))
        writer.write(answer)

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        with pytest.raises(TransportError, match="the answer breaks off"):
            await transport.request("GET", "/x")
    assert len(asked) == 1


async def test_a_watch_takes_the_connection_of_the_list_before_it():
    asked: list[list[str]] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(mine := [])
        while True:
            mine.append((await head(reader)).split()[1])
            if "watch=true" in mine[-1]:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}\n")
                break
            writer.write(OK)
        await writer.drain()

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        await transport.request("GET", "/jobs")
        async with await transport.watch("/jobs", timeout=60):
            pass
    assert [len(paths) for paths in asked] == [2]


async def test_calls_wait_for_one_of_their_connections_and_watches_do_not(monkeypatch):
    monkeypatch.setattr(sessions, "CALL_CONNECTIONS", 1)
    asked: list[str] = []
    go_on = asyncio.Event()

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append((await head(reader)).split()[1])
            if "watch=true" in asked[-1]:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}\n")
                break
            await go_on.wait()
            writer.write(OK)
        await writer.drain()

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        calls = [asyncio.create_task(transport.request("GET", f"/{i}")) for i in range(2)]
        while not asked:
            await asyncio.sleep(0.001)
        async with await transport.watch("/jobs", timeout=60):
            pass
        assert len(asked) == 2
        go_on.set()
        await asyncio.gather(*calls)
    assert asked[2:] == ["/1"]


class Changing:
    """Gives one endpoint, and another when it is asked again."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self._left = [*endpoints]

    async def load(self, *, force: bool = False) -> Endpoint:
        return self._left.pop(0)


async def test_a_connection_is_not_used_for_another_way_to_the_server():
    direct: list[list[str]] = []
    proxied: list[list[str]] = []
    async with (
        listening(partial(answering_always, accepted=direct)) as url,
        listening(partial(answering_always, accepted=proxied)) as proxy,
        Transport(Changing(Endpoint(url, refresh_at=0.0), Endpoint(url, proxy=proxy))) as transport,
    ):
        await transport.request("GET", "/one")
        await transport.request("GET", "/two")
    assert [len(heads) for heads in (*direct, *proxied)] == [1, 1]
    assert (len(direct), len(proxied)) == (1, 1)


async def test_a_watch_survives_connections_that_all_ended_unseen():
    asked: list[str] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await head(reader))
        if "watch=true" in asked[-1]:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}\n")
            return
        writer.write(OK)
        await head(reader)  # and hangs up

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        await asyncio.gather(*(transport.request("GET", f"/{i}") for i in range(5)))
        async with await transport.watch("/jobs", timeout=60):
            pass
    assert len(asked) == 6


async def test_a_connection_with_data_that_nobody_asked_for_is_not_used():
    late = asyncio.Event()

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "watch=true" in await head(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}\n")
            return
        writer.write(OK)
        await late.wait()
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with listening(answering) as url, Transport(Endpoint(url)) as transport:
        await transport.request("GET", "/jobs")
        late.set()
        await asyncio.sleep(0.1)
        async with await transport.watch("/jobs", timeout=60):
            pass
