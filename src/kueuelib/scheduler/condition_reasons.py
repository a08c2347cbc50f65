"""The reasons of `QuotaReserved=False`: what each one says about a Workload, and its short form.

The classes in `object_reasons` and `reasons` name one of them each. A new one is a line of this
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kueuelib.api import names

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"
WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
PENDING_EVALUATION: Final = "PendingEvaluation"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
INADMISSIBLE: Final = names.REASON_INADMISSIBLE
DEACTIVATED: Final = names.REASON_DEACTIVATED
PENDING: Final = names.REASON_PENDING


@attrs.frozen
class Meaning:
    """What a condition reason says.

    Attributes:
        short: the words of tables; empty: the reason itself.
        verdict: whether it says how a Workload fared in its queue, not what keeps it out of it.
        lasting: whether it holds until something changes, so that it explains why one waits.
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
    INADMISSIBLE: Meaning(),
    DEACTIVATED: Meaning("deactivated", lasting=False),
    PENDING: Meaning(lasting=False),
}

VERDICTS: Final = frozenset(reason for reason, one in MEANINGS.items() if one.verdict)
"""Condition reasons that say how a Workload fared in its queue, not what keeps it out of it."""
REPORTED: Final = frozenset(reason for reason, one in MEANINGS.items() if one.lasting)
"""Condition reasons that say why a Workload waits, in its queue or out of it."""
