"""What the orders of the scheduler are carried out with: admissions, evictions, reasons to wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.errors import ApiError, Conflict, NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.informer import Informer
from kueuelib.scheduler.events import Event
from kueuelib.workload.writer import write_status

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder

COMPONENT = "kueue-admission"
CONFLICTS = 4
"""How often a patch is rebuilt on a newer object before the retry waits."""
REFUSALS = 5
"""After how many refusals by the server an order is given up."""


@attrs.frozen(eq=False)
class Orders:
    """Writes the statuses of Workloads on behalf of the scheduler, and tells what became of it.

    Attributes:
        client: writes.
        workloads: the informer of Workloads.
        recorder: for events about Workloads.
        metrics: what was written, reserved, admitted and evicted.
        observe: tells the engine what became of a decision.
        clock: tells the time of transitions.
    """

    client: Client
    workloads: Informer
    recorder: EventRecorder
    metrics: SchedulerMetrics
    observe: Callable[[Event], None]
    clock: Clock = SYSTEM_CLOCK
    _answers: dict[ObjectKey, Obj] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.workloads.add_handler(lambda delta: self._drop(delta.key))

    def _drop(self, key: ObjectKey) -> None:
        self._answers.pop(key, None)

    def newest(self, key: ObjectKey) -> Obj | None:
        """The workload as we wrote it last, until the watch shows it or anything newer."""
        return self._answers.get(key) or self.workloads.store.get(key)

    def remember(self, key: ObjectKey, answer: Obj) -> None:
        """Keep what the server answered to a write until the watch has caught up."""
        self._answers[key] = answer

    async def read(self, key: ObjectKey) -> Obj:
        """The workload as the server has it.

        Raises:
            NotFound: it is gone.
        """
        return await self.client.get(self.workloads.resource, key)

    async def write(
        self, key: ObjectKey, wl: Obj | None, change: Callable[[Obj], Obj | None], what: str
    ) -> Obj | None:
        """Write a status, rebuilt on the newest object as often as somebody else was faster.

        Args:
            key: the workload.
            wl: its newest known state.
            change: makes the state that is to be written; None, or the same object, for nothing.
            what: the kind of order, for metrics and errors.

        Returns:
            What the server answered; None when there was nothing to write.

        Raises:
            NotFound: it is gone.
            Conflict: somebody was faster every time.
            ApiError: the server refuses.
        """
        for _ in range(CONFLICTS):
            if wl is None:
                raise NotFound(f"workload {key} is gone")
            new = change(wl)
            if new is None or new is wl:
                return None
            try:
                return await write_status(self.client, wl, new)
            except Conflict:
                self.metrics.wrote(what, "conflict")
                wl = await self.read(key)
        raise Conflict(f"workload {key} changes too fast for its {what} to be written")

    def event(self, wl: Obj, type: str, reason: str, message: str) -> None:
        """Report something about a Workload."""
        self.recorder.event(wl, type, reason, message, component=COMPONENT)


class Refusals:
    """How often the server refused the orders of one kind; the last one is not raised again.

    Args:
        what: the kind of order.
        metrics: counts.
    """

    def __init__(self, what: str, metrics: SchedulerMetrics) -> None:
        self._what = what
        self._metrics = metrics
        self._counts: dict[ObjectKey, int] = {}

    def add(self, key: ObjectKey, error: ApiError) -> None:
        """Count a refusal; returns when it was one too many.

        Raises:
            ApiError: that the server may still agree to.
        """
        if isinstance(error, Conflict) or error.code == 429 or error.code >= 500:
            raise error
        count = self._counts.get(key, 0) + 1
        self._metrics.wrote(self._what, "refused")
        if count < REFUSALS:
            self._counts[key] = count
            raise error

    def forget(self, key: ObjectKey) -> None:
        """The order was carried out, or given up."""
        self._counts.pop(key, None)
