"""The block `borrowing` of the configuration."""

from __future__ import annotations

import attrs


@attrs.frozen
class Borrowing:
    """What ClusterQueues of a cohort may borrow from each other.

    Attributes:
        protect_nominal_quota: whether no new Workload borrows the nominal quota that waiting
            Workloads of its owner need.
    """

    protect_nominal_quota: bool = False
