"""Limits, patterns and constants of fields, as keywords of a schema: `wire(**SUBDOMAIN)`.

An optional name may be given as an empty text, which means the same as leaving it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.struct import wire

# ---- constants and limits of the queueing objects, as they are on the wire -----------------------

STRICT_FIFO, BEST_EFFORT_FIFO = "StrictFIFO", "BestEffortFIFO"
NONE, HOLD, HOLD_AND_DRAIN = "None", "Hold", "HoldAndDrain"
MAY_STOP_SEARCH, TRY_NEXT_FLAVOR = "MayStopSearch", "TryNextFlavor"
BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"
USAGE_BASED_ADMISSION_FAIR_SHARING = "UsageBasedAdmissionFairSharing"
NO_ADMISSION_FAIR_SHARING = "NoAdmissionFairSharing"
CHECK_PENDING, CHECK_READY, CHECK_RETRY, CHECK_REJECTED = "Pending", "Ready", "Retry", "Rejected"
ANYTIME, AFTER_CHECK_PASSED_OR_ON_DEMAND = "Anytime", "AfterCheckPassedOrOnDemand"
PLACES_PENDING, PLACES_READY = "Pending", "Ready"
MAIN_POD_SET = "main"

LIST_LIMIT = 64
"""How many entries the lists of a ClusterQueue may have (today's limit)."""

GROUP_LIMIT = 16
"""How many resource groups a Cohort may have."""

POD_SET_LIMIT = 18
"""How many pod sets a Workload may have (today's limit)."""

CONDITIONS = wire(keys=("type",), maxItems=16)
"""The metadata of a field with conditions."""


# --------------------------------------------------------------------------------------------------

SUBDOMAIN_LIMIT: Final = 253
LABEL_LIMIT: Final = 63

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = rf"({_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_QUALIFIED_LIMIT: Final = SUBDOMAIN_LIMIT + 1 + LABEL_LIMIT

Keywords = Mapping[str, Any]

SUBDOMAIN: Final[Keywords] = {"maxLength": SUBDOMAIN_LIMIT, "pattern": f"^{_SUBDOMAIN}$"}
"""A DNS-1123 subdomain."""

OPTIONAL_SUBDOMAIN: Final[Keywords] = {
    "maxLength": SUBDOMAIN_LIMIT,
    "pattern": f"^({_SUBDOMAIN})?$",
}

DNS_LABEL: Final[Keywords] = {"maxLength": LABEL_LIMIT, "pattern": f"^{_LABEL}$"}
"""A DNS-1123 label."""

QUALIFIED: Final[Keywords] = {"maxLength": _QUALIFIED_LIMIT, "pattern": f"^{_QUALIFIED}$"}
"""The key of a label, or the name of a resource; the length of its prefix is not limited."""

OPTIONAL_QUALIFIED: Final[Keywords] = {
    "maxLength": _QUALIFIED_LIMIT,
    "pattern": f"^({_QUALIFIED})?$",
}

LABEL_VALUE: Final[Keywords] = {
    "maxLength": LABEL_LIMIT,
    "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
}

KIND: Final[Keywords] = {
    "maxLength": LABEL_LIMIT,
    "pattern": "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$",
}
"""A DNS-1035 label in any case."""
