"""Which nodes take pods, whose they are, and what they have."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.nodes import allocatable, is_of_flavor, is_usable
from kueuelib.api.quantity import Quantity
from kueuelib.testing.builders import make_flavor

READY = [{"type": "Ready", "status": "True"}]


def node(*conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    meta = {"name": "n", "labels": {"pool": "spot", "zone": "a"}}
    return {"metadata": meta, "spec": spec, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (node(*READY), True),
        (node(*READY, unschedulable=True), False),
        (node({"type": "Ready", "status": "Unknown"}), False),
        (node(), False),
        ({"metadata": {"name": "n"}}, False),
    ],
)
def test_a_ready_node_that_is_not_cordoned_takes_pods(obj: dict[str, Any], wanted: bool) -> None:
    assert is_usable(obj) is wanted


def test_a_node_is_of_a_flavor_with_its_labels_that_declares_or_tolerates_its_taints() -> None:
    spot = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    soft = {"key": "soft", "value": "", "effect": "PreferNoSchedule"}
    labels = {"pool": "spot"}
    tainted = node(taints=[spot, soft])
    assert is_of_flavor(node(), make_flavor("f", labels))
    assert not is_of_flavor(node(), make_flavor("f", {"pool": "other"}))
    assert not is_of_flavor(tainted, make_flavor("f", labels))
    assert is_of_flavor(tainted, make_flavor("f", labels, taints=[spot]))
    tolerates = [{"key": "spot", "operator": "Exists"}]
    assert is_of_flavor(tainted, make_flavor("f", labels, tolerations=tolerates))


def test_what_is_allocatable_has_amounts() -> None:
    amounts = allocatable({"status": {"allocatable": {"cpu": "1500m", "memory": "1Gi"}}})
    assert amounts == {"cpu": Quantity.parse("1500m"), "memory": Quantity.parse("1Gi")}
    assert allocatable({"metadata": {"name": "n"}}) == {}
