"""What pod sets ask for, and where they are placed, in topology-aware scheduling (KEP-2724).

This version serves and keeps these fields, but does not place pods. The `wire` of a field holds
what the schema of the CRD says about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api.patterns import LABEL_LIMIT
from kueuelib.api.struct import Struct, frozen, wire

LEVEL_LIMIT: Final = 16
"""The largest number of levels of a topology."""
DOMAIN_LIMIT: Final = 100_000
"""The largest number of domains in one slice of an assignment."""
WRITTEN_LIMIT: Final = 20_000
"""The largest number of domains that are written one by one, as in `v1beta1`. Kubernetes refuses a
rule in CEL about more of them, because of its estimated cost."""
SLICE_LIMIT: Final = 1000
"""The largest number of slices of an assignment."""
_GROUP_LIMIT: Final = 256
_KEY_LIMIT: Final = 317
_LEVEL: Final = wire(maxLength=LABEL_LIMIT)
_KEY: Final = wire(maxLength=_KEY_LIMIT)
_PER_LEVEL: Final[Mapping[str, Any]] = {
    "required": True,
    "kind": "atomic",
    "minItems": 1,
    "maxItems": LEVEL_LIMIT,
}
_MANY: Final[Mapping[str, Any]] = {"kind": "atomic", "minItems": 1, "maxItems": DOMAIN_LIMIT}


@frozen
class TopologyConstraint(Struct):
    """Runs of pods that belong together.

    Attributes:
        topology: the level of the domain that holds a whole run.
        size: how many pods are one run.
    """

    topology: str = attrs.field(metadata=wire(required=True, minLength=1, maxLength=LABEL_LIMIT))
    size: int = attrs.field(metadata=wire(required=True, minimum=1))


@frozen
class TopologyRequest(Struct):
    """Where the pods of a pod set may be placed.

    Attributes:
        required: the level of the one domain that must hold all pods.
        preferred: the level of the one domain that should hold all pods.
        unconstrained: whether any domains will do.
        pod_index_label: the label with the index of a pod.
        sub_group_index_label: the label with the index of a pod's group.
        sub_group_count: how many groups there are.
        pod_set_group_name: pod sets of one name are placed together.
        pod_set_slice_required_topology: the level of the domain that holds a whole slice of pods.
        pod_set_slice_size: how many pods are one slice.
        podset_slice_required_topology_constraints: slices within slices, from coarse to fine.
    """

    required: str | None = attrs.field(default=None, metadata=_LEVEL)
    preferred: str | None = attrs.field(default=None, metadata=_LEVEL)
    unconstrained: bool | None = None
    pod_index_label: str | None = attrs.field(default=None, metadata=_KEY)
    sub_group_index_label: str | None = attrs.field(default=None, metadata=_KEY)
    sub_group_count: int | None = attrs.field(default=None, metadata=wire(minimum=0))
    pod_set_group_name: str | None = attrs.field(
        default=None, metadata=wire(maxLength=_GROUP_LIMIT)
    )
    pod_set_slice_required_topology: str | None = attrs.field(default=None, metadata=_LEVEL)
    pod_set_slice_size: int | None = attrs.field(default=None, metadata=wire(minimum=1))
    podset_slice_required_topology_constraints: tuple[TopologyConstraint, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic", maxItems=3)
    )


@frozen
class DomainValues(Struct):
    """The label values of several domains, each from the prefix, its root and the suffix.

    Attributes:
        prefix: what all values begin with.
        suffix: what all values end with.
        roots: what is between them, one for each domain.
    """

    prefix: str | None = attrs.field(default=None, metadata=_LEVEL)
    suffix: str | None = attrs.field(default=None, metadata=_LEVEL)
    roots: tuple[str, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, items={"maxLength": LABEL_LIMIT}, **_MANY),
    )


@frozen
class LevelValues(Struct):
    """The label values of the domains of a slice at one level, in one of two forms.

    Attributes:
        universal: the value that all domains have.
        individual: their own values.
    """

    universal: str | None = attrs.field(default=None, metadata=_LEVEL)
    individual: DomainValues | None = None


@frozen
class PodCounts(Struct):
    """How many pods the domains of a slice hold, in one of two forms.

    Attributes:
        universal: the number that each domain holds.
        individual: their own numbers.
    """

    universal: int | None = attrs.field(default=None, metadata=wire(minimum=1))
    individual: tuple[int, ...] = attrs.field(
        default=(), metadata=wire(items={"minimum": 1}, **_MANY)
    )


@frozen
class TopologyAssignmentSlice(Struct):
    """Some of the domains of an assignment.

    Attributes:
        domain_count: how many domains.
        values_per_level: their label values, one entry for each level.
        pod_counts: how many pods they hold.
    """

    domain_count: int = attrs.field(metadata=wire(required=True, minimum=1))
    values_per_level: tuple[LevelValues, ...] = attrs.field(metadata=wire(**_PER_LEVEL))
    pod_counts: PodCounts = attrs.field(metadata=wire(required=True))


@frozen
class TopologyAssignment(Struct):
    """The domains in which the pods of a pod set are placed.

    Attributes:
        levels: the label keys of the domains, from coarse to fine.
        slices: the domains.
    """

    levels: tuple[str, ...] = attrs.field(
        metadata=wire(items={"maxLength": _KEY_LIMIT}, **_PER_LEVEL)
    )
    slices: tuple[TopologyAssignmentSlice, ...] = attrs.field(
        default=(),
        metadata=wire(required=True, always=True, kind="atomic", maxItems=SLICE_LIMIT),
    )


@frozen
class TopologyDomain(Struct):
    """A domain with its pods, as in `v1beta1`.

    Attributes:
        values: its label values, one for each level.
        count: how many pods it holds.
    """

    values: tuple[str, ...] = attrs.field(
        metadata=wire(items={"maxLength": LABEL_LIMIT}, **_PER_LEVEL)
    )
    count: int = attrs.field(metadata=wire(required=True, minimum=1))


@frozen
class UnhealthyNode(Struct):
    """A node whose pods need another one."""

    name: str = attrs.field(metadata=wire(required=True, maxLength=LABEL_LIMIT))
