"""Writes the status of queues: only changed fields, each at most once a second.

The slower the server answers, the rarer: admissions need it more.
"""

from __future__ import annotations

from typing import Protocol

from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.controllers.queue_status import status_patch
from kueuelib.errors import NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.queries import PatchType

PAUSE = 1.0
"""Seconds between two writes of one queue's status, at least."""
LONGEST_PAUSE = 10.0
PATIENCE = 50.0
"""How many times as long as a write took the next one of the same queue waits."""


class Learner(Protocol):
    """The part of an informer that a writer needs."""

    @property
    def resource(self) -> Resource:
        """What it follows."""
        ...

    def learn(self, answer: Obj) -> None:
        """Store the answer to a write."""
        ...


class QueueStatusWriter:
    """The shared half of the reconcilers of ClusterQueues, Cohorts and LocalQueues.

    The first change is written at once; later changes within the pause are written together at its
    end.
    """

    def __init__(self, client: Client, informer: Learner, clock: Clock) -> None:
        self._client = client
        self._informer = informer
        self._clock = clock
        self._next: dict[ObjectKey, float] = {}

    async def write(self, queue: Obj, status: Obj) -> Result:
        """Stores the given status now, or if it is too early, requests another reconciliation.

        Raises:
            ApiError: the server refuses.
            TransportError: no answer.
        """
        patch = status_patch(queue.get("status") or {}, status)
        if not patch:
            return DONE
        key = key_of(queue)
        now = self._clock.monotonic()
        pause = self.not_before(key) - now
        if pause > 0:
            return Result(requeue_after=pause)
        self._next[key] = now + PAUSE
        body = {"metadata": {"uid": queue["metadata"]["uid"]}, "status": patch}
        try:
            answer = await self._client.patch(
                self._informer.resource, key, body, PatchType.MERGE, subresource="status"
            )
        except NotFound:
            self.forget(key)
        else:
            took = self._clock.monotonic() - now
            self._next[key] = now + min(max(PAUSE, PATIENCE * took), LONGEST_PAUSE)
            self._informer.learn(answer)
        return DONE

    def not_before(self, key: ObjectKey) -> float:
        """From when on the status of a queue may be written, in monotonic seconds of the clock."""
        return self._next.get(key, 0.0)

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted queue."""
        self._next.pop(key, None)
