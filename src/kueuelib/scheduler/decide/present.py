"""The present state in a cycle, in which all that leaves still holds quota.

Heads are decided in a state without it, but get quota only if they fit in this one as well. Room
that is only waited for does not count here. As long as nobody leaves, every head that fits also
fits here, so this state is not looked at.
"""

from __future__ import annotations

from kueuelib.scheduler.quota.amounts import Amounts
from kueuelib.scheduler.quota.snapshot import Frozen, FrozenQueue, Snapshot


class Present:
    """The present state, with what the heads of a cycle got.

    Args:
        frozen: the state before the cycle.

    Attributes:
        given: what heads got since the state was last looked at.
    """

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen
        self._snapshot: Snapshot | None = None
        self.given: list[tuple[FrozenQueue, Amounts]] = []

    def take_back(self, queue: FrozenQueue, usage: Amounts) -> None:
        """Takes back what a head got."""
        self.snapshot.remove(queue, usage)

    def fits(self, queue: FrozenQueue, usage: Amounts) -> bool:
        """Whether a request fits."""
        return self.snapshot.fits(queue, usage)

    @property
    def snapshot(self) -> Snapshot:
        """The state."""
        if self._snapshot is None:
            self._snapshot = Snapshot(self._frozen)
        for queue, usage in self.given:
            self._snapshot.add(queue, usage)
        self.given.clear()
        return self._snapshot
