"""What Workloads ask for is computed once for all that share their pod sets."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.codec import decode
from kueuelib.api.core import LimitRange, RuntimeClass
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import ReclaimablePod
from kueuelib.scheduler.facts.workloads import RECENT, Requirements
from kueuelib.scheduler.quota.resource_rules import AS_REQUESTED
from kueuelib.testing.builders import make_pod_set, make_workload

DEFAULTS = decode(
    LimitRange,
    {
        "metadata": {"name": "l", "namespace": "ns"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "1"}}]},
    },
)
SANDBOX = decode(
    RuntimeClass, {"metadata": {"name": "r"}, "overhead": {"podFixed": {"memory": "1"}}}
)


@pytest.fixture
def requirements() -> Requirements:
    return Requirements(AS_REQUESTED)


@pytest.fixture
def workload() -> Workload:
    pod_set = make_pod_set({"cpu": 1}, count=3)
    pod_set["template"]["spec"]["runtimeClassName"] = "r"
    return make_workload("w", "q", pod_sets=[pod_set])


def asked(requirements: Requirements, workload: Workload) -> dict[str, int]:
    (needs,) = requirements.of(workload).pod_sets
    return dict(needs.per_pod)


def alike(workload: Workload, **spec: Any) -> Workload:
    return attrs.evolve(workload, spec=attrs.evolve(workload.spec, **spec))


def test_workloads_with_the_same_pod_sets_share_their_needs(
    requirements: Requirements, workload: Workload
) -> None:
    needs = requirements.of(workload)
    assert requirements.of(alike(workload, queue_name="other")) is needs
    assert requirements.of(alike(workload, priority=9)).shape != needs.shape


def test_reclaimable_pods_count_at_once(requirements: Requirements, workload: Workload) -> None:
    requirements.of(workload)
    status = attrs.evolve(workload.status, reclaimable_pods=(ReclaimablePod("main", 2),))
    (needs,) = requirements.of(attrs.evolve(workload, status=status)).pod_sets
    assert needs.count == 1


def test_limit_ranges_and_runtime_classes_count_at_once(
    requirements: Requirements, workload: Workload
) -> None:
    assert asked(requirements, workload) == {"cpu": 1000}
    requirements.put_limit_range(DEFAULTS)
    assert asked(requirements, workload) == {"cpu": 1000, "memory": 1}
    requirements.put_runtime_class(SANDBOX)
    assert asked(requirements, workload) == {"cpu": 1000, "memory": 2}
    requirements.drop_limit_range(ObjectKey("ns", "l"))
    assert asked(requirements, workload) == {"cpu": 1000, "memory": 1}
    requirements.drop_runtime_class("r")
    assert asked(requirements, workload) == {"cpu": 1000}


def test_only_recent_needs_are_kept(requirements: Requirements, workload: Workload) -> None:
    needs = requirements.of(workload)
    for priority in range(1, RECENT + 1):
        requirements.of(alike(workload, priority=priority))
    again = requirements.of(workload)
    assert again is not needs
    assert again.shape == needs.shape
