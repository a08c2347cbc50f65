"""Owners and referred objects that no informer holds are read one by one, once in a while."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.errors import (
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
    Unavailable,
)
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.integration import REFERRED
from kueuelib.jobs.declared.trainjob import TRAIN_JOB
from kueuelib.jobs.lookups.remembered import (
    OWNERS_REMEMBERED,
    REFERENCES_REMEMBERED,
    ForeignOwners,
    Referred,
    Remembered,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock

REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
REF = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u1"}
JOB = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"runtimeRef": {"name": "torch"}}}


class Server:
    """Answers like a client, and counts."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def find_resource(self, api_version: str, kind: str) -> Resource | None:
        self.asked.append(f"{api_version} {kind}")
        return REPLICA_SETS if kind == "ReplicaSet" else None

    async def get(self, resource: Resource, key: ObjectKey) -> Any:
        self.asked.append(f"{resource.plural} {key}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Time:
    """Stands still until it is moved."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def owner(uid: str = "u1") -> dict[str, Any]:
    meta = {"name": "rs", "namespace": "ns", "uid": uid, "labels": {"a": "b"}, "managedFields": []}
    return {"metadata": meta, "spec": {"large": True}}


def owners(answer: Any) -> tuple[ForeignOwners, Server, Time]:
    server, time = Server(answer), Time()
    return ForeignOwners(cast("Client", server), cast("Clock", time)), server, time


def runtimes(answer: Any) -> tuple[Referred, Server, Time]:
    server, time = Server(answer), Time()
    return Referred(cast("Client", server), cast("Clock", time)), server, time


async def test_the_oldest_are_forgotten_first() -> None:
    known = Remembered[str](60.0, 2, cast("Clock", Time()))
    read: list[str] = []

    async def learn(key: str) -> None:
        async def answer() -> dict[str, Any]:
            read.append(key)
            return {}

        await known.learn(key, key, answer)

    for key in ("a", "b", "c", "b", "a"):
        await learn(key)
    assert read == ["a", "b", "c", "a"]
    assert known.get("b") is None


async def test_what_was_outdated_during_a_read_is_read_again() -> None:
    known, answers = Remembered[str](60.0, 2, cast("Clock", Time())), iter("abc")

    async def read() -> dict[str, Any]:
        answer = next(answers)
        if answer == "a":
            known.outdate("key")
        return {"is": answer}

    learned = [await known.learn("key", "key", read) for _ in range(3)]
    assert learned == [{"is": "a"}, {"is": "b"}, {"is": "b"}]
    known.outdate("key")
    assert known.get("key") == {"is": "b"}, "until it is read again"
    assert await known.learn("key", "key", read) == {"is": "c"}


async def test_an_owner_is_read_once_in_a_while_and_only_its_metadata_kept() -> None:
    reader, server, time = owners(owner())
    assert reader.get(REF) is None
    found = await reader.learn(REF, "ns")
    assert found is not None
    assert found.keys() == {"metadata"}
    assert "managedFields" not in found["metadata"]
    assert await reader.learn(REF, "ns") is found
    assert reader.get(REF) is found
    assert server.asked == ["apps/v1 ReplicaSet", "replicasets ns/rs"]
    time.now = OWNERS_REMEMBERED
    await reader.learn(REF, "ns")
    assert server.asked[2:] == ["replicasets ns/rs"], "the kind is known by now"


@pytest.mark.parametrize(
    "answer",
    [owner("another"), NotFound("gone"), Forbidden("no")],
)
async def test_what_cannot_be_read_ends_the_way_and_is_remembered_too(answer: Any) -> None:
    reader, server, _ = owners(answer)
    assert await reader.learn(REF, "ns") is None
    assert await reader.learn(REF, "ns") is None
    assert reader.get(REF) is None
    assert len(server.asked) == 2


async def test_a_server_that_does_not_answer_is_no_answer() -> None:
    reader, server, _ = owners(TransportError("h", "down"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="ReplicaSet ns/rs cannot be read now"):
            await reader.learn(REF, "ns")
    assert len([each for each in server.asked if each.endswith("ns/rs")]) == 2, "asked again"


async def test_a_kind_that_is_not_served_is_none() -> None:
    reader, server, _ = owners(owner())
    ref = {**REF, "kind": "Unknown"}
    assert await reader.learn(ref, "ns") is None
    assert server.asked == ["apps/v1 Unknown"]


async def test_a_runtime_is_read_again_after_a_while() -> None:
    reader, server, time = runtimes({"spec": 1})
    found = await reader.complete(TRAIN_JOB, JOB)
    assert found == {**JOB, REFERRED: {"spec": 1}}
    server.answer = {"spec": 2}
    assert await reader.complete(TRAIN_JOB, JOB) == found
    assert server.asked == ["clustertrainingruntimes torch"]
    time.now = REFERENCES_REMEMBERED
    assert (await reader.complete(TRAIN_JOB, JOB))[REFERRED] == {"spec": 2}


@pytest.mark.parametrize("answer", [NotFound("gone"), Forbidden("no")])
async def test_a_runtime_that_is_not_there_leaves_the_job_as_it_is(answer: Exception) -> None:
    reader, server, time = runtimes(answer)
    assert await reader.complete(TRAIN_JOB, JOB) is JOB
    server.answer, time.now = {"spec": 1}, REFERENCES_REMEMBERED
    assert REFERRED in await reader.complete(TRAIN_JOB, JOB)


@pytest.mark.parametrize(
    "answer",
    [
        ServerError("broken"),
        TooManyRequests("later"),
        Unauthorized("who?"),
        TransportError("h", "down"),
        TimeoutError(),
    ],
)
async def test_a_server_that_does_not_answer_is_asked_again(answer: Exception) -> None:
    reader, server, _ = runtimes(answer)
    for _ in range(2):
        with pytest.raises(Unavailable, match="ClusterTrainingRuntime torch cannot be read"):
            await reader.complete(TRAIN_JOB, JOB)
    assert len(server.asked) == 2


async def test_jobs_of_other_kinds_are_not_asked_about() -> None:
    reader, server, _ = runtimes({})
    assert await reader.complete(BATCH_JOB, JOB) is JOB
    assert await reader.complete(TRAIN_JOB, {**JOB, "spec": {}}) == {**JOB, "spec": {}}
    assert server.asked == []
