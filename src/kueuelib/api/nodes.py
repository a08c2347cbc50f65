"""What raw nodes offer: which of them take pods, which belong to a flavor, and how much they have.

How much of that pods use already is counted by `Room` in `kueuelib.embedded.cluster.placement`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.codec import decode
from kueuelib.api.core import NO_EXECUTE, NO_SCHEDULE, Taint
from kueuelib.api.kueue import ResourceFlavor
from kueuelib.api.meta import find_condition, labels_of
from kueuelib.api.quantity import Quantity
from kueuelib.api.tolerations import untolerated


def is_usable(node: Mapping[str, Any]) -> bool:
    """Whether a node takes pods: it is ready and not cordoned."""
    ready = find_condition((node.get("status") or {}).get("conditions"), "Ready")
    return not (node.get("spec") or {}).get("unschedulable") and ready.get("status") == "True"


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
