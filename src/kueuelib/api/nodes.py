"""What nodes offer, and which pods they take: selectors, affinity, taints.

How much of that pods use already is counted by `NodeRoom` in `kueuelib.embedded.cluster.placement`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.codec import decode
from kueuelib.api.core import (
    NO_EXECUTE,
    NO_SCHEDULE,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    Toleration,
)
from kueuelib.api.kueue import ResourceFlavor
from kueuelib.api.meta import is_true, labels_of
from kueuelib.api.quantity import Quantity

# ---- which nodes a pod's selector and required affinity allow ------------------------------------

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


def _compare(value: str | None, values: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    if value is None or len(values) != 1:
        return False
    if _INTEGER.fullmatch(value) is None or _INTEGER.fullmatch(values[0]) is None:
        return False
    return holds(int(value), int(values[0]))


def requirement_matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one expression; an unknown operator is never met."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compare(value, requirement.values, int.__gt__)
        case "Lt":
            return _compare(value, requirement.values, int.__lt__)
    return False


def term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node meets one term of a required affinity; an empty one is never met.

    Args:
        term: expressions about labels, and fields, of which only the name can be selected.
        labels: of the node.
        name: of the node.
    """
    fields = {"metadata.name": name}
    return bool(term.match_expressions or term.match_fields) and all(
        requirement_matches(one, known)
        for expressions, known in ((term.match_expressions, labels), (term.match_fields, fields))
        for one in expressions
    )


def required_node_affinity(spec: PodSpec) -> NodeSelector | None:
    """What the affinity of a pod demands of its node, or None."""
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return None
    return spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution


# ---- which taints a pod tolerates ----------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint; empty effect and empty key stand for all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Sequence[str] = (NO_SCHEDULE, NO_EXECUTE),
) -> Taint | None:
    """The first taint with one of the effects that no toleration covers, or None."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


# --------------------------------------------------------------------------------------------------

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
"""The taint that a node has while it is cordoned."""


def is_usable(node: Mapping[str, Any]) -> bool:
    """Whether a node takes pods: it is ready and not cordoned."""
    return not (node.get("spec") or {}).get("unschedulable") and is_true(node, "Ready")


def is_of_flavor(node: Mapping[str, Any], flavor: ResourceFlavor) -> bool:
    """Whether pods that are admitted in a flavor may be placed on a node."""
    labels = labels_of(node)
    if any(labels.get(name) != value for name, value in flavor.spec.node_labels.items()):
        return False
    declared = {(one.key, one.value, one.effect) for one in flavor.spec.node_taints}
    taints = [decode(Taint, one) for one in (node.get("spec") or {}).get("taints") or ()]
    others = [one for one in taints if (one.key, one.value, one.effect) not in declared]
    return untolerated(others, flavor.spec.tolerations, (NO_SCHEDULE, NO_EXECUTE)) is None


def allocatable(node: Mapping[str, Any]) -> dict[str, Quantity]:
    """What the pods of a node may request together, by resource."""
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return {resource: Quantity.parse(text) for resource, text in amounts.items()}
