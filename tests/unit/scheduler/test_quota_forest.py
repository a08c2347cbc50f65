"""Cohorts that come, change and go are as if they had been like that from the start."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.ordering import QueueOrder
from kueuelib.scheduler.quota.amounts import NOTHING, FlavorResource, Limits, level
from kueuelib.scheduler.quota.cache import QuotaCache
from kueuelib.scheduler.quota.holders import Holder
from kueuelib.scheduler.quota.node import QuotaNode
from kueuelib.scheduler.quota.queue_spec import CohortQuotas, QueueSpec
from kueuelib.scheduler.quota.snapshot import Snapshot

GPU = FlavorResource("f", "gpu")


def queue(name: str, cohort: str, gpu: int, lending: int | None = None) -> QueueSpec:
    return QueueSpec(name, cohort, limits={GPU: Limits(gpu, lending=lending)})


def cohort(name: str, parent: str = "", gpu: int = 0, lending: int | None = None) -> CohortQuotas:
    return CohortQuotas(name, parent, limits={GPU: Limits(gpu, lending=lending)})


def cache(*specs: QueueSpec | CohortQuotas) -> QuotaCache:
    found = QuotaCache()
    put(found, *specs)
    return found


def put(found: QuotaCache, *specs: QueueSpec | CohortQuotas) -> None:
    for spec in specs:
        if isinstance(spec, QueueSpec):
            found.set_queue(spec)
        else:
            found.set_cohort(spec)


def hold(found: QuotaCache, name: str, queue: str, gpu: int) -> None:
    found.hold(
        Holder(
            key=ObjectKey("ns", name),
            uid=name,
            cluster_queue=queue,
            local_queue=ObjectKey("ns", "lq"),
            usage={GPU: gpu},
            priority=0,
            order=QueueOrder(0, 0.0, name),
            reserved_at=0.0,
            admitted=True,
            assumed=False,
            evicted=False,
            pods_ready=True,
        )
    )


def release(found: QuotaCache, name: str) -> None:
    found.release(ObjectKey("ns", name))


def node(found: QuotaCache, name: str) -> QuotaNode:
    return Snapshot(found.freeze([name])).nodes[name]


CHANGES: dict[str, Callable[[QuotaCache], object]] = {
    "a Cohort has other quota": lambda found: put(found, cohort("team", "top", 1)),
    "a Cohort lends less": lambda found: put(found, cohort("team", "top", 4, lending=1)),
    "a Cohort moves": lambda found: put(found, cohort("team", "", 4)),
    "a Cohort goes": lambda found: found.remove_cohort("team"),
    "a ClusterQueue moves": lambda found: put(found, queue("a", "top", 4, 2)),
    "a ClusterQueue goes": lambda found: found.remove_queue("a"),
    "a Workload ends": lambda found: release(found, "part"),
    "a Workload ends, and nothing is borrowed": lambda found: release(found, "rest"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tree_after_a_change_is_one_built_anew(change: Callable[[QuotaCache], object]) -> None:
    found = cache(
        cohort("top", "", 6),
        cohort("team", "top", 4),
        queue("a", "team", 4, 2),
        queue("b", "top", 3),
    )
    hold(found, "part", "a", 4)
    hold(found, "rest", "a", 9)
    change(found)
    anew = found.rebuilt()
    for name in ("top", "team"):
        mine, other = found.freeze_tree(name), anew.freeze_tree(name)
        if mine is None or other is None:
            assert mine is other
            continue
        tree, one_like_it = mine.trees[name], other.trees[name]
        assert tree.quota.rows == one_like_it.quota.rows
        assert tree.used == one_like_it.used
        assert tree.borrowers == one_like_it.borrowers
    assert found.available("b", GPU) == anew.available("b", GPU)


def test_a_cohort_that_goes_leaves_what_its_queues_lend() -> None:
    found = cache(cohort("team", "", 3), queue("a", "team", 4, 2), queue("b", "team", 0))
    assert found.available("b", GPU) == 5
    found.remove_cohort("team")
    assert found.available("b", GPU) == 2


def test_what_is_never_lent_counts_at_every_level() -> None:
    found = cache(
        cohort("top", "", 1), cohort("team", "top", 4, lending=1), queue("a", "team", 4, lending=2)
    )
    assert found.available("a", GPU) == 2 + 5 + 2


def test_a_queue_borrows_from_the_nearest_cohort_that_has_enough() -> None:
    """What it has of its own counts on every way, also if it never lends it."""
    found = cache(cohort("top", "", 9), cohort("team", "top", 1), queue("a", "team", 4, lending=2))
    here = node(found, "a")
    levels = [level(here, GPU, amount, NOTHING) for amount in (4, 5, 6, 99)]
    assert levels == [(0, True), (1, True), (2, False), (2, False)]


def test_cohorts_in_which_nothing_can_be_admitted_have_no_height() -> None:
    found = cache(cohort("top"), cohort("empty", "top"), queue("a", "top", 4))
    assert node(found, "a").ancestors[0].height == 1
    put(found, queue("b", "empty", 4))
    assert node(found, "a").ancestors[0].height == 2
    found.remove_queue("b")
    assert node(found, "a").ancestors[0].height == 1


def test_a_queue_at_its_nominal_quota_does_not_borrow() -> None:
    found = cache(queue("a", "team", 4), queue("b", "team", 4))
    hold(found, "part", "a", 4)
    hold(found, "rest", "a", 1)
    assert found.forest.borrows("a", GPU)
    release(found, "rest")
    assert not found.forest.borrows("a", GPU)


def test_a_queue_that_is_removed_is_forgotten_although_no_cycle_looks() -> None:
    """A follower makes no snapshots."""
    found = cache(queue("a", "team", 4), queue("b", "team", 4))
    hold(found, "rest", "b", 1)
    release(found, "rest")
    gone = weakref.ref(found.forest._ledger.spots["b"])
    found.remove_queue("b")
    gc.collect()
    assert gone() is None
