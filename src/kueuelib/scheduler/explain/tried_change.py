"""A change that a search tried."""

from __future__ import annotations

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.explain.changes import Change
from kueuelib.scheduler.explain.trial import Outcome


@attrs.frozen
class TriedChange:
    """A change that was tried.

    Attributes:
        change: what to do.
        outcome: what it came to.
        checks: the admission checks that decide after it has reserved quota.
        sized: whether a size was looked for; if not, only a smaller one is worth saying.
    """

    change: Change
    outcome: Outcome
    checks: tuple[str, ...] = ()
    sized: bool = True

    @property
    def victims(self) -> tuple[ObjectKey, ...]:
        """Who would be preempted for it."""
        return self.outcome.victims
