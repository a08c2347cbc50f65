"""The reasons of `QuotaReserved=False`: the meaning of each one for a Workload, and its short form.

The classes in `object_reasons` and `reasons` name one of them each. A new one is a line of this
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kueuelib.api import names
from kueuelib.api.struct import frozen

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"
WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
PENDING_EVALUATION: Final = "PendingEvaluation"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
ADMISSION_GATED: Final = "AdmissionGated"
INADMISSIBLE: Final = names.REASON_INADMISSIBLE
DEACTIVATED: Final = names.REASON_DEACTIVATED
PENDING: Final = names.REASON_PENDING
PODS_MISSING: Final = names.REASON_PODS_MISSING
"""It is not written to that condition: Requeued=False says so."""


@frozen
class Meaning:
    """The meaning of a condition reason.

    Attributes:
        short: the words of tables; empty: the reason itself.
        verdict: whether it is the result of a try, and not an obstacle that keeps a Workload out of
            its queue.
        lasting: whether it holds until something changes, so that it explains a wait.
    """

    short: str = ""
    verdict: bool = False
    lasting: bool = True


MEANINGS: Final[Mapping[str, Meaning]] = {
    WAITING_FOR_QUOTA: Meaning("quota in use", verdict=True),
    EXCEEDS_MAX_QUOTA: Meaning("exceeds quota", verdict=True),
    NO_MATCHING_FLAVOR: Meaning("no flavor matches", verdict=True),
    WAITING_FOR_PODS_READY: Meaning("waits for pods", verdict=True),
    WAITING_FOR_PREEMPTED: Meaning("preempts", verdict=True),
    PENDING_EVALUATION: Meaning("behind others", verdict=True),
    MISCONFIGURED: Meaning("misconfigured"),
    SUSPENDED: Meaning("queue stopped"),
    ADMISSION_GATED: Meaning("gated"),
    INADMISSIBLE: Meaning(),
    DEACTIVATED: Meaning("deactivated", lasting=False),
    PENDING: Meaning(lasting=False),
    PODS_MISSING: Meaning("pods missing", lasting=False),
}

VERDICTS: Final = frozenset(reason for reason, one in MEANINGS.items() if one.verdict)
"""Condition reasons that are results of tries, not obstacles that keep a Workload out of its
queue.
"""
REPORTED: Final = frozenset(reason for reason, one in MEANINGS.items() if one.lasting)
"""Condition reasons that say why a Workload waits, in its queue or out of it."""
