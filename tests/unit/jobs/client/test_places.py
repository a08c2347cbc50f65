"""Places from either visibility API, from slow and broken ones, and from none."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from kueuelib.errors import Forbidden, NotConnected, NotFound, TooManyRequests, Unavailable
from kueuelib.jobs.client import places
from kueuelib.jobs.client.places import with_place, with_refusal
from kueuelib.jobs.client.progress import NO_WORKLOAD, Progress, State, Why

OURS, NEW, OLD = (
    "visibility.kueuelib.dev/v1alpha1",
    "visibility.kueue.x-k8s.io/v1beta2",
    "visibility.kueue.x-k8s.io/v1beta1",
)
WAITING = Progress(State.QUEUED, Why("Pending"), workload="wl", queue="q")
ABSENT = NotFound("the server could not find the requested resource")


class Client:
    """Answers by group and version."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = {OURS: ABSENT, NEW: ABSENT, OLD: ABSENT} | answers, []

    async def request(self, method: str, path: str, *, params: Any, verb: str) -> Any:
        del method, verb
        group, version = path.removeprefix("/apis/").split("/")[:2]
        assert path.endswith("/namespaces/ns/localqueues/q/pendingworkloads")
        self.asked.append((f"{group}/{version}", dict(params)))
        answer = self.answers[f"{group}/{version}"]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            return await answer(dict(params))
        return {"items": answer}


def item(name: str, place: int, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "positionInClusterQueue": place,
        "positionInLocalQueue": place,
        **more,
    }


async def asked(client: Any, progress: Progress = WAITING) -> Progress:
    return await with_place(client, progress, "ns")


async def test_our_own_api_is_asked_for_one_workload() -> None:
    start = {"p50": "1970-01-01T00:01:00Z", "p90": "1970-01-01T00:02:00Z"}
    client = Client(**{OURS: [item("wl", 2, expectedStart=start)]})
    found = await asked(client)
    assert (found.place, found.start_p50, found.start_p90, found.unknown) == (3, 60, 120, {})
    assert client.asked == [(OURS, {"workload": "wl"})]
    client.answers[OURS] = [item("wl", 0, expectedStart={"p50": start["p50"], "unknown": "few"})]
    found = await asked(client)
    assert (found.place, found.start_p50, found.start_p90) == (1, 60, None)
    client.answers[OURS] = []
    assert "is not waiting" in (await asked(client)).unknown["place"]


async def test_the_pages_of_another_manager_are_read_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "PAGE", 2)

    async def page(params: dict[str, str]) -> Any:
        await asyncio.sleep(0.01)
        every = [item(f"w{number}", number) for number in range(4)] + [item("wl", 4)]
        offset = int(params.get("offset", 0))
        return {"items": every[offset : offset + int(params["limit"])]}

    client = Client(**{OLD: page})
    every = await asyncio.gather(*(asked(client) for _ in range(20)))
    assert {one.place for one in every} == {5}
    assert every[0].unknown == {"start": "visibility.kueue.x-k8s.io does not predict starts"}
    assert [source for source, _ in client.asked].count(OLD) == 3
    assert (await asked(client, attrs.evolve(WAITING, workload="w0"))).place == 1
    assert (await asked(client, attrs.evolve(WAITING, workload="no"))).place is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Forbidden("you may not"), f"{NEW}: you may not"),
        (TooManyRequests("slowly"), "slowly"),
        (Unavailable("away"), "away"),
        (NotConnected("https://there", "lost"), "lost"),
        (ABSENT, "the cluster serves no visibility API for LocalQueue q"),
    ],
)
async def test_a_place_that_cannot_be_read_is_unknown_for_that_reason(
    error: Exception, words: str
) -> None:
    client = Client(**{NEW: error})
    for _ in range(2):
        found = await asked(client)
        assert found.place is None
        assert words in found.unknown["place"]
        assert found.unknown["start"] == found.unknown["place"]
    assert len(client.asked) == 3, "an API that refuses is left alone for a while"


async def test_a_place_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PATIENCE", 0.01)

    async def never(_: dict[str, str]) -> Any:
        await asyncio.sleep(60)

    found = await asyncio.wait_for(asked(Client(**{OURS: never})), 5)
    assert found.unknown["place"] == f"{OURS}: no answer"


@pytest.mark.parametrize(
    "progress",
    [
        attrs.evolve(WAITING, state=State.RUNNING),
        attrs.evolve(WAITING, cluster_queue="cq"),
        attrs.evolve(WAITING, workload=""),
    ],
)
async def test_only_what_waits_for_quota_has_a_place(progress: Progress) -> None:
    client = Client()
    assert await asked(client, progress) is progress
    assert client.asked == []


class Events:
    """Answers with Events, or an error."""

    def __init__(self, *events: Any, error: Exception | None = None) -> None:
        self.events, self.error, self.asked = events, error, list[str]()

    async def list(self, resource: Any, namespace: str, *, field_selector: str) -> Any:
        assert (resource.plural, namespace) == ("events", "ns")
        self.asked.append(field_selector)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(items=self.events)


def event(time: str, message: str) -> dict[str, str]:
    return {"lastTimestamp": f"2024-01-01T00:00:{time}Z", "message": message}


async def refusal(client: Any, **changes: Any) -> str:
    unmade = Progress(State.QUEUED, Why(NO_WORKLOAD, "none yet"), queue="q", waited=5)
    return (await with_refusal(client, attrs.evolve(unmade, **changes), "ns", "u")).text


async def test_the_latest_event_says_why_there_is_no_workload() -> None:
    client = Events(event("02", "class nope is not found"), event("01", "class no is not found"))
    assert await refusal(client) == "Waiting: No Workload yet: class nope is not found"
    assert client.asked == ["involvedObject.uid=u,reason=ErrWorkloadCompose"]


@pytest.mark.parametrize("client", [Events(), Events(error=Forbidden("you may not"))])
async def test_without_events_or_rights_the_reason_stays(client: Events) -> None:
    assert await refusal(client) == "Waiting: none yet"


@pytest.mark.parametrize(
    "changes", [{"waited": 1}, {"state": State.RUNNING}, {"why": Why("Pending")}]
)
async def test_no_events_are_read_without_need(changes: Any) -> None:
    client = Events(event("01", "no"))
    await refusal(client, **changes)
    assert client.asked == []
