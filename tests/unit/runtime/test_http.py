from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kueuelib.errors import ConfigError, Forbidden, TransportError, Unauthorized, Unavailable
from kueuelib.runtime.addresses import parse_address
from kueuelib.runtime.http import MetricsServer, ProbeServer
from kueuelib.runtime.telemetry import Telemetry


@asynccontextmanager
async def running(server):
    ready = asyncio.Event()
    task = asyncio.create_task(server.run(ready.set))
    await asyncio.wait_for(ready.wait(), 60)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(path) as answer:
                return answer.status, await answer.text()

        yield get
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_probes_answer_ok_without_checks():
    async with running(ProbeServer("127.0.0.1", 0)) as get:
        assert await get("/healthz") == (200, "ok")
        assert await get("/readyz?verbose") == (200, "[+]ping ok\nreadyz check passed\n")
        assert await get("/readyz/ping") == (200, "ok")
        assert (await get("/readyz/other"))[0] == 404


async def test_a_failing_check_is_named_without_its_reason():
    probes = ProbeServer("127.0.0.1", 0, ready_path="/r", live_path="/l")
    problem = ["not synced"]
    probes.add_ready_check("cache", lambda: problem[0])
    probes.add_ready_check("webhook", lambda: "")
    async with running(probes) as get:
        expected = "[-]cache failed: reason withheld\n[+]webhook ok\nr check failed\n"
        assert await get("/r") == (500, expected)
        assert (await get("/r/cache"))[0] == 500
        assert await get("/r/webhook") == (200, "ok")
        assert await get("/r?exclude=cache") == (200, "ok")
        assert "[+]cache excluded: ok" in (await get("/r?exclude=cache&verbose"))[1]
        assert (await get("/l"))[0] == 200
        problem[0] = ""
        assert await get("/r") == (200, "ok")
        with pytest.raises(RuntimeError, match="before the server starts"):
            probes.add_live_check("late", lambda: "")


async def test_a_reason_that_may_be_shown_is_in_the_answer():
    probes = ProbeServer("127.0.0.1", 0)
    probes.add_ready_check("server", lambda: "away for 7 s", shown=True)
    probes.add_ready_check("secret", lambda: "hush")
    async with running(probes) as get:
        expected = "[-]server failed: away for 7 s\n[-]secret failed: reason withheld\n"
        assert await get("/readyz") == (500, expected + "readyz check failed\n")
        assert await get("/readyz/server") == (500, "server failed: away for 7 s\n")
        assert await get("/readyz/secret") == (500, "secret failed: reason withheld\n")


async def test_metrics_are_served():
    telemetry = Telemetry()
    telemetry.counter("things_total", "Things.").inc()
    async with running(MetricsServer("127.0.0.1", 0, telemetry)) as get:
        status, text = await get("/metrics")
    assert status == 200
    assert "things_total 1.0" in text


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (None, 200, "things_total 1.0"),
        (Unauthorized("Unauthorized"), 401, "Unauthorized"),
        (Forbidden('User "u" cannot get path "/metrics"'), 403, "cannot get path"),
        (Unavailable("overloaded"), 503, "try again"),
        (TransportError("GET", "away"), 503, "try again"),
    ],
)
async def test_metrics_are_served_to_those_whom_the_guard_lets_in(error, status, text):
    asked = []

    async def guard(header: str) -> None:
        asked.append(header)
        if error is not None:
            raise error

    telemetry = Telemetry()
    telemetry.counter("things_total", "Things.").inc()
    async with running(MetricsServer("127.0.0.1", 0, telemetry, guard=guard)) as get:
        found = await get("/metrics")
    assert found[0] == status
    assert text in found[1]
    assert ("things_total" in found[1]) is (error is None)
    assert asked == [""]


async def test_an_address_in_use_is_one_clear_line():
    first = ProbeServer("127.0.0.1", 0)
    async with running(first):
        with pytest.raises(ConfigError) as caught:
            await ProbeServer("127.0.0.1", first.port).run(lambda: None)
    assert str(caught.value) == (
        f"127.0.0.1:{first.port}: the address is in use; "
        "end the program that uses it, or choose another address"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", ("", 8080)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:80", ("::1", 80)),
        ("0", None),
    ],
)
def test_addresses_are_parsed(text, expected):
    assert parse_address(text, "key") == expected


@pytest.mark.parametrize("text", ["", "8080", "host:", "host:x", ":70000"])
def test_what_is_no_address_is_refused_by_key(text):
    with pytest.raises(ConfigError, match=r"^metrics\.bindAddress: .* is not an address"):
        parse_address(text, "metrics.bindAddress")
