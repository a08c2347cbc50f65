"""Writes the status of queues: each at most once a second, and only changed fields."""

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
"""Seconds between two writes of one queue's status."""


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
        pause = self.pause(key)
        if pause > 0:
            return Result(requeue_after=pause)
        self._next[key] = self._clock.monotonic() + PAUSE
        body = {"metadata": {"uid": queue["metadata"]["uid"]}, "status": patch}
        try:
            answer = await self._client.patch(
                self._informer.resource, key, body, PatchType.MERGE, subresource="status"
            )
        except NotFound:
            self.forget(key)
        else:
            self._informer.learn(answer)
        return DONE

    def pause(self, key: ObjectKey) -> float:
        """Seconds until the status of a queue may be written; 0 for now."""
        now = self._clock.monotonic()
        return max(self._next.get(key, now) - now, 0.0)

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted queue."""
        self._next.pop(key, None)
