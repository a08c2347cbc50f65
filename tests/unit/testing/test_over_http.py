"""A hostile API server draws its faults like a storm, and does what it has drawn."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import attrs
import pytest
import pytest_asyncio

from kueuelib.embedded.server import ADMIN, ADMIN_GROUP, ApiServer
from kueuelib.errors import ConfigError
from kueuelib.testing.storm import over_http
from kueuelib.testing.storm.adversary import Hostile
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.exchange import ObservedRequest, Request, RequestRecognizer
from kueuelib.testing.storm.faults import (
    CATALOGUE,
    FINE,
    FLOWING,
    EventFate,
    Fate,
    refusal,
)
from kueuelib.testing.storm.over_http import OFFERED, HostileServer, round_of
from kueuelib.testing.storm.profiles import PROFILES

MAPS = "/api/v1/namespaces/default/configmaps"
SEEDS = range(40)
OF_CLIENTS = {"kill", "stop", "pause", "skew", "kill-after-write", "stop-after-write", "overtaken"}


def asked(method: str, path: str, query: str = "") -> Request:
    return Request(method, path, query, "application/json", b"")


# ---- what is drawn


@pytest.mark.parametrize("profile", OFFERED)
def test_a_round_has_only_faults_that_strike_a_server_and_its_connections(profile: str):
    for seed in SEEDS:
        drawn, coming = round_of(profile, seed, 0, simulated=True)
        assert not drawn.rates.keys() & OF_CLIENTS
        assert {each.target for each in coming} <= {"server"}
        assert {each.owner for each in drawn.outages} <= {""}
        assert drawn.rates.keys() >= (PROFILES[profile].always - OF_CLIENTS)


def test_a_round_is_the_same_at_each_drawing_and_the_next_one_is_another():
    assert round_of("swarm", 5, 0) == round_of("swarm", 5, 0)
    assert round_of("swarm", 5, 0) != round_of("swarm", 5, 1) != round_of("swarm", 6, 1)


def test_the_simulated_cluster_is_struck_only_if_there_is_one():
    kinds = {each.kind for seed in SEEDS for each in round_of("swarm", seed, 0)[1]}
    assert kinds == {"server-restart", "server-amnesia"}
    with_cluster = [round_of("swarm", seed, 0, simulated=True)[1] for seed in SEEDS]
    assert "jobs-held" in {each.kind for coming in with_cluster for each in coming}


@pytest.mark.parametrize("profile", ["leaders", "crash", "webhooks", "windy"])
def test_other_profiles_are_refused(profile: str):
    with pytest.raises(ConfigError, match=f"--hostile {profile}: .*choose one of swarm, calm"):
        HostileServer(profile, 1, print)


def fates(seed: int, requests: list[Request], owner: str = "kopf") -> list[Fate]:
    drawn, _ = round_of("lossy", seed, 0)
    hostile = Hostile(Draws(seed), drawn, meddlers=False, owners="")
    calls = RequestRecognizer()
    return [hostile.call(calls.observe(owner, "server", each), 1.0) for each in requests]


def test_the_same_requests_of_a_client_meet_the_same_faults_whatever_comes_between():
    puts = [asked("PUT", f"{MAPS}/one")] * 200
    others = [asked("GET", f"{MAPS}/two")] * 200
    mixed = [each for pair in zip(puts, others, strict=True) for each in pair]
    assert fates(3, puts) == fates(3, mixed)[::2]
    assert any(fate != FINE for fate in fates(3, puts))
    assert fates(3, puts) != fates(4, puts)
    assert fates(3, puts) != fates(3, puts, owner="kubectl")


def test_managers_alone_are_struck_in_a_storm():
    drawn = attrs.evolve(round_of("lossy", 3, 0)[0], rates={"500": 0.6})
    calls = [
        RequestRecognizer().observe("kopf", "server", asked("GET", f"{MAPS}/{n}"))
        for n in range(50)
    ]
    in_storm = Hostile(Draws(3), drawn)
    over = Hostile(Draws(3), drawn, owners="")
    assert all(in_storm.call(call, 1.0) == FINE for call in calls)
    assert any(over.call(call, 1.0) != FINE for call in calls)


# ---- what is done

in_module = pytest.mark.asyncio(loop_scope="module")


@attrs.define
class Scripted:
    """The fate of the next connection, call and event; then no faults."""

    fate: Fate = FINE
    event_fates: list[EventFate] = attrs.Factory(list)
    refused: bool = False

    def connect(self, owner: str, peer: str, ordinal: int, now: float) -> Fate:
        refused, self.refused = self.refused, False
        return Fate(refuse=refusal(503, "", ""), faults=("refused",)) if refused else FINE

    def call(self, call: ObservedRequest, now: float) -> Fate:
        fate, self.fate = self.fate, FINE
        return fate

    def event(self, watch: ObservedRequest, number: int, event: bytes, now: float) -> EventFate:
        return self.event_fates.pop(0) if self.event_fates else FLOWING


class Client:
    """A client that retries nothing."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        hostile: HostileServer,
        script: Scripted,
        log: list[str],
    ) -> None:
        self.http, self.hostile, self.script, self.log = http, hostile, script, log

    async def call(self, method: str, path: str, **rest: Any) -> tuple[int, Any]:
        async with self.http.request(method, path, **rest) as answer:
            return answer.status, await answer.json()

    async def create(self, name: str) -> tuple[int, Any]:
        return await self.call("POST", MAPS, json={"metadata": {"name": name}})

    async def names(self, query: str = "") -> list[str]:
        _, found = await self.call("GET", MAPS + query)
        return [each["metadata"]["name"] for each in found["items"]]

    async def watched(self, names: int = 3) -> list[tuple[str, str]]:
        """The events of a watch of that many objects, until it ends."""
        for n in range(names):
            await self.create(f"m{n}")
        events = []
        async with self.http.get(f"{MAPS}?watch=1&timeoutSeconds=1") as answer:
            async for line in answer.content:
                event = json.loads(line)
                events.append((event["type"], event["object"]["metadata"].get("name", "")))
        return events


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving() -> AsyncIterator[Client]:
    log: list[str] = []
    hostile, script = HostileServer("calm", 1, log.append), Scripted()
    async with ApiServer(middleware=hostile.interpose) as server:
        server.add_user(ADMIN, ADMIN_GROUP, token=hostile.spared)
        hostile.adversary = script
        tls = ssl.create_default_context(cadata=server.ca.decode())
        connector = aiohttp.TCPConnector(ssl=tls, force_close=True)
        headers = {"Authorization": f"Bearer {server.token}", "User-Agent": "kopf/1.45"}
        async with aiohttp.ClientSession(server.url, connector=connector, headers=headers) as http:
            yield Client(http, hostile, script, log)


