"""Decides when the reason to wait is written to a Workload.

Such a write changes nothing, and is useless if the Workload is admitted soon after. So a waiting
Workload first joins a line of its ClusterQueue. When the tree of cohorts is at rest, the reasons
of its lines are written, quickly but not at once. While one of its ClusterQueues admits, the others
may soon, too, so only a trickle is written, one ClusterQueue after the other: on a slow server each
ClusterQueue pauses for longer, and would otherwise get more of these writes the slower it is. An
admission removes the Workload from its line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice, takewhile

from kueuelib.api.meta import ObjectKey
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

PAUSE = 0.1
"""Seconds between two looks at the lines, and the shortest wait in one."""
AT_ONCE = 20
"""How many reasons are written per look, for trees at rest."""
TRICKLE = 0.2
"""Seconds between two Workloads of trees that are not at rest."""
REST = 5.0
"""Seconds without an admission after which a tree of cohorts is at rest."""


class Lines:
    """The Workloads that still need their reason. Instants are seconds of one clock.

    Args:
        root_of: the topmost cohort above a ClusterQueue, which names its tree; empty without one.
    """

    def __init__(self, root_of: Callable[[str], str] = lambda _: "") -> None:
        self._root_of = root_of
        self._lines: dict[str, dict[ObjectKey, float]] = {}
        self._home: dict[ObjectKey, str] = {}
        self._admitted_at: dict[tuple[str, str], float] = {}
        self._trickles_at = float("-inf")

    def __bool__(self) -> bool:
        """Whether there is anything to look at: a line, or a tree that is not at rest."""
        return bool(self._lines or self._admitted_at)

    def admitted(self, key: ObjectKey, cluster_queue: str, now: float) -> None:
        """A Workload no longer waits, and the tree of its ClusterQueue is not at rest."""
        self._leave(key)
        self._admitted_at[self._tree_of(cluster_queue)] = now

    def waits(self, key: ObjectKey, cluster_queue: str, due: float) -> None:
        """There is something to report about a Workload at `due`; the earlier time wins."""
        if self._home.get(key) != cluster_queue:
            self._leave(key)
            self._home[key] = cluster_queue
        line = self._lines.setdefault(cluster_queue, {})
        line[key] = min(due, line.get(key, due))

    def take(self, now: float) -> tuple[ObjectKey, ...]:
        """Removes and returns those whose reason is due now, at most `AT_ONCE` + 1."""
        for tree, at in tuple(self._admitted_at.items()):
            if now - at >= REST:
                del self._admitted_at[tree]
        quick: list[ObjectKey] = []
        slow: list[ObjectKey] = []
        for name, line in tuple(self._lines.items()):
            if self._tree_of(name) not in self._admitted_at:
                quick += _due(line, now, AT_ONCE - len(quick))
            elif now >= self._trickles_at and (first := _due(line, now, 1)):
                slow = first
                self._trickles_at = now + TRICKLE
                self._lines[name] = self._lines.pop(name)  # the others come first next time
        taken = (*slow, *quick)
        for key in taken:
            self._leave(key)
        return taken

    def _tree_of(self, cluster_queue: str) -> tuple[str, str]:
        root = self._root_of(cluster_queue)
        return root, "" if root else cluster_queue

    def _leave(self, key: ObjectKey) -> None:
        name = self._home.pop(key, None)
        if name is not None:
            del self._lines[name][key]
            if not self._lines[name]:
                del self._lines[name]


def _due(line: dict[ObjectKey, float], now: float, most: int) -> list[ObjectKey]:
    """Those at the front of a line whose time has come."""
    return [key for key, _ in takewhile(lambda entry: entry[1] <= now, islice(line.items(), most))]


class Teller:
    """Writes the reasons that are due; a part of a `Manager`.

    Args:
        tell: writes why some Workloads wait; must return at once.
        root_of: see `Lines`.
        clock: monotonic time.
    """

    def __init__(
        self,
        tell: Callable[[tuple[ObjectKey, ...]], None],
        root_of: Callable[[str], str],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._lines = Lines(root_of)
        self._something = asyncio.Event()

    def admitted(self, key: ObjectKey, cluster_queue: str) -> None:
        """See `Lines.admitted`."""
        self._lines.admitted(key, cluster_queue, self._clock.monotonic())
        self._something.set()

    def waits(self, key: ObjectKey, cluster_queue: str, after: float) -> None:
        """There is something to report about a Workload in `after` seconds."""
        self._lines.waits(key, cluster_queue, self._clock.monotonic() + after)
        self._something.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Work until cancelled."""
        ready()
        while True:
            await self._something.wait()
            while self._lines:
                await self._clock.sleep(PAUSE)
                if keys := self._lines.take(self._clock.monotonic()):
                    self._tell(keys)
            self._something.clear()
