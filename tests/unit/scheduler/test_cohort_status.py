"""What a cohort shows of itself, of the cohorts above and of all queues below."""

from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.knowledge import CohortUsage
from kueuelib.scheduler.knowledge import cohort_status as numbers_of
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.quota.amounts import FlavorResource, Limits
from kueuelib.scheduler.quota.cache import QuotaCache
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.queue_spec import CohortQuotas, QueueSpec

CPU = FlavorResource("f", "cpu")


def cache_of(parents: dict[str, str], queues: dict[str, str]) -> QuotaCache:
    """Cohorts with 2 of their own, by parent; queues with 10 of which 4 are lent, by cohort."""
    cache = QuotaCache()
    for name, cohort in queues.items():
        cache.set_queue(QueueSpec(name, cohort, limits={CPU: Limits(10, lending=4)}))
    for name, parent in parents.items():
        cache.set_cohort(CohortQuotas(name, parent, limits={CPU: Limits(2)}))
    return cache


def cohort_status(cache: QuotaCache, name: str) -> CohortUsage | None:
    return numbers_of(cache, name, shares=False)


def hold(cache: QuotaCache, name: str, queue: str, amount: int, *, admitted: bool = True) -> None:
    cache.hold(
        Holder(
            key=ObjectKey("ns", name),
            uid=name,
            cluster_queue=queue,
            local_queue=ObjectKey("ns", "main"),
            usage={CPU: amount},
            admitted=admitted,
            priority=0,
            order=QueueOrder(0, 0.0, name),
            reserved_at=0.0,
            assumed=False,
            evicted=False,
            pods_ready=True,
        )
    )


def test_sums_are_those_of_the_subtree() -> None:
    cache = cache_of({"top": "", "team": "top"}, {"a": "team", "b": "top", "c": ""})
    hold(cache, "first", "a", 3)
    hold(cache, "second", "a", 7, admitted=False)
    hold(cache, "third", "b", 1)
    team, top = cohort_status(cache, "team"), cohort_status(cache, "top")
    assert team is not None
    assert top is not None
    assert (team.parent, team.root, team.cycle) == ("top", "top", ())
    assert (top.parent, top.root) == ("", "top")
    assert (team.quota, team.reserved, team.admitted) == ({CPU: 6}, {CPU: 10}, 1)
    assert (top.quota, top.reserved, top.admitted) == ({CPU: 12}, {CPU: 11}, 2)
    assert cache.forest.path("team") == ("team", "top")
    assert cache.forest.cohorts_below("top") == ("top", "team")


def test_a_name_that_is_used_is_a_cohort_and_one_that_is_not_is_none() -> None:
    cache = cache_of({"team": "top"}, {"a": "team"})
    top = cohort_status(cache, "top")
    assert top is not None
    assert (top.parent, top.root, top.quota) == ("", "top", {CPU: 6})
    assert cohort_status(cache, "a") is None
    assert cache.forest.path("unknown") == ("unknown",)
    assert cache.forest.cohorts_below("unknown") == ("unknown",)
    cache.remove_queue("a")
    cache.remove_cohort("team")
    assert cohort_status(cache, "top") is None


@pytest.mark.parametrize("parents", [["x", "z", "y"], ["z", "y", "x"]])
def test_a_cycle_is_named_from_everywhere_above_which_it_is(parents: list[str]) -> None:
    above = {"x": "z", "z": "y", "y": "x"}
    cache = cache_of({**{name: above[name] for name in parents}, "below": "y"}, {"a": "below"})
    for name in ("x", "y", "z", "below"):
        found = cohort_status(cache, name)
        assert found is not None
        assert found.cycle == ("x", "z", "y")
        assert found.root == ""
        assert cache.forest.is_endless(name)
    cache.set_cohort(CohortQuotas("z"))
    found = cohort_status(cache, "below")
    assert found is not None
    assert (found.cycle, found.root, found.parent) == ((), "z", "y")
    assert cache.forest.path("below") == ("below", "y", "x", "z")
