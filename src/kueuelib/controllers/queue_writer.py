"""Writes the status of queues: each at most once a second, and only changed fields.

While admissions are written, the pause is longer, the longer the last write took.
"""

from __future__ import annotations

from collections.abc import Callable
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
PAUSE_FACTOR = 50.0
"""The pause while admissions are written, as a multiple of what the last write took."""
LONGEST_PAUSE = 10.0
"""Seconds that it takes at most."""


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

    Args:
        client: writes.
        informer: learns the answers.
        clock: paces the writes.
        busy: whether admissions are being written.
    """

    def __init__(
        self, client: Client, informer: Learner, clock: Clock, busy: Callable[[], bool]
    ) -> None:
        self._client = client
        self._informer = informer
        self._clock = clock
        self._busy = busy
        self._written: dict[ObjectKey, tuple[float, float]] = {}  # when, and how long it took

    async def write(self, queue: Obj, status: Obj) -> Result:
        """Stores the given status now, or if it is too early, requests another reconciliation.

        Raises:
            ApiError: the server refuses.
            TransportError: no answer.
        """
        patch = status_patch(queue.get("status") or {}, status)
        if not patch:
            return DONE
        key, began = key_of(queue), self._clock.monotonic()
        pause = self.not_before(key) - began
        if pause > 0:
            return Result(requeue_after=pause)
        body = {"metadata": {"uid": queue["metadata"]["uid"]}, "status": patch}
        self._written[key] = began, 0.0
        try:
            answer = await self._client.patch(
                self._informer.resource, key, body, PatchType.MERGE, subresource="status"
            )
        except NotFound:
            self.forget(key)
            return DONE
        finally:
            if key in self._written:
                ended = self._clock.monotonic()
                self._written[key] = ended, ended - began
        self._informer.learn(answer)
        return DONE

    def not_before(self, key: ObjectKey) -> float:
        """From when on the status of a queue may be written, in monotonic seconds of the clock."""
        written = self._written.get(key)
        if written is None:
            return 0.0
        ended, took = written
        longer = min(PAUSE_FACTOR * took, LONGEST_PAUSE) if self._busy() else 0.0
        return ended + max(PAUSE, longer)

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted queue."""
        self._written.pop(key, None)
