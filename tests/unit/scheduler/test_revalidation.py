"""Whether reservations still hold when their checks have passed (KEP-993)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.revalidation import missing_quota, withdrawn_flavor
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.quota.cache import QuotaCache
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.queue_spec import queue_spec
from kueuelib.scheduler.reasons import FlavorWithdrawn, QuotaWithdrawn
from kueuelib.testing.builders import make_cluster_queue

GPU = FlavorResource("f", "gpu")


def holder(name: str, gpu: int, *, queue: str = "cq", at: float = 0, **more: Any) -> Holder:
    found = Holder(
        key=ObjectKey("ns", name),
        uid=name,
        cluster_queue=queue,
        local_queue=ObjectKey("ns", "lq"),
        priority=0,
        order=QueueOrder(0, 0, name),
        usage={GPU: gpu},
        reserved_at=at,
        admitted=False,
        assumed=False,
        evicted=False,
        pods_ready=True,
    )
    return attrs.evolve(found, **more)


def verdicts(quota: int, *holders: Holder, **queue: Any) -> dict[str, type | None]:
    cache = QuotaCache()
    cache.set_queue(queue_spec(make_cluster_queue("cq", {"f": {"gpu": quota}}, **queue)))
    for one in holders:
        cache.hold(one)
    frozen = cache.freeze(["cq"])
    found = {one.key.name: missing_quota(frozen, one) for one in holders}
    return {name: None if why is None else type(why) for name, why in found.items()}


def test_of_reservations_that_do_not_fit_together_any_more_the_later_ones_are_void() -> None:
    found = verdicts(2, *(holder(name, 1, at=at) for at, name in enumerate("abc")))
    assert found == {"a": None, "b": None, "c": QuotaWithdrawn}


def test_after_a_restart_the_order_of_the_queue_tells_reservations_of_one_second_apart() -> None:
    assert verdicts(1, holder("a", 1), holder("b", 1)) == {"a": None, "b": QuotaWithdrawn}
    urgent = holder("b", 1, order=QueueOrder(-1, 5, "b"))
    assert verdicts(1, holder("a", 1), urgent) == {"a": QuotaWithdrawn, "b": None}


def decided(*at: float) -> list[float | None]:
    cache = QuotaCache()
    new = [holder(str(i), 1, reserved_at=None, assumed=True) for i in range(len(at))]
    return [cache.dated(one, now).decided_at for one, now in zip(new, at, strict=True)]


def test_every_decision_has_its_own_time_even_if_the_clock_stands_still_or_goes_back() -> None:
    first, second, third, fourth = decided(5.0, 5.0, 4.0, 6.0)
    assert first == 5.0
    assert first < second < third < fourth == 6.0


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        ({"reserved_at": None, "assumed": True}, {"at": 9}, True),
        ({"at": 9}, {"at": 9, "evicted": True}, True),
        ({"at": 9}, {"at": 10}, False),
        ({"at": 9}, {"at": 9, "admitted": True}, False),
    ],
    ids=["stored", "the same", "another reservation", "admitted"],
)
def test_the_time_of_a_decision_belongs_to_one_reservation(
    before: dict[str, Any], after: dict[str, Any], known: bool
) -> None:
    was = holder("a", 1, decided_at=8.5, **before)
    assert holder("a", 1, **after).after(was).decided_at == (8.5 if known else None)


def test_what_is_admitted_counts_even_if_it_came_later() -> None:
    found = verdicts(1, holder("a", 1, at=1), holder("b", 1, at=2, admitted=True))
    assert found["a"] is QuotaWithdrawn


def test_what_is_only_assumed_is_later_than_what_is_stored() -> None:
    found = verdicts(1, holder("a", 1, reserved_at=None, assumed=True), holder("b", 1, at=9))
    assert found == {"a": QuotaWithdrawn, "b": None}


@pytest.mark.parametrize(("amount", "expected"), [(1, FlavorWithdrawn), (0, None)])
def test_a_flavor_that_left_the_queue_voids_what_asks_for_it(
    amount: int, expected: type | None
) -> None:
    cache = QuotaCache()
    for name, flavor in (("cq", "other"), ("lender", "f")):
        spec = make_cluster_queue(name, {flavor: {"gpu": 5}}, cohort="c")
        cache.set_queue(queue_spec(spec))
    one = holder("a", amount)
    cache.hold(one)
    frozen = cache.freeze(["cq"])
    for found in (missing_quota(frozen, one), withdrawn_flavor(frozen.queues["cq"], one.usage)):
        assert (None if found is None else type(found)) is expected


def test_a_borrowed_reservation_is_void_when_the_lender_took_its_quota_back() -> None:
    cache = QuotaCache()
    for name, gpu in (("cq", 1), ("lender", 1)):
        cache.set_queue(queue_spec(make_cluster_queue(name, {"f": {"gpu": gpu}}, cohort="c")))
    mine = holder("mine", 2, at=1)
    cache.hold(mine)
    assert missing_quota(cache.freeze(["cq"]), mine) is None
    cache.hold(holder("theirs", 1, queue="lender", at=2, admitted=True))
    found = missing_quota(cache.freeze(["cq"]), mine)
    assert isinstance(found, QuotaWithdrawn)
    assert found.text.endswith("has 1 of gpu in flavor f left, 2 are needed")
