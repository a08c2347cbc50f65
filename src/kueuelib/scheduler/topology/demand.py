"""What pods ask of a topology, in terms of its levels (KEP-2724)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from kueuelib.api.core import PodSpec
from kueuelib.api.struct import frozen
from kueuelib.api.workload import TopologyConstraint, TopologyRequest
from kueuelib.scheduler.topology.tree import DomainTree
from kueuelib.scheduler.values import record, value

POD_SLOTS: Final = "pods"
"""The resource of which every pod takes 1."""


@value
class PodsToPlace:
    """Pods that are placed together: those of a pod set, or of a group with a leader.

    Attributes:
        count: how many, without the leader.
        per_pod: the request of one of them, without its slot.
        pods: their selectors, affinity and tolerations, which count for the leader as well.
        request: what they ask of a topology; None for none, so that any leaves will do.
        leader: the request of the leader; None without one.
    """

    count: int
    per_pod: Mapping[str, int]
    pods: PodSpec
    request: TopologyRequest | None = None
    leader: Mapping[str, int] | None = None


@record
class Unplaceable:
    """A request that no nodes of the flavor can meet, because of its levels, sizes or places."""

    text: str


@frozen
class LevelPlan:
    """A request in terms of the levels of a tree.

    Attributes:
        level: where the search begins.
        required: whether it ends there.
        loose: whether any domains of that level will do; usually selects `LeastFreeCapacity`.
        size: the pods of a slice; 1 if there are none.
        slice_level: the level whose domains hold whole slices.
        inner: the sizes of slices in slices, by level.
        layers: the slices as requested.
    """

    level: int
    required: bool
    loose: bool
    size: int
    slice_level: int
    inner: Mapping[int, int]
    layers: tuple[TopologyConstraint, ...]


NO_LEVEL: Final = Unplaceable("topology level not specified")


def layers_of(request: TopologyRequest | None) -> tuple[TopologyConstraint, ...]:
    """The slices of a request, from coarse to fine; a missing size is 0."""
    if request is None:
        return ()
    if request.podset_slice_required_topology_constraints:
        return request.podset_slice_required_topology_constraints
    level = request.pod_set_slice_required_topology
    if level is None:
        return ()
    return (TopologyConstraint(level, request.pod_set_slice_size or 0),)


def asks_explicitly(request: TopologyRequest | None) -> bool:
    """Whether a pod set asks for a placement itself; labels with indices alone do not."""
    return request is not None and (
        request.unconstrained is not None
        or request.required is not None
        or request.preferred is not None
        or request.pod_set_slice_required_topology is not None
        or request.pod_set_slice_size is not None
        or bool(request.podset_slice_required_topology_constraints)
    )


def missing_level(request: TopologyRequest, levels: Sequence[str]) -> str | None:
    """The level that an explicit request names and a topology lacks; empty if the request names
    none, None if nothing is missing.

    Args:
        request: what the pods ask.
        levels: of the topology.
    """
    layers = layers_of(request)
    level = request.required or request.preferred
    if level is None and not layers and not request.unconstrained:
        return ""
    named = [layer.topology for layer in layers] + ([level] if level else [])
    return next((each for each in named if each not in levels), None)


def planned(tree: DomainTree, asked: PodsToPlace) -> LevelPlan | Unplaceable:
    """What pods ask in terms of the levels of a tree, or why they ask for what it lacks."""
    request, levels = asked.request, tree.levels
    last = len(levels) - 1
    layers = layers_of(request)
    size, slice_level = 1, last
    if layers:
        size = layers[0].size
        if size <= 0:
            return Unplaceable("slice topology requested, but slice size not provided")
    key: str | None = None
    required = preferred = None
    implied = not asks_explicitly(request)
    if request is not None:
        required, preferred = request.required, request.preferred
    if required is not None or preferred is not None:
        key = required if required is not None else preferred
    elif layers:
        key = levels[0]
    elif implied or (request is not None and request.unconstrained):
        key = levels[last]
    if key is None:
        return NO_LEVEL
    if key not in levels:
        return Unplaceable(f"no requested topology level: {key}")
    level = levels.index(key)
    if layers:
        if layers[0].topology not in levels:
            name = layers[0].topology
            return Unplaceable(f"no requested topology level for slices: {name}")
        slice_level = levels.index(layers[0].topology)
    if level > slice_level:
        text = f"podset slice topology {levels[slice_level]} is above the podset topology {key}"
        return Unplaceable(text)
    inner = _inner_sizes(levels, layers)
    if isinstance(inner, Unplaceable):
        return inner
    loose = required is None and preferred is None
    return LevelPlan(level, required is not None, loose, size, slice_level, inner, layers)


def _inner_sizes(
    levels: Sequence[str], layers: tuple[TopologyConstraint, ...]
) -> dict[int, int] | Unplaceable:
    inner: dict[int, int] = {}
    for outer, layer in pairwise(layers):
        name = layer.topology
        if name not in levels:
            text = f"no requested topology level for additional slice layer: {name}"
            return Unplaceable(text)
        above, here = levels.index(outer.topology), levels.index(name)
        if here <= above:
            return Unplaceable(
                f"additional slice layer topology {name} must be at a lower level than "
                f"{outer.topology}"
            )
        if layer.size <= 0 or outer.size % layer.size:
            return Unplaceable(
                f"additional slice layer size {layer.size} must evenly divide parent layer size "
                f"{outer.size}"
            )
        inner.update(dict.fromkeys(range(above + 1, here + 1), layer.size))
    return inner
