"""The status of a queue is written at most once in a pause, and the answer is remembered."""

from __future__ import annotations

from typing import Any

from kueuelib.api.kinds import CLUSTER_QUEUES
from kueuelib.controllers.queue_writer import PAUSE, QueueStatusWriter
from kueuelib.errors import NotFound
from kueuelib.runtime.clock import SystemClock

QUEUE: dict[str, Any] = {"metadata": {"name": "one", "uid": "uid", "resourceVersion": "4"}}


class Still(SystemClock):
    """Time stands still."""

    def monotonic(self) -> float:
        return 100.0


class Server:
    """Answers patches, and is the informer that learns."""

    resource = CLUSTER_QUEUES

    def __init__(self) -> None:
        self.there = True
        self.bodies: list[Any] = []
        self.learned: list[Any] = []

    async def patch(self, _resource: Any, key: Any, body: Any, *_: Any, **__: Any) -> Any:
        if not self.there:
            raise NotFound(f"{key} is gone")
        self.bodies.append(body)
        return {"metadata": {**QUEUE["metadata"], "resourceVersion": "5"}, **body}

    def learn(self, answer: Any) -> None:
        self.learned.append(answer)


async def test_the_answer_is_learned() -> None:
    server = Server()
    writer = QueueStatusWriter(server, server, Still())  # type: ignore[arg-type]
    await writer.write(QUEUE, {"pendingWorkloads": 1})
    assert [body["status"] for body in server.bodies] == [{"pendingWorkloads": 1}]
    assert [answer["status"] for answer in server.learned] == [{"pendingWorkloads": 1}]


async def test_what_follows_within_the_pause_comes_later() -> None:
    server = Server()
    writer = QueueStatusWriter(server, server, Still())  # type: ignore[arg-type]
    await writer.write(QUEUE, {"pendingWorkloads": 1})
    later = await writer.write(QUEUE, {"pendingWorkloads": 2})
    assert later.requeue_after == PAUSE
    assert len(server.bodies) == 1


async def test_a_queue_that_is_gone_is_forgotten() -> None:
    server = Server()
    server.there = False
    writer = QueueStatusWriter(server, server, Still())  # type: ignore[arg-type]
    assert (await writer.write(QUEUE, {"pendingWorkloads": 1})).requeue_after is None
    assert server.learned == []
