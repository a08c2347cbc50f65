"""How far the flavors of a waiting workload were tried, and what it was promised."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

import attrs

from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.values import record


class Requeue(Enum):
    """Why a head is requeued without quota.

    After `GENERIC`, StrictFIFO keeps its head and BestEffortFIFO parks it. After
    `FAILED_AFTER_NOMINATION` and `PENDING_PREEMPTION` either strategy keeps it, and after the
    latter nothing overtakes it in BestEffortFIFO. The last two park under either strategy,
    because no change of quota can help: only the namespace's labels, or the workload's own checks.
    """

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_CHECKS = "FailedChecks"


TriedFlavors = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""Which flavors were tried: pod set, resource, index of the last one; -1 to start over (5.6)."""


@record
class Promise:
    """The room that a preemptor gets when its victims are gone.

    Attributes:
        counts: pods per pod set.
        flavors: per pod set the flavor of each resource.
        usage: its charge.
        parallel: whether the next heads are decided meanwhile, beside that charge.
    """

    counts: tuple[int, ...]
    flavors: Mapping[str, Mapping[str, str]]
    usage: Mapping[FlavorResource, int] = attrs.field(factory=dict)
    parallel: bool = False


def is_unfinished(progress: TriedFlavors) -> bool:
    """Whether there are flavors left to try."""
    for _, indices in progress:
        for _, index in indices:
            if index != -1:
                return True
    return False


@record
class Pass:
    """One pass over the flavors of a workload, which may take several tries.

    Attributes:
        began: the instant of the first of them.
        has_news: whether anything happened in the scope after the try before that. A pass without
            news does not justify a cycle, or two heads would keep each other searching forever.
        seen: the progress after each try. The pass ends when one repeats, because several pod sets
            may never finish at the same time.
        lost: whether the workload lost its chosen flavor to another head.
    """

    began: int
    has_news: bool
    seen: tuple[TriedFlavors, ...] = ()
    lost: bool = False

    def goes_on(self, progress: TriedFlavors) -> bool:
        """Whether the pass continues after a try with this progress."""
        return is_unfinished(progress) and progress not in self.seen

    def after(self, progress: TriedFlavors, *, lost: bool) -> Pass:
        """The pass after one more try."""
        return Pass(self.began, self.has_news, (*self.seen, progress), self.lost or lost)


@lru_cache(maxsize=2)
def _new_pass(began: int, has_news: bool) -> Pass:
    return Pass(began, has_news)
