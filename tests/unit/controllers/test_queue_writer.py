"""The status of a queue is written at most once in a pause, and the answer is remembered."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from kueuelib.api.kinds import CLUSTER_QUEUES
from kueuelib.api.meta import key_of
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.controllers.queue_metrics import OwnedSeries
from kueuelib.controllers.queues import (
    LONGEST_PAUSE,
    PAUSE,
    ClusterQueueReconciler,
    QueueStatusWriter,
)
from kueuelib.errors import NotFound, TransportError
from kueuelib.runtime.clock import SystemClock
from kueuelib.scheduler.engine import Engine

QUEUE: dict[str, Any] = {"metadata": {"name": "one", "uid": "uid", "resourceVersion": "4"}}


class Still(SystemClock):
    """Time stands still."""

    at = 100.0

    def monotonic(self) -> float:
        return self.at


def idle() -> bool:
    """No admission is being written."""
    return False


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
    writer = QueueStatusWriter(server, server, Still(), idle)  # type: ignore[arg-type]
    await writer.write(QUEUE, {"pendingWorkloads": 1})
    assert [body["status"] for body in server.bodies] == [{"pendingWorkloads": 1}]
    assert [answer["status"] for answer in server.learned] == [{"pendingWorkloads": 1}]


async def test_what_follows_within_the_pause_comes_later() -> None:
    server = Server()
    writer = QueueStatusWriter(server, server, Still(), idle)  # type: ignore[arg-type]
    assert writer.not_before(key_of(QUEUE)) == 0
    await writer.write(QUEUE, {"pendingWorkloads": 1})
    later = await writer.write(QUEUE, {"pendingWorkloads": 2})
    assert writer.not_before(key_of(QUEUE)) == 100.0 + PAUSE
    assert later.requeue_after == PAUSE
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("took", "pause"), [(0.01, PAUSE), (0.1, 5.0), (5.0, LONGEST_PAUSE), (20.0, LONGEST_PAUSE)]
)
@pytest.mark.parametrize("fails", [False, True])
async def test_while_admissions_are_written_a_slow_write_has_a_longer_pause(
    took: float, pause: float, fails: bool
) -> None:
    clock, is_busy = Still(), True

    class Slow(Server):
        async def patch(self, *args: Any, **options: Any) -> Any:
            clock.at += took
            if fails:
                raise TransportError("server", "is away")
            return await super().patch(*args, **options)

    server = Slow()
    writer = QueueStatusWriter(server, server, clock, lambda: is_busy)  # type: ignore[arg-type]
    with suppress(TransportError):
        await writer.write(QUEUE, {"pendingWorkloads": 1})
    later = await writer.write(QUEUE, {"pendingWorkloads": 2})
    assert later.requeue_after == pytest.approx(pause)
    is_busy = False
    later = await writer.write(QUEUE, {"pendingWorkloads": 2})
    assert later.requeue_after == pytest.approx(PAUSE)


async def test_a_queue_that_is_gone_is_forgotten() -> None:
    server = Server()
    server.there = False
    writer = QueueStatusWriter(server, server, Still(), idle)  # type: ignore[arg-type]
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
    assert reconciler.not_before(key) == 100.0 + PAUSE
    server.store[key]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert reconciler.not_before(key) == 0
