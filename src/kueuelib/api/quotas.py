"""What ClusterQueues and Cohorts have in common: quota by flavor and resource, and weights."""

from __future__ import annotations

import attrs

from kueuelib.api.patterns import QUALIFIED, SUBDOMAIN
from kueuelib.api.quantity import NOT_NEGATIVE, ZERO, Quantity
from kueuelib.api.struct import Struct, frozen, wire
from kueuelib.api.words import LIST_LIMIT

ONE = Quantity.of(1)


@frozen
class ResourceQuota(Struct):
    """How much of one resource in one flavor belongs to a queue or a cohort.

    Attributes:
        name: the resource, for example `cpu`.
        nominal_quota: the queue's own quota; for a cohort, what it adds to the quota of its
            members.
        borrowing_limit: how much a queue, or all members of a cohort, may borrow from the cohort
            above; absent: everything.
        lending_limit: how much of its quota others may borrow; absent: everything.
    """

    name: str = attrs.field(metadata=wire(required=True))
    nominal_quota: Quantity = attrs.field(
        default=ZERO, metadata=wire(required=True, always=True, **NOT_NEGATIVE)
    )
    borrowing_limit: Quantity | None = attrs.field(default=None, metadata=wire(**NOT_NEGATIVE))
    lending_limit: Quantity | None = attrs.field(default=None, metadata=wire(**NOT_NEGATIVE))


@frozen
class FlavorQuotas(Struct):
    """The quotas of one flavor, in the order of the covered resources."""

    name: str = attrs.field(metadata=wire(required=True, **SUBDOMAIN))
    resources: tuple[ResourceQuota, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@frozen
class ResourceGroup(Struct):
    """Resources that are taken from the same flavors.

    Attributes:
        covered_resources: the names of the resources.
        flavors: the flavors in the order they are tried.
    """

    covered_resources: tuple[str, ...] = attrs.field(
        default=(),
        metadata=wire(
            required=True,
            always=True,
            kind="set",
            minItems=1,
            maxItems=LIST_LIMIT,
            items=QUALIFIED,
        ),
    )
    flavors: tuple[FlavorQuotas, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, keys=("name",), minItems=1, maxItems=LIST_LIMIT),
    )


@frozen
class FairSharing(Struct):
    """How much a queue or cohort may borrow compared with others (KEP-1714).

    Attributes:
        weight: the share of what is borrowed is divided by it. With 0, the queue or cohort comes
            after all others while it borrows.
    """

    weight: Quantity = attrs.field(
        default=ONE, metadata=wire(always=True, default=1, **NOT_NEGATIVE)
    )


@frozen
class FairSharingStatus(Struct):
    """How much a queue or cohort borrows at the moment, compared with others.

    Attributes:
        weighted_share: the largest share of borrowed quota among the resources, in thousandths of
            what the parent cohort can lend, divided by the weight and rounded up. 0 without
            borrowing; 9223372036854775807 for one that borrows with weight 0.
    """

    weighted_share: int = attrs.field(
        default=0, metadata=wire(required=True, always=True, format="int64")
    )
