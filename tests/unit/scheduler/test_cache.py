from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.cache import QuotaCache
from kueuelib.scheduler.quota.holders import Holder, Priorities
from kueuelib.scheduler.quota.queue_spec import QueueSpec, flavor_of, queue_spec
from kueuelib.scheduler.quota.snapshot import FrozenQueue, Snapshot
from kueuelib.testing.builders import make_cluster_queue, make_flavor

GPU = FlavorResource("f", "gpu")


def spec(name: str, quota: Any, cohort: str = "", **more: Any) -> QueueSpec:
    return queue_spec(make_cluster_queue(name, {"f": {"gpu": quota}}, cohort=cohort, **more))


def holder(name: str, queue: str, gpu: int, priority: int = 0, **more: Any) -> Holder:
    values: dict[str, Any] = {
        "key": ObjectKey("ns", name),
        "uid": name,
        "cluster_queue": queue,
        "local_queue": ObjectKey("ns", "lq"),
        "priority": priority,
        "order": QueueOrder(-priority, 0, name),
        "usage": {GPU: gpu},
        "reserved_at": 0,
        "admitted": True,
        "assumed": False,
        "evicted": False,
        "pods_ready": True,
    }
    return Holder(**{**values, **more})


def cache(*specs: QueueSpec) -> QuotaCache:
    found = QuotaCache()
    found.set_flavor(flavor_of(make_flavor("f")))
    for one in specs:
        found.set_queue(one)
    return found


def view(found: QuotaCache, name: str) -> tuple[Snapshot, FrozenQueue]:
    snapshot = Snapshot(found.freeze([name]))
    queue = snapshot.queue(name)
    assert queue is not None
    return snapshot, queue


def available(found: QuotaCache, name: str) -> int:
    snapshot, queue = view(found, name)
    return snapshot.available(queue, GPU)


def capacity(found: QuotaCache, name: str) -> int:
    snapshot, queue = view(found, name)
    return snapshot.capacity(queue, GPU)


def lending() -> QuotaCache:
    """A queue of 4, and one of 10 that lends 4 of them."""
    return cache(spec("a", 4, "c"), spec("b", {"nominal": 10, "lending": 4}, "c"))


def test_borrower_sees_what_is_lent_and_lender_sees_its_own() -> None:
    found = lending()
    assert (capacity(found, "a"), capacity(found, "b")) == (8, 14)
    assert (available(found, "a"), available(found, "b")) == (8, 14)


def test_using_the_guaranteed_part_takes_nothing_from_others() -> None:
    found = lending()
    found.hold(holder("w", "b", 6))
    assert available(found, "a") == 8
    found.hold(holder("v", "b", 1))
    assert available(found, "a") == 7


def test_lender_keeps_its_guaranteed_part_when_the_rest_is_borrowed() -> None:
    found = lending()
    found.hold(holder("w", "a", 8))
    assert available(found, "a") == 0
    assert available(found, "b") == 6


def test_borrowing_limit_counts_from_nominal_quota() -> None:
    found = cache(spec("a", {"nominal": 4, "borrowing": 2}, "c"), spec("b", 10, "c"))
    assert capacity(found, "a") == 6
    found.hold(holder("w", "a", 5))
    assert available(found, "a") == 1


def test_borrowing_and_lending_limit_work_together() -> None:
    found = cache(spec("a", {"nominal": 4, "borrowing": 2, "lending": 1}, "c"), spec("b", 10, "c"))
    assert capacity(found, "a") == 6
    found.hold(holder("w", "a", 4))
    assert available(found, "a") == 2
    found.hold(holder("v", "b", 10))
    assert available(found, "a") == 0


def test_overcommitted_cohort_has_nothing_to_give() -> None:
    found = cache(spec("a", 2, "c"), spec("b", 2, "c"))
    found.hold(holder("w", "a", 9))
    assert available(found, "a") == 0
    assert available(found, "b") == 0


def test_without_a_cohort_only_nominal_quota_counts() -> None:
    found = cache(spec("a", 4), spec("b", 10))
    assert capacity(found, "a") == 4
    found.hold(holder("w", "a", 3))
    assert available(found, "a") == 1


def test_stopped_member_still_lends_and_is_still_charged() -> None:
    found = cache(spec("a", 10, "c", stopPolicy="Hold"), spec("b", 10, "c"))
    assert available(found, "b") == 20
    found.hold(holder("w", "a", 15))
    assert available(found, "b") == 5


def test_usage_survives_a_resource_that_leaves_the_spec_and_returns() -> None:
    found = cache(spec("a", 4, "c"), spec("b", 4, "c"))
    found.hold(holder("w", "a", 3))
    found.set_queue(queue_spec(make_cluster_queue("a", {"f": {"cpu": 4}}, cohort="c")))
    assert available(found, "b") == 1
    found.set_queue(spec("a", 4, "c"))
    assert available(found, "a") == 5


