"""Writes the statuses for the scheduler's orders: admissions, evictions, reasons to wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.machinery.event_series import EventType
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.scheduler.events import Event
from kueuelib.workload.writer import StatusWriter

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder

COMPONENT = "kueue-admission"


@attrs.frozen(eq=False)
class OrderWriter:
    """Writes the statuses of Workloads on behalf of the scheduler, and reports the result.

    Attributes:
        writer: writes.
        recorder: for events about Workloads.
        metrics: counts writes, reservations, admissions and evictions.
        observe: reports the result of a decision to the engine.
        clock: stamps transitions.
        foreign: learns that somebody else reserved the quota that a Workload was to get.
    """

    writer: StatusWriter
    recorder: EventRecorder
    metrics: SchedulerMetrics
    observe: Callable[[Event], None]
    clock: Clock = SYSTEM_CLOCK
    foreign: Callable[[Obj], None] = lambda _: None

    async def write(
        self, key: ObjectKey, change: Callable[[Obj], Obj | None], what: str
    ) -> Obj | None:
        """Write a status on the newest object, and count conflicts; see `StatusWriter.change`.

        Args:
            key: the workload.
            change: returns the state to write; None, or the same object, for nothing.
            what: the kind of order, for metrics.
        """
        return await self.writer.change(
            key, change, conflict=lambda: self.metrics.wrote(what, "conflict")
        )

    def event(self, wl: Obj, type: EventType, reason: str, message: str) -> None:
        """Report something about a Workload."""
        self.recorder.event(wl, type, reason, message, component=COMPONENT)
