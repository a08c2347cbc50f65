"""Cohorts as typed values (KEP-79)."""

from __future__ import annotations

import attrs

from kueuelib.api.kinds import COHORTS
from kueuelib.api.meta import KubeObject
from kueuelib.api.patterns import OPTIONAL_SUBDOMAIN
from kueuelib.api.quotas import FairSharing, FairSharingStatus, ResourceGroup
from kueuelib.api.struct import Struct, frozen, wire
from kueuelib.api.words import GROUP_LIMIT


@frozen
class CohortSpec(Struct):
    """The place of a Cohort in its tree, and the quota it adds.

    Attributes:
        parent_name: the cohort above; empty: the Cohort is a root. The parent need not exist as an
            object. While parents form a cycle, nothing below it is admitted.
        resource_groups: quota that belongs to all members together, in addition to their own.
            Limits say how much the members together may borrow from the parent and lend to it.
        fair_sharing: the weight of the Cohort below its parent.
    """

    parent_name: str = attrs.field(default="", metadata=wire(**OPTIONAL_SUBDOMAIN))
    resource_groups: tuple[ResourceGroup, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=GROUP_LIMIT)
    )
    fair_sharing: FairSharing | None = None


@frozen
class CohortStatus(Struct):
    """The present state of a Cohort.

    Attributes:
        fair_sharing: the share of the Cohort; absent unless fair sharing is on.
    """

    fair_sharing: FairSharingStatus | None = None


@frozen
class Cohort(KubeObject):
    """Quota and limits of a group of ClusterQueues and Cohorts that borrow from each other."""

    resource = COHORTS

    spec: CohortSpec = attrs.field(factory=CohortSpec)
    status: CohortStatus = attrs.field(factory=CohortStatus)
