"""Decides when to report Workloads that do not get their own cycle.

A workload behind a blocked head is never a head itself, so no cycle says why it waits. And when a
stopped ClusterQueue resumes, its workloads still say that it is stopped. After a while at rest they
are reported anyway, at a limited rate and only when no cycle is due, so that the writes never delay
an admission. A workload that joins refused ones is reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.object_reasons import NamespaceUnknown
from kueuelib.scheduler.pending.item import Pending, PendingPlace
from kueuelib.scheduler.pending.workload_info import has_verdict, is_outdated
from kueuelib.scheduler.reasons import BehindHead, NoFlavors, Reason

if TYPE_CHECKING:
    from kueuelib.scheduler.pending.queue import Group

PATIENCE = 1.0
"""Seconds that a workload waits for a cycle to report its verdict."""
AT_ONCE = 20
"""How many workloads are reported at once."""
PAUSE = 0.1
"""Seconds between two such groups."""


class Silence:
    """The workloads without a report, oldest first. Instants are in seconds.

    Args:
        find: the workload of a name if it waits.
    """

    def __init__(self, find: Callable[[ObjectKey], Pending | None]) -> None:
        self._find = find
        self._since: dict[ObjectKey, float] = {}
        self._over: dict[ObjectKey, None] = {}
        self._not_before = float("-inf")

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: ObjectKey, now: float) -> None:
        """The report about a workload no longer holds."""
        self._since.setdefault(key, now)

    def refused(self, group: Group, now: float) -> None:
        """Reports the verdict of a group that was just parked.

        Those without a report are reported at once. If there is a new blocker that no change of
        usage removes, the others are reported at rest.
        """
        reason = None if group.verdict is None else group.verdict.reason
        if isinstance(reason, NoFlavors):
            lasting = reason.lasting
            if any(group.told.get(place, verdict) != verdict for place, verdict in lasting.items()):
                for key, item in group.members.items():
                    if item.reason is not None and item.reason is not reason:
                        item.reason = reason
                        self.add(key, now)
            group.told.update(lasting)
        self.tell(group)

    def tell(self, group: Group) -> None:
        """Reports the verdict of a parked group at once, for Workloads without a report."""
        if group.verdict is None:
            return
        for key in group.untold:
            group.members[key].reason = group.verdict.reason
            self._since.pop(key, None)
            self._over[key] = None
        group.untold.clear()

    def forget(self, key: ObjectKey) -> None:
        """A workload left its queue, or its verdict was reported."""
        self._since.pop(key, None)

    def deadline(self) -> float | None:
        """When a report becomes due by time alone, or None."""
        first = next(iter(self._since.values()), None)
        return None if first is None else max(first + PATIENCE, self._not_before)

    @property
    def is_over(self) -> bool:
        """Whether any report is due."""
        return bool(self._over)

    def end(self, now: float) -> bool:
        """Ends the silence about those that waited long enough, a limited number at a time.

        Those that a cycle will report are removed as well.

        Args:
            now: the present.

        Returns:
            Whether any report is due.
        """
        deadline = self.deadline()
        if deadline is None or deadline > now:
            return self.is_over
        count = 0
        for key, since in tuple(self._since.items()):
            if since + PATIENCE > now or count == AT_ONCE:
                break
            del self._since[key]
            if self._reason(key) is not None:
                count += 1
                self._over[key] = None
        if count:
            self._not_before = now + PAUSE
        return self.is_over

    def take(self) -> Iterator[tuple[Pending, Reason]]:
        """The workloads to report, each with the reason; they are removed.

        They are parked because their shape was refused, or wait behind a blocked head.
        """
        taken = tuple(self._over)
        self._over.clear()
        for key in taken:
            item = self._find(key)
            reason = None if item is None else reason_to_report(item)
            if item is not None and reason is not None:
                yield item, reason

    def _reason(self, key: ObjectKey) -> Reason | None:
        item = self._find(key)
        return None if item is None else reason_to_report(item)


def reason_to_report(item: Pending) -> Reason | None:
    """Why a workload waits at rest; None if a cycle will try it."""
    if not item.queue.active:
        return None
    if item.place is PendingPlace.INADMISSIBLE or item.is_promised or says_otherwise(item):
        return item.reason
    if has_verdict(item.info.workload):
        return None  # from before a restart, perhaps: better than the name of a head
    first = item.queue.heap.head() if item.place is PendingPlace.HEAP else None
    if first is None or first is item:
        return None
    usage = item.queue.heap.usage
    used_less = first.lane if usage(first) < usage(item) else None
    return BehindHead(first.info.key, item.queue.name, used_less)


def says_otherwise(item: Pending) -> bool:
    """Whether the object contradicts the last verdict.

    This happens if an older report was stored late: its answer was lost, and the newer one was not
    written because it seemed to be stored already.
    """
    reason = item.reason
    if reason is None or isinstance(reason, NamespaceUnknown):
        return False
    has_turn = item.place is PendingPlace.HEAP and not item.is_promised
    tried = not has_turn or item.queue.heap.head() is item
    return is_outdated(item.info.workload, reason, tried=tried)
