"""Decides when the reason to wait is written to a Workload.

Such a write changes nothing, and is useless if the Workload is admitted soon after. So a waiting
Workload first joins a line of its ClusterQueue. When the ClusterQueue is at rest, the reasons of
the whole line are written, quickly but not at once. While it admits others, only a trickle is
written, one ClusterQueue after the other. An admission removes the Workload from its line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

PAUSE = 0.1
"""Seconds between two looks at the lines, and the shortest wait in one."""
AT_ONCE = 20
"""How many reasons are written per look, for ClusterQueues at rest."""
TRICKLE = 0.2
"""Seconds between two Workloads of ClusterQueues that are not at rest."""
REST = 30.0
"""Seconds without an admission after which a ClusterQueue is at rest: on a slow server, one that
will admit soon pauses for many seconds, and would get more of these writes the slower it is.
"""


@attrs.define
class _Line:
    """The Workloads that wait in a ClusterQueue, each with the earliest time to write its reason.

    Attributes:
        members: in the order of their arrival.
        admitted_at: when the ClusterQueue last admitted.
    """

    members: dict[ObjectKey, float] = attrs.field(factory=dict)
    admitted_at: float = float("-inf")

    def take(self, now: float, most: int) -> list[ObjectKey]:
        """Removes and returns those at the front that are due."""
        taken: list[ObjectKey] = []
        for key, due in self.members.items():
            if due > now or len(taken) >= most:
                break
            taken.append(key)
        for key in taken:
            del self.members[key]
        return taken


class Lines:
    """The Workloads that still need their reason. Instants are seconds of one clock."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._home: dict[ObjectKey, str] = {}
        self._trickles_at = float("-inf")

    def __bool__(self) -> bool:
        """Whether there is anything to look at: a line, or a ClusterQueue that is not at rest."""
        return bool(self._lines)

    def admitted(self, key: ObjectKey, cluster_queue: str, now: float) -> None:
        """A Workload no longer waits, and its ClusterQueue is not at rest."""
        self._leave(key)
        self._lines.setdefault(cluster_queue, _Line()).admitted_at = now

    def waits(self, key: ObjectKey, cluster_queue: str, due: float) -> None:
        """There is something to report about a Workload at `due`; the earlier time wins."""
        if self._home.get(key) != cluster_queue:
            self._leave(key)
            self._home[key] = cluster_queue
        members = self._lines.setdefault(cluster_queue, _Line()).members
        members[key] = min(due, members.get(key, due))

    def take(self, now: float) -> tuple[ObjectKey, ...]:
        """Removes and returns those whose reason is due now, at most `AT_ONCE` + 1."""
        taken: list[ObjectKey] = []
        for name, line in tuple(self._lines.items()):
            if now - line.admitted_at >= REST:
                taken += line.take(now, AT_ONCE - len(taken))
                if not line.members:
                    del self._lines[name]
            elif now >= self._trickles_at and (first := line.take(now, 1)):
                taken += first
                self._trickles_at = now + TRICKLE
                self._lines[name] = self._lines.pop(name)  # the others come first next time
        for key in taken:
            del self._home[key]
        return tuple(taken)

    def _leave(self, key: ObjectKey) -> None:
        name = self._home.pop(key, None)
        if name is not None:
            del self._lines[name].members[key]


class Teller:
    """Writes the reasons that are due; a part of a `Manager`.

    Args:
        tell: writes why some Workloads wait; must return at once.
        clock: monotonic time.
    """

    def __init__(
        self, tell: Callable[[tuple[ObjectKey, ...]], None], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._lines = Lines()
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
