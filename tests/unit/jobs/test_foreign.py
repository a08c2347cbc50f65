"""Owners of kinds that no informer holds are read once, by UID, and end the way when they fail."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.errors import Forbidden, NotFound, TransportError, Unavailable
from kueuelib.jobs.foreign import REMEMBERED, ForeignOwners
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock

REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
REF = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u1"}


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


async def test_an_owner_is_read_once_in_a_while_and_only_its_metadata_kept() -> None:
    foreign, server, time = owners(owner())
    assert foreign.get(REF) is None
    found = await foreign.learn(REF, "ns")
    assert found is not None
    assert found.keys() == {"metadata"}
    assert "managedFields" not in found["metadata"]
    assert await foreign.learn(REF, "ns") is found
    assert foreign.get(REF) is found
    assert server.asked == ["apps/v1 ReplicaSet", "replicasets ns/rs"]
    time.now = REMEMBERED + 1
    await foreign.learn(REF, "ns")
    assert server.asked[2:] == ["replicasets ns/rs"], "the kind is known by now"


@pytest.mark.parametrize(
    "answer",
    [owner("another"), NotFound("gone"), Forbidden("no")],
)
async def test_what_cannot_be_read_ends_the_way_and_is_remembered_too(answer: Any) -> None:
    foreign, server, _ = owners(answer)
    assert await foreign.learn(REF, "ns") is None
    assert await foreign.learn(REF, "ns") is None
    assert foreign.get(REF) is None
    assert len(server.asked) == 2


async def test_a_server_that_does_not_answer_is_no_answer() -> None:
    foreign, server, _ = owners(TransportError("h", "down"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="ReplicaSet ns/rs cannot be read now"):
            await foreign.learn(REF, "ns")
    assert len([each for each in server.asked if each.endswith("ns/rs")]) == 2, "asked again"


async def test_a_kind_that_is_not_served_is_none() -> None:
    foreign, server, _ = owners(owner())
    ref = {**REF, "kind": "Unknown"}
    assert await foreign.learn(ref, "ns") is None
    assert server.asked == ["apps/v1 Unknown"]
