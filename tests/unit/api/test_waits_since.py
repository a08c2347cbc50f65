"""Since when a Workload has waited, as events and metrics count it."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.codec import decode
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import format_time
from kueuelib.api.workload_state import waits_since


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        ([], 100.0),
        ([("Evicted", "True", 200.0)], 100.0),
        ([("Evicted", "True", 200.0), ("Requeued", "False", 250.0)], 250.0),
        ([("Evicted", "True", 200.0), ("Requeued", "True", 300.0)], 300.0),
    ],
)
def test_it_is_the_last_change_of_requeued_or_the_creation(
    conditions: list[tuple[str, str, float]], since: float
) -> None:
    stated = [
        {"type": name, "status": status, "reason": "R", "lastTransitionTime": format_time(at)}
        for name, status, at in conditions
    ]
    metadata = {"name": "w", "namespace": "ns", "creationTimestamp": format_time(100.0)}
    raw: dict[str, Any] = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"queueName": "q", "podSets": []},
        "status": {"conditions": stated},
    }
    assert waits_since(raw) == waits_since(decode(Workload, raw)) == since


def test_nobody_knows_it_of_an_object_without_times() -> None:
    assert waits_since({"metadata": {"name": "w"}}) is None
