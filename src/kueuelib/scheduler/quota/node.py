"""The quota of a tree of cohorts at one time; immutable.

Usage is kept elsewhere, because it changes often and quota rarely.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import attrs

from kueuelib.api.struct import frozen
from kueuelib.scheduler.quota.amounts import FlavorResource, Limits
from kueuelib.scheduler.quota.arithmetic import NOTHING, Step, available_along, steps_up
from kueuelib.scheduler.quota.queue_spec import QueueSpec


def cohort_key(name: str) -> str:
    """The key of a cohort. The key of a ClusterQueue is its name, which never contains a slash."""
    return f"/{name}"


def cohort_name(key: str) -> str:
    """The name of a cohort with a key."""
    return key[1:]


class _Steps(dict[FlavorResource, tuple["Step", ...]]):
    __slots__ = ("_path",)

    def __init__(self, path: tuple[QuotaNode, ...]) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, pair: FlavorResource) -> tuple[Step, ...]:
        steps = self[pair] = steps_up(self._path, pair)
        return steps


class _Capacity(dict[FlavorResource, int]):
    __slots__ = ("_steps",)

    def __init__(self, steps: Mapping[FlavorResource, tuple[Step, ...]]) -> None:
        super().__init__()
        self._steps = steps

    def __missing__(self, pair: FlavorResource) -> int:
        capacity = self[pair] = available_along(self._steps[pair], NOTHING)
        return capacity


@frozen(eq=False)
class QuotaNode:
    """A ClusterQueue or a cohort.

    Attributes:
        name: its name.
        is_queue: whether it is a ClusterQueue.
        limits: its own quota.
        quota: the same plus what its children lend it: the nominal quota is that of the subtree.
        height: 0 for a leaf and for a cohort without active ClusterQueues, otherwise the number of
            levels below.
        weight: the divisor of its share of borrowed quota.
        ancestors: the cohorts above it, the parent first and the root last.
        divisor: the weight in the form for computing shares.
        lendable: the most that it could have, per resource; computed on demand.
        key: the key of its usage.
        place: the path from the root for messages: `/root/cohort/queue`.
    """

    name: str
    is_queue: bool
    limits: Mapping[FlavorResource, Limits]
    quota: Mapping[FlavorResource, Limits]
    height: int = 0
    weight: Fraction = Fraction(1)
    ancestors: tuple[QuotaNode, ...] = ()
    lendable: dict[str, int] = attrs.field(factory=dict, init=False)
    divisor: float = attrs.field(init=False)
    key: str = attrs.field(init=False)
    parent: QuotaNode | None = attrs.field(init=False)
    """The cohort above; None for a root."""
    place: str = attrs.field(init=False)
    steps: Mapping[FlavorResource, tuple[Step, ...]] = attrs.field(init=False)
    """The quota of every pair from this node up; see `kueuelib.scheduler.quota.arithmetic`."""
    capacity: Mapping[FlavorResource, int] = attrs.field(init=False)
    """The most of every pair that the node could ever use, with nothing running anywhere."""

    @divisor.default
    def _divisor(self) -> float:
        return float(self.weight)

    @key.default
    def _key(self) -> str:
        return self.name if self.is_queue else cohort_key(self.name)

    @parent.default
    def _parent(self) -> QuotaNode | None:
        return self.ancestors[0] if self.ancestors else None

    @place.default
    def _place(self) -> str:
        return f"{self.parent.place if self.parent else ''}/{self.name}"

    @steps.default
    def _steps(self) -> Mapping[FlavorResource, tuple[Step, ...]]:
        return _Steps(self.path)

    @capacity.default
    def _capacity(self) -> Mapping[FlavorResource, int]:
        return _Capacity(self.steps)

    @property
    def root(self) -> QuotaNode:
        """The top of the tree."""
        return self.ancestors[-1] if self.ancestors else self

    @property
    def path(self) -> tuple[QuotaNode, ...]:
        """The node itself and the cohorts above it, the root last."""
        return (self, *self.ancestors)


@frozen
class CohortRow:
    """A cohort in a tree; the attributes are those of `QuotaNode`."""

    parent: str
    limits: Mapping[FlavorResource, Limits]
    quota: Mapping[FlavorResource, Limits]
    height: int
    weight: Fraction


@frozen(eq=False)
class QuotaTree:
    """The cohorts of one tree.

    Attributes:
        root: the name of the topmost cohort.
        rows: the cohorts, by name.
    """

    root: str
    rows: Mapping[str, CohortRow]
    _nodes: dict[str, QuotaNode] = attrs.field(factory=dict, init=False)

    def queue(self, spec: QueueSpec) -> QuotaNode:
        """The node of a ClusterQueue of this tree; always the same one."""
        node = self._nodes.get(spec.name)
        if node is None:
            node = self._nodes[spec.name] = leaf(spec, self.cohort(spec.cohort).path)
        return node

    def cohort(self, name: str) -> QuotaNode:
        """The node of a cohort of this tree; always the same one."""
        missing = []
        while name and cohort_key(name) not in self._nodes:
            missing.append(name)
            name = self.rows[name].parent
        above = self._nodes[cohort_key(name)].path if name else ()
        for each in reversed(missing):
            row = self.rows[each]
            node = QuotaNode(each, False, row.limits, row.quota, row.height, row.weight, above)
            self._nodes[node.key] = node
            above = node.path
        return above[0]


def alone(spec: QueueSpec) -> QuotaNode:
    """The node of a ClusterQueue that no cohort is above; always the same one."""
    if not spec.alone:
        spec.alone.append(leaf(spec))
    node: QuotaNode = spec.alone[0]
    return node


def leaf(spec: QueueSpec, ancestors: tuple[QuotaNode, ...] = ()) -> QuotaNode:
    """The node of a ClusterQueue.

    Args:
        spec: its quota.
        ancestors: the cohorts above it, the parent first; empty if there are none.
    """
    return QuotaNode(spec.name, True, spec.limits, spec.limits, 0, spec.weight, ancestors)
