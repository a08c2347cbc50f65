"""Which nodes a pod's selector and required affinity allow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kueuelib.api.core import NodeSelector, NodeSelectorRequirement, PodSpec

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


def required_node_affinity(spec: PodSpec) -> NodeSelector | None:
    """What the affinity of a pod demands of its node, or None."""
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return None
    return spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