@pytest_asyncio.fixture(loop_scope="module")
async def client(serving: Client) -> Client:
    """Of a server without ConfigMaps."""
    await serving.call("DELETE", MAPS)
    serving.log.clear()
    return serving


@in_module
async def test_a_lost_answer_is_one_to_a_write_that_was_done(client: Client):
    client.script.fate = Fate(lose_answer=True, faults=("lost-answer",))
    with pytest.raises(aiohttp.ClientError):
        await client.create("one")
    assert "one" in await client.names()
    assert client.log[0].split(maxsplit=1)[1] == (
        "connection 2 kopf: create configmaps default #0 [lost-answer]"
    )


@in_module
async def test_a_cut_answer_has_a_part_of_its_bytes(client: Client):
    client.script.fate = Fate(cut_answer=0.5, faults=("cut-answer",))
    async with client.http.get(MAPS) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


@in_module
async def test_a_refused_call_is_not_done_and_says_when_to_retry(client: Client):
    client.script.fate = Fate(
        refuse=refusal(429, "TooManyRequests", "later", retry_after=7), faults=("429",)
    )
    async with client.http.post(MAPS, json={"metadata": {"name": "one"}}) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
    assert "one" not in await client.names()


@in_module
async def test_a_late_504_is_an_answer_to_a_write_that_was_done(client: Client):
    client.script.fate = Fate(instead=refusal(504, "Timeout", "late"), faults=("late-504",))
    assert (await client.create("one"))[0] == 504
    assert "one" in await client.names()


@in_module
async def test_a_refused_connection_is_reset_before_its_first_call(client: Client):
    client.script.refused = True
    with pytest.raises(aiohttp.ClientError):
        await client.create("one")
    assert "one" not in await client.names()


