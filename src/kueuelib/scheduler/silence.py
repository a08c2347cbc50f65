"""Workloads about which nothing was reported yet, and when to do it without a cycle of their own.

A workload behind a blocked head is never a head itself, so no cycle says why it waits; and when a
stopped ClusterQueue goes on, its workloads still say that it is stopped. After a while at rest they
are reported anyway. This is paced and happens only when no cycle is due, so that the writes never
delay an admission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kueuelib.api.meta import ObjectKey

PATIENCE = 1.0
"""Seconds that a workload waits for a cycle to report its verdict."""
AT_ONCE = 20
"""How many workloads are reported at once."""
PAUSE = 0.1
"""Seconds between two such groups."""


class Silence:
    """The workloads that nothing was reported about, oldest first. Instants are in seconds."""

    def __init__(self) -> None:
        self._since: dict[ObjectKey, float] = {}
        self._not_before = float("-inf")

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: ObjectKey, now: float) -> None:
        """Nothing that was reported about a workload holds any more."""
        self._since.setdefault(key, now)

    def forget(self, key: ObjectKey) -> None:
        """A workload left its queue, or its verdict was reported."""
        self._since.pop(key, None)

    def deadline(self) -> float | None:
        """When `take` is worth a call; None when nothing waits for it."""
        first = next(iter(self._since.values()), None)
        return None if first is None else max(first + PATIENCE, self._not_before)

    def take(self, now: float, has_reason: Callable[[ObjectKey], bool]) -> Iterator[ObjectKey]:
        """Removes the workloads whose turn has come, a limited number at a time.

        Args:
            now: the present.
            has_reason: whether there is something to report about a workload; the others are
                removed as well: a cycle is going to report them.
        """
        deadline = self.deadline()
        if deadline is None or deadline > now:
            return
        count = 0
        for key, since in tuple(self._since.items()):
            if since + PATIENCE > now or count == AT_ONCE:
                break
            del self._since[key]
            if has_reason(key):
                count += 1
                yield key
        if count:
            self._not_before = now + PAUSE
