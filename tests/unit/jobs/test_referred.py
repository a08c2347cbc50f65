"""Jobs are completed with the objects that they refer to, which are read once in a while."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.errors import Forbidden, NotFound, ServerError, TransportError, Unavailable
from kueuelib.jobs.builtin import BATCH_JOB
from kueuelib.jobs.declared.trainjob import TRAIN_JOB
from kueuelib.jobs.referred import REMEMBERED, Referred
from kueuelib.jobs.registry import REFERRED
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock

JOB = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"runtimeRef": {"name": "torch"}}}


class Server:
    """Answers like a client, and counts."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def get(self, resource: Resource, key: ObjectKey) -> Any:
        self.asked.append(f"{resource.plural} {key.name}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Time:
    """Stands still until it is moved."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def referred(answer: Any) -> tuple[Referred, Server, Time]:
    server, time = Server(answer), Time()
    return Referred(cast("Client", server), cast("Clock", time)), server, time


async def test_a_runtime_is_read_again_after_a_while() -> None:
    reader, server, time = referred({"spec": 1})
    found = await reader.complete(TRAIN_JOB, JOB)
    assert found == {**JOB, REFERRED: {"spec": 1}}
    server.answer = {"spec": 2}
    assert await reader.complete(TRAIN_JOB, JOB) == found
    assert server.asked == ["clustertrainingruntimes torch"]
    time.now = REMEMBERED
    assert (await reader.complete(TRAIN_JOB, JOB))[REFERRED] == {"spec": 2}


@pytest.mark.parametrize("answer", [NotFound("gone"), Forbidden("no")])
async def test_a_runtime_that_is_not_there_leaves_the_job_as_it_is(answer: Exception) -> None:
    reader, server, time = referred(answer)
    assert await reader.complete(TRAIN_JOB, JOB) is JOB
    server.answer, time.now = {"spec": 1}, REMEMBERED
    assert REFERRED in await reader.complete(TRAIN_JOB, JOB)


@pytest.mark.parametrize(
    "answer", [ServerError("broken"), TransportError("h", "down"), TimeoutError()]
)
async def test_a_server_that_does_not_answer_is_asked_again(answer: Exception) -> None:
    reader, server, _ = referred(answer)
    for _ in range(2):
        with pytest.raises(Unavailable, match="ClusterTrainingRuntime torch cannot be read"):
            await reader.complete(TRAIN_JOB, JOB)
    assert len(server.asked) == 2


async def test_jobs_of_other_kinds_are_not_asked_about() -> None:
    reader, server, _ = referred({})
    assert await reader.complete(BATCH_JOB, JOB) is JOB
    assert await reader.complete(TRAIN_JOB, {**JOB, "spec": {}}) == {**JOB, "spec": {}}
    assert server.asked == []