@in_module
async def test_a_silent_connection_is_reset_at_last(client: Client, monkeypatch):
    monkeypatch.setattr(over_http, "SILENCE", 0.01)
    client.script.fate = Fate(silent=True, faults=("silence",))
    with pytest.raises(aiohttp.ClientError):
        await client.create("one")
    client.script.event_fates = [FLOWING, EventFate(silence=True, faults=("event-silence",))]
    with pytest.raises(aiohttp.ClientError):
        await client.watched()


@in_module
async def test_a_write_on_its_way_is_done_although_its_sender_has_given_up(client: Client):
    client.script.fate = Fate(delay=0.2, faults=("delay",))
    sender = asyncio.create_task(client.create("one"))
    async with asyncio.timeout(60):
        while not client.log:
            await asyncio.sleep(0.01)
        sender.cancel()
        while "one" not in await client.names():
            await asyncio.sleep(0.01)


@in_module
async def test_a_stale_list_is_from_the_past_and_only_for_those_with_the_right_to_list(
    client: Client,
):
    await client.create("one")
    hostile = client.hostile
    hostile._revisions[1:] = [(at + 1000.0, revision) for at, revision in hostile._revisions[1:]]
    for fate, seen in ((Fate(stale_list=0.0, faults=("stale-list",)), False), (FINE, True)):
        client.script.fate = fate
        assert ("one" in await client.names("?resourceVersion=0")) is seen
    client.script.fate = Fate(stale_list=0.0, faults=("stale-list",))
    nobody = {"Authorization": "Bearer nobody"}
    answer = await client.call("GET", f"{MAPS}?resourceVersion=0", headers=nobody)
    assert answer[0] == 401


@in_module
async def test_the_spared_client_has_no_faults(client: Client):
    hostile = client.hostile
    client.script.fate = Fate(lose_answer=True, faults=("lost-answer",))
    spared = {"Authorization": f"Bearer {hostile.spared}"}
    assert (await client.call("GET", MAPS, headers=spared))[0] == 200
    assert client.log == []


@in_module
@pytest.mark.parametrize(
    ("fate", "last"),
    [
        (EventFate(close=True, faults=("event-close",)), None),
        (EventFate(gone=True, faults=("event-gone",)), ("ERROR", "")),
    ],
)
async def test_a_watch_ends_before_an_event(client: Client, fate: EventFate, last: Any):
    client.script.event_fates = [FLOWING, fate]
    events = await client.watched()
    assert events[1:] == ([] if last is None else [last])
    assert events[0][0] == "ADDED"


@in_module
async def test_a_watch_is_cut_in_the_middle_of_an_event(client: Client):
    client.script.event_fates = [FLOWING, EventFate(cut=True, faults=("event-cut",))]
    with pytest.raises(aiohttp.ClientError):
        await client.watched()


@in_module
async def test_late_events_keep_their_order(client: Client):
    client.script.event_fates = [EventFate(delay=0.2, faults=("event-delay",))]
    events = await client.watched()
    assert [name for _, name in events] == sorted(name for _, name in events)
    assert {"m0", "m1", "m2"} <= {name for _, name in events}


@in_module
@pytest.mark.parametrize("history", [True, False])
async def test_after_a_restart_a_watch_continues_only_with_history(client: Client, history: bool):
    await client.create("one")
    hostile = client.hostile
    _, listed = await client.call("GET", MAPS)
    version = listed["metadata"]["resourceVersion"]
    await client.create("two")
    await hostile.restart_server(history=history)
    query = f"?watch=1&timeoutSeconds=1&resourceVersion={version}"
    async with client.http.get(MAPS + query) as answer:
        event = json.loads(await answer.content.readline())
    assert event["type"] == ("ADDED" if history else "ERROR")
    assert history or event["object"]["code"] == 410


async def test_the_hostility_ends_in_time():
    log: list[str] = []
    hostile = HostileServer("swarm", 1, log.append)
    async with ApiServer(middleware=hostile.interpose):
        await hostile.rage(None, seconds=0.0)
    assert hostile.adversary is None
    assert log[-1].endswith(" calm")


def test_the_faults_of_a_server_are_in_the_catalogue():
    assert CATALOGUE.keys() >= over_http._OVER_HTTP
