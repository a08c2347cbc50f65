"""Constants and limits of the queueing objects, as they are on the wire."""

from __future__ import annotations

from kueuelib.api.struct import wire

STRICT_FIFO, BEST_EFFORT_FIFO = "StrictFIFO", "BestEffortFIFO"
NONE, HOLD, HOLD_AND_DRAIN = "None", "Hold", "HoldAndDrain"
MAY_STOP_SEARCH, TRY_NEXT_FLAVOR = "MayStopSearch", "TryNextFlavor"
BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"
USAGE_BASED_ADMISSION_FAIR_SHARING = "UsageBasedAdmissionFairSharing"
NO_ADMISSION_FAIR_SHARING = "NoAdmissionFairSharing"
CHECK_PENDING, CHECK_READY, CHECK_RETRY, CHECK_REJECTED = "Pending", "Ready", "Retry", "Rejected"
ANYTIME, AFTER_CHECK_PASSED_OR_ON_DEMAND = "Anytime", "AfterCheckPassedOrOnDemand"
MAIN_POD_SET = "main"

LIST_LIMIT = 64
"""How many entries the lists of a ClusterQueue may have (today's limit)."""

GROUP_LIMIT = 16
"""How many resource groups a Cohort may have."""

POD_SET_LIMIT = 18
"""How many pod sets a Workload may have (today's limit)."""

CONDITIONS = wire(keys=("type",), maxItems=16)
"""The metadata of a field with conditions."""
