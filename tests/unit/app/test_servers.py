"""Probes while the API server is waited for."""

from __future__ import annotations

import socket

import aiohttp
import attrs
import structlog

from kueuelib.app.configuration import Configuration
from kueuelib.app.servers import waiting_probes
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.transport import Transport
from kueuelib.testing.processes import free_port


def at(address: str) -> Configuration:
    found = Configuration()
    return attrs.evolve(found, health=attrs.evolve(found.health, health_probe_bind_address=address))


def client() -> Client:
    return Client(Transport(Endpoint(url="http://127.0.0.1:9")))


async def test_a_process_that_waits_for_its_server_is_alive_and_not_ready():
    port = free_port()
    async with (
        client() as found,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        waiting_probes(at(f"127.0.0.1:{port}"), found, "x"),
    ):
        async with session.get("/healthz") as answer:
            assert answer.status == 200
        async with session.get("/readyz") as answer:
            assert answer.status == 500
            assert "the API server has not answered for 0 s" in await answer.text()


async def test_an_address_in_use_does_not_hide_that_the_server_is_away():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with structlog.testing.capture_logs() as logs:
            async with client() as found, waiting_probes(at(address), found, "x"):
                pass
    assert [line["event"] for line in logs] == ["not served yet"]


async def test_probes_that_are_turned_off_stay_off():
    async with client() as found, waiting_probes(at("0"), found, "x"):
        pass
