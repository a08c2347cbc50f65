"""The status of a queue is written at most once in a pause, and the answer is remembered."""

from __future__ import annotations

from typing import Any

from kueuelib.api.kinds import CLUSTER_QUEUES
from kueuelib.api.meta import key_of
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.controllers.cluster_queue import ClusterQueueReconciler
from kueuelib.controllers.queue_metrics import OwnedSeries
from kueuelib.controllers.queue_writer import PAUSE, QueueStatusWriter
from kueuelib.errors import NotFound
from kueuelib.runtime.clock import SystemClock
from kueuelib.scheduler.engine import Engine

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
        self.store: dict[Any, Any] = {}

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
    assert writer.pause(key_of(QUEUE)) == 0
    await writer.write(QUEUE, {"pendingWorkloads": 1})
    later = await writer.write(QUEUE, {"pendingWorkloads": 2})
    assert later.requeue_after == writer.pause(key_of(QUEUE)) == PAUSE
    assert len(server.bodies) == 1


async def test_a_queue_that_is_gone_is_forgotten() -> None:
    server = Server()
    server.there = False
    writer = QueueStatusWriter(server, server, Still())  # type: ignore[arg-type]
    assert (await writer.write(QUEUE, {"pendingWorkloads": 1})).requeue_after is None
    assert server.learned == []


async def test_numbers_wait_for_the_next_write_but_not_those_of_a_deleted_queue() -> None:
    server, key = Server(), key_of(QUEUE)
    server.store = {
        key: {**QUEUE, "metadata": {**QUEUE["metadata"], "finalizers": [IN_USE_FINALIZER]}}
    }
    reconciler = ClusterQueueReconciler(
        server,  # type: ignore[arg-type]
        server,  # type: ignore[arg-type]
        Engine(),
        OwnedSeries(),
        clock=Still(),
    )
    await reconciler.reconcile(key)
    assert reconciler.pause(key) == PAUSE
    server.store[key]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert reconciler.pause(key) == 0
