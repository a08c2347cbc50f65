"""Verdicts in one or two words, for tables; the same from the engine and from a condition."""

from __future__ import annotations

from kueuelib.scheduler.condition_reasons import MEANINGS
from kueuelib.scheduler.explain.trial import TrialOutcome, Verdict
from kueuelib.scheduler.object_reasons import BackingOff, ChecksFailed
from kueuelib.scheduler.reasons import condition_reason

FITS = "fits now"
WAITS_FOR_CHECKS = "waits for checks"
PODS_MISSING = "pods missing"
NOT_EVALUATED = "not evaluated"

_BY_KIND: dict[type, str] = {BackingOff: "backs off", ChecksFailed: "check failed"}


def word_of(outcome: TrialOutcome) -> str:
    """The engine's decision in short.

    Args:
        outcome: of a Workload without quota.
    """
    if outcome.verdict is Verdict.ADMITTED:
        return FITS
    if outcome.verdict is Verdict.PREEMPTS:
        return f"preempts {len(outcome.victims)}"
    if outcome.reason is None:
        return NOT_EVALUATED
    kind = _BY_KIND.get(type(outcome.reason))
    return kind or word_of_condition(condition_reason(outcome.reason))


def word_of_condition(reason: str) -> str:
    """The manager's reason in short; an unknown reason stays as it is.

    Args:
        reason: of the condition QuotaReserved; empty where there is none.
    """
    meaning = MEANINGS.get(reason)
    return (meaning.short if meaning else "") or reason or NOT_EVALUATED
