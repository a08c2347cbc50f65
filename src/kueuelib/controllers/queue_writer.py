"""Writes the status of queues, each at most once a second and only what has changed."""

from __future__ import annotations

from typing import Protocol

from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.controllers.queue_status import status_patch
from kueuelib.errors import NotFound
from kueuelib.runtime.client import Client, PatchType
from kueuelib.runtime.clock import Clock
from kueuelib.runtime.controller import DONE, Result

PAUSE = 1.0
"""Seconds between two writes of one queue's status."""


class Learner(Protocol):
    """An informer, as far as a writer needs it."""

    @property
    def resource(self) -> Resource:
        """What it follows."""
        ...

    def learn(self, answer: Obj) -> None:
        """Store the answer to a write."""
        ...


class QueueStatusWriter:
    """The shared half of the reconcilers of ClusterQueues, Cohorts and LocalQueues.

    The first change is written at once; what follows within the pause is written together at its
    end.
    """

    def __init__(self, client: Client, informer: Learner, clock: Clock) -> None:
        self._client = client
        self._informer = informer
        self._clock = clock
        self._next: dict[ObjectKey, float] = {}

    def too_early(self, key: ObjectKey) -> Result | None:
        """When to come again, if the pause after the last write is not over.

        Nothing has to be computed before: what a busy queue shows changes with every admission.
        """
        now = self._clock.monotonic()
        due = self._next.get(key, now)
        return Result(requeue_after=due - now) if due > now else None

    async def write(self, queue: Obj, status: Obj) -> Result:
        """Makes the stored status the given one; `too_early` was asked before.

        Raises:
            ApiError: the server refuses.
            TransportError: no answer.
        """
        patch = status_patch(queue.get("status") or {}, status)
        if not patch:
            return DONE
        key = key_of(queue)
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

    def forget(self, key: ObjectKey) -> None:
        """The queue is gone."""
        self._next.pop(key, None)
