"""The preemption policies of a ClusterQueue: their names, and which Workloads each one grants.

The only place that knows them. Who reads it: the CRDs, the search for victims, what wakes a
Workload and which Workloads share a verdict, `explain`, reports, and generators of worlds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from kueuelib.api.struct import frozen

NEVER: Final = "Never"
LOWER_PRIORITY: Final = "LowerPriority"
LOWER_OR_NEWER_EQUAL_PRIORITY: Final = "LowerOrNewerEqualPriority"
ANY: Final = "Any"


@frozen
class Grant:
    """Which Workloads a preemptor may evict under a policy.

    Attributes:
        reach: how far the highest priority of a victim may be above that of the preemptor.
        newer: whether victims of the same priority have to be newer.
    """

    reach: float
    newer: bool = False

    def highest(self, priority: int) -> float:
        """The highest priority that a preemptor may take.

        Args:
            priority: that of the preemptor.
        """
        return priority + self.reach

    @property
    def is_unlimited(self) -> bool:
        """Whether no priority protects from it."""
        return self.reach == math.inf


class _Grants(dict[str, Grant]):
    """A policy of a newer API counts as `LowerPriority`."""

    def __missing__(self, policy: str) -> Grant:
        return self[LOWER_PRIORITY]


GRANTS: Final[Mapping[str, Grant]] = _Grants(
    {
        NEVER: Grant(-math.inf),
        LOWER_PRIORITY: Grant(-1),
        LOWER_OR_NEWER_EQUAL_PRIORITY: Grant(0, newer=True),
        ANY: Grant(math.inf),
    }
)
"""What each policy grants."""

WITHIN_CLUSTER_QUEUE: Final = (NEVER, LOWER_PRIORITY, LOWER_OR_NEWER_EQUAL_PRIORITY)
"""The values of `withinClusterQueue`, from the narrowest to the widest."""
RECLAIM_WITHIN_COHORT: Final = (NEVER, LOWER_PRIORITY, ANY)
"""The values of `reclaimWithinCohort`, from the narrowest to the widest."""
BORROW_WITHIN_COHORT: Final = (NEVER, LOWER_PRIORITY)
"""The values of `borrowWithinCohort.policy`, from the narrowest to the widest."""
