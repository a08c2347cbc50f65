"""Notices that somebody else decides about the same Workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.api.workload_state import has_quota
from kueuelib.machinery.store import Delta
from kueuelib.runtime.logs import get_logger

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventSink
    from kueuelib.runtime.telemetry import Telemetry

PERIOD: Final = 60.0
"""Seconds for which another report about the same is left out."""
RESERVED_BY_ANOTHER: Final = "ReservedByAnother"
MESSAGE: Final = (
    "This manager did not reserve the quota that the Workload holds. Another manager decides too, "
    "or its status was written by hand: run one manager, or set leaderElection.leaderElect in all"
)


class ForeignReservations:
    """Counts reservations that others wrote; a handler of the informer of Workloads.

    It must be added before the handler that feeds the engine. The engine knows the quota that this
    manager reserves before it is written.

    Args:
        telemetry: counts all of them.
        recorder: reports one a minute on its Workload.
        holds: whether the engine knows that a Workload holds quota.
        decides: whether this manager decides, and is the only one that may.
        monotonic: seconds.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        recorder: EventSink,
        holds: Callable[[ObjectKey], bool],
        *,
        decides: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._count = telemetry.counter(
            "kueuelib_foreign_reservations_total",
            "Workloads whose quota this manager did not reserve, although it decides alone.",
        )
        self._recorder = recorder
        self._holds = holds
        self._decides = decides
        self._monotonic = monotonic
        self._next = -PERIOD
        self._log = get_logger("admission")

    def seen(self, delta: Delta[Obj]) -> None:
        """Takes one change of a Workload."""
        old, new = delta.old, delta.new
        if old is None or new is None or has_quota(old) or not has_quota(new):
            return
        if not self._holds(delta.key):
            self.reserved(new)

    def reserved(self, wl: Obj) -> None:
        """Somebody else reserved quota for a raw Workload."""
        if not self._decides():
            return
        self._count.inc()
        now = self._monotonic()
        if now >= self._next:
            self._next = now + PERIOD
            self._log.warning(MESSAGE, workload=str(key_of(wl)))
            self._recorder.event(wl, "Warning", RESERVED_BY_ANOTHER, MESSAGE)
