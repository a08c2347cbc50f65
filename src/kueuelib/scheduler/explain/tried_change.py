"""Changes that a search tried."""

from __future__ import annotations

from kueuelib.api.meta import ObjectKey
from kueuelib.api.struct import frozen
from kueuelib.scheduler.explain.changes import CandidateChange
from kueuelib.scheduler.explain.trial import TrialOutcome


@frozen
class TriedChange:
    """A change that was tried.

    Attributes:
        change: what to do.
        outcome: its outcome.
        checks: the admission checks that decide afterwards.
        sized: whether a size was searched for; if not, only a smaller one is worth reporting.
    """

    change: CandidateChange
    outcome: TrialOutcome
    checks: tuple[str, ...] = ()
    sized: bool = True

    @property
    def victims(self) -> tuple[ObjectKey, ...]:
        """The workloads that would be preempted for it."""
        return self.outcome.victims


@frozen
class TriedPair:
    """Two changes that were tried together, neither of which is enough alone.

    Attributes:
        changes: what to do.
        outcome: their outcome.
        checks: the admission checks that decide afterwards.
    """

    changes: tuple[CandidateChange, CandidateChange]
    outcome: TrialOutcome
    checks: tuple[str, ...] = ()

    @property
    def victims(self) -> tuple[ObjectKey, ...]:
        """The workloads that would be preempted for them."""
        return self.outcome.victims