def test_queue_that_leaves_its_cohort_takes_quota_and_usage_with_it() -> None:
    found = cache(spec("a", 4, "c"), spec("b", 4, "c"))
    found.hold(holder("w", "a", 6))
    assert available(found, "b") == 2
    found.set_queue(spec("a", 4))
    assert available(found, "b") == 4
    found.remove_queue("b")
    assert found.freeze(["a"]).trees == {}


def test_workloads_of_a_queue_that_comes_late_are_charged_when_it_comes() -> None:
    found = cache()
    found.hold(holder("w", "a", 3))
    assert found.reserving("a") == 1
    found.set_queue(spec("a", 4))
    assert available(found, "a") == 1
    found.remove_queue("a")
    assert found.reserving("a") == 1
    assert found.release(ObjectKey("ns", "w")) is not None
    assert found.reserving("a") == 0


def test_workload_that_moves_is_charged_once() -> None:
    found = cache(spec("a", 4), spec("b", 4))
    found.hold(holder("w", "a", 3))
    before = found.hold(holder("w", "b", 2))
    assert before is not None
    assert before.cluster_queue == "a"
    assert (available(found, "a"), available(found, "b")) == (4, 2)


def test_releasing_twice_changes_nothing() -> None:
    found = cache(spec("a", 4))
    found.hold(holder("w", "a", 3))
    assert found.release(ObjectKey("ns", "w")) is not None
    assert found.release(ObjectKey("ns", "w")) is None
    assert available(found, "a") == 4


def test_lowest_running_priority_is_exact() -> None:
    found = cache(spec("a", 9))
    state = found.state("a")
    assert state is not None
    assert state.priorities.lowest is None
    found.hold(holder("low", "a", 1, priority=-3))
    found.hold(holder("low2", "a", 1, priority=-3))
    found.hold(holder("high", "a", 1, priority=5))
    assert view(found, "a")[1].lowest_priority == -3
    found.release(ObjectKey("ns", "low"))
    assert view(found, "a")[1].lowest_priority == -3
    found.release(ObjectKey("ns", "low2"))
    assert view(found, "a")[1].lowest_priority == 5
    found.release(ObjectKey("ns", "high"))
    assert view(found, "a")[1].lowest_priority is None


def test_priorities_count_each_value() -> None:
    found = Priorities()
    for priority in (3, 1, 3):
        found.add(priority)
    found.remove(1)
    found.remove(3)
    assert found.lowest == 3


def test_frozen_parts_do_not_follow_later_changes() -> None:
    found = cache(spec("a", 4, "c"), spec("b", 4, "c"))
    snapshot, queue = view(found, "a")
    found.hold(holder("w", "a", 3))
    found.set_flavor(flavor_of(make_flavor("f", {"new": "label"})))
    assert snapshot.available(queue, GPU) == 8
    assert queue.ranked == []
    assert snapshot.flavors["f"].labels == {}


def test_unchanged_parts_are_frozen_once() -> None:
    found = cache(spec("a", 4), spec("b", 4), spec("c", 4))
    before = found.freeze(["a", "b"])
    found.hold(holder("w", "a", 3))
    after = found.freeze(["a", "b"])
    assert before.queues["b"] is after.queues["b"]
    assert before.queues["a"] is not after.queues["a"]
    assert "c" not in after.queues


def test_freezing_brings_the_whole_cohort() -> None:
    found = cache(spec("a", 4, "x"), spec("b", 4, "x"), spec("c", 4, "y"))
    assert set(found.freeze(["a"]).queues) == {"a", "b"}


def test_same_spec_is_no_change() -> None:
    found = cache(spec("a", 4))
    assert not found.set_queue(spec("a", 4))
    assert found.set_queue(spec("a", 5))


@pytest.mark.parametrize("amounts", [{GPU: 3}, {GPU: 3, FlavorResource("f", "cpu"): 2}])
def test_overlay_is_undone_exactly(amounts: Mapping[FlavorResource, int]) -> None:
    found = lending()
    found.hold(holder("w", "b", 5))
    snapshot, queue = view(found, "b")

    def state() -> list[int]:
        members = [snapshot.queue(name) for name in ("a", "b")]
        return [snapshot.available(one, GPU) for one in members if one is not None]

    before = state()
    mark = snapshot.mark()
    snapshot.add(queue, amounts)
    assert state() == [6, 6]
    snapshot.remove(queue, {GPU: 8})
    assert state() == [8, 14]
    snapshot.undo(mark)
    assert state() == before
    assert snapshot.mark() == mark


def test_request_for_nothing_fits_where_nothing_is_left() -> None:
    found = cache(spec("a", 1))
    found.hold(holder("w", "a", 5))
    snapshot, queue = view(found, "a")
    assert snapshot.fits(queue, {GPU: 0})
    assert not snapshot.fits(queue, {GPU: 1})


def test_readiness_is_known_of_all_that_hold_quota() -> None:
    found = cache(spec("a", 4))
    found.hold(holder("w", "a", 1, pods_ready=False))
    assert not found.all_ready
    found.hold(holder("w", "a", 1, pods_ready=True))
    assert found.all_ready
    found.hold(holder("w", "a", 1, pods_ready=False))
    found.release(ObjectKey("ns", "w"))
    assert found.all_ready
