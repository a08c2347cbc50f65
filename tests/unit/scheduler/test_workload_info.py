from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.kueue import Workload
from kueuelib.scheduler.pending.requests import NO_LIMIT_RANGES
from kueuelib.scheduler.pending.workload_info import (
    WorkloadInfo,
    charge,
    holder_of,
    needs_of,
    order_of,
    workload_info,
)
from kueuelib.testing.builders import (
    make_assignment,
    make_condition,
    make_pod_set,
    make_workload,
)


def info(found: Workload) -> WorkloadInfo:
    return workload_info(found, needs_of(found, NO_LIMIT_RANGES, {}))


def admitted(assigned: int | None, count: int, reclaimable: int, cpu: int) -> Workload:
    assignment = make_assignment({"cpu": cpu}, "f", count=assigned)
    return make_workload(
        "w",
        "q",
        {"cpu": 1},
        count=count,
        conditions=[make_condition("QuotaReserved", at=50)],
        status={
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
            "reclaimablePods": [{"name": "main", "count": reclaimable}],
        },
    )


def cpu_of(found: Workload) -> int:
    assert found.status.admission is not None
    return charge(found, found.status.admission)["f", "cpu"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("assigned", "count", "reclaimable", "cpu", "want"),
    [
        (4, 4, 0, 4, 4000),
        (4, 4, 1, 4, 3000),
        (None, 4, 1, 4, 3000),
        (3, 5, 1, 3, 3000),
        (3, 5, 3, 3, 2000),
        (3, 3, 3, 3, 0),
        (0, 2, 1, 0, 0),
    ],
)
def test_charge_is_for_the_pods_that_are_admitted_and_still_needed(
    assigned: int | None, count: int, reclaimable: int, cpu: int, want: int
) -> None:
    assert cpu_of(admitted(assigned, count, reclaimable, cpu)) == want


def test_pending_pods_are_those_that_are_not_reclaimable() -> None:
    status = {"reclaimablePods": [{"name": "main", "count": 3}]}
    (pod_set,) = info(make_workload("w", "q", {"cpu": 1}, count=5, status=status)).pod_sets
    assert pod_set.count == 2
    assert pod_set.requests(2, count_pods=True) == {"cpu": 2000, "pods": 2}
    assert pod_set.requests(2, count_pods=False) == {"cpu": 2000}


def evicted(reason: str, status: bool = True) -> Workload:
    return make_workload(
        "w",
        "q",
        {"cpu": 1},
        created=10,
        priority=7,
        conditions=[make_condition("Evicted", status, reason, at=90)],
        status={"requeueState": {"count": 1, "requeueAt": "1970-01-01T00:02:00Z"}},
    )


@pytest.mark.parametrize(
    ("found", "timestamp", "want"),
    [
        (evicted("Preempted"), "Eviction", 10),
        (evicted("PodsReadyTimeout"), "Eviction", 90),
        (evicted("AdmissionCheck"), "Eviction", 90),
        (evicted("PodsReadyTimeout"), "Creation", 10),
        (evicted("PodsReadyTimeout", status=False), "Eviction", 10),
    ],
)
def test_place_in_the_queue_is_kept_unless_the_workload_is_to_blame(
    found: Workload, timestamp: str, want: float
) -> None:
    assert order_of(found, timestamp) == (-7, want, "w")


def test_back_off_lasts_as_long_as_the_eviction() -> None:
    assert info(evicted("PodsReadyTimeout")).not_before == 120
    assert info(evicted("Preempted")).not_before is None
    assert info(evicted("PodsReadyTimeout", status=False)).not_before is None


def base(**more: Any) -> Workload:
    return make_workload("w", "q", {"cpu": 1}, **more)


@pytest.mark.parametrize(
    "found",
    [
        base(conditions=[make_condition("QuotaReserved", status=False)]),
        base(conditions=[make_condition("PodsReady")]),
        attrs.evolve(base(), metadata=attrs.evolve(base().metadata, labels={"a": "b"})),
    ],
)
def test_labels_and_messages_do_not_change_what_a_workload_asks_for(found: Workload) -> None:
    assert info(base()).asks_the_same(info(found))


@pytest.mark.parametrize(
    "found",
    [
        base(priority=1),
        base(active=False),
        make_workload("w", "other", {"cpu": 1}),
        make_workload("w", "q", {"cpu": 2}),
        make_workload("w", "q", pod_sets=[make_pod_set({"cpu": 1}, tolerations=[{"key": "a"}])]),
        base(conditions=[make_condition("Evicted", reason="Preempted")]),
        base(status={"reclaimablePods": [{"name": "main", "count": 1}]}),
        base(
            status={
                "admissionChecks": [
                    {
                        "name": "c",
                        "state": "Retry",
                        "message": "",
                        "lastTransitionTime": "1970-01-01T00:00:00Z",
                    }
                ]
            }
        ),
        attrs.evolve(base(), metadata=attrs.evolve(base().metadata, uid="another")),
    ],
)
def test_what_matters_changes_what_a_workload_asks_for(found: Workload) -> None:
    assert not info(base()).asks_the_same(info(found))


def test_shapes_are_equal_when_nothing_but_names_and_times_differ() -> None:
    one = info(make_workload("a", "q", {"cpu": 1}, created=1))
    two = info(make_workload("b", "q", {"cpu": "1000m"}, created=2))
    assert one.shape == two.shape
    selected = make_pod_set({"cpu": 1}, nodeSelector={"a": "b"})
    others = [
        make_workload("a", "q", {"cpu": 1}, priority=1),
        make_workload("a", "q", {"cpu": 2}),
        make_workload("a", "q", {"cpu": 1}, count=2),
        make_workload("a", "q", pod_sets=[make_pod_set({"cpu": 1}, min_count=1)]),
        make_workload("a", "q", pod_sets=[selected]),
    ]
    shapes = {info(found).shape for found in others}
    assert len(shapes) == len(others)
    assert one.shape not in shapes


def test_holder_knows_when_it_reserved_and_whether_it_is_on_its_way_out() -> None:
    found = admitted(2, 2, 0, 2)
    assert found.status.admission is not None
    holder = holder_of(found, found.status.admission, assumed=False)
    assert holder.reserved_at == 50
    assert not holder.admitted
    assert not holder.evicted
    assumed = holder_of(found, found.status.admission, assumed=True)
    assert assumed.reserved_at is None
    assert assumed.usage == holder.usage
