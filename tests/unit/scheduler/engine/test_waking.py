"""Who is tried again when others come and go, and who is left alone."""

from __future__ import annotations

import pytest
from engine_cluster import NOW, Cluster, holding, key

from kueuelib.scheduler import events
from kueuelib.scheduler.reasons import Preempting
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)


def test_what_was_free_at_the_last_try_wakes_nobody(cluster: Cluster) -> None:
    """There is room for the driver, not for the workers; then something else becomes free."""
    cluster.tell(
        events.ClusterQueueSet(make_cluster_queue("q", {"f": {"gpu": 2}}, {"f": {"cpu": 1}})),
        events.LocalQueueSet(make_local_queue("q", "q")),
        events.WorkloadSet(holding("r", "q", 1)),
        events.WorkloadSet(make_workload("other", "q", {"cpu": 1}, priority=1)),
    )
    both = [make_pod_set({"gpu": 1}, "driver", 1), make_pod_set({"gpu": 2}, "workers", 1)]
    cluster.submit("both", "q", pod_sets=both)
    assert [cluster.cycle(), cluster.cycle()] == [["+other"], ["both"]]
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.cycle() == ["both"]
    cluster.tell(events.WorkloadGone(key("other")))
    assert cluster.engine.next_cycle(NOW) is None


def test_less_than_the_smallest_request_wakes_nobody_who_may_not_preempt(cluster: Cluster) -> None:
    cluster.queue("q", 3)
    cluster.tell(events.WorkloadSet(holding("r", "q", 1)), events.WorkloadSet(holding("s", "q", 2)))
    cluster.submit("w", "q", 3)
    assert cluster.cycle() == ["w"]
    cluster.tell(events.WorkloadGone(key("r")))
    assert cluster.engine.next_cycle(NOW) is None
    cluster.tell(events.WorkloadGone(key("s")))
    assert cluster.cycle() == ["+w"]


@pytest.mark.parametrize("priority", [0, 2])
def test_who_begins_to_borrow_wakes_those_who_may_reclaim_from_it(
    cluster: Cluster, priority: int
) -> None:
    """That is, whose priority is higher than the lowest one there."""
    cluster.queue("a", 2, cohort="c", preemption={"reclaimWithinCohort": "LowerPriority"})
    cluster.queue("b", 1, cohort="c")
    cluster.queue("d", 2, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", "d", 2)))
    cluster.submit("w", "a", 4, priority=1)
    assert cluster.cycle() == ["w"]
    cluster.submit("borrows", "b", 2, priority=priority)
    assert cluster.cycle() == ["+borrows"]
    assert cluster.cycle() == (["w"] if priority == 0 else [])


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("home", ["q", "lender"])
def test_a_running_workload_that_loses_its_priority_wakes_its_preemptors(
    cluster: Cluster, home: str, strategy: str
) -> None:
    """In its own ClusterQueue, and in one that lent what it uses."""
    rights = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    cluster.queue("q", 2, cohort="c", preemption=rights, queueingStrategy=strategy)
    cluster.queue("lender", 0, cohort="c")
    cluster.tell(events.WorkloadSet(holding("r", home, 2, priority=5)))
    cluster.submit("w", "q", 2, priority=3)
    assert cluster.cycle() == ["w"]
    cluster.tell(events.WorkloadSet(holding("r", home, 2, priority=0)))
    assert cluster.cycle() == ["w"]
    assert isinstance(cluster.reason("w"), Preempting)


def test_at_rest_doubtful_verdicts_are_looked_at_before_all_others(cluster: Cluster) -> None:
    """`second` lost a flavor to `first`; what `large` was told holds."""
    cluster.tell(events.FlavorSet(make_flavor("g")))
    for name in ("a", "b"):
        groups = {"f": {"gpu": 2}, "g": {"gpu": 0}}
        cluster.tell(
            events.ClusterQueueSet(make_cluster_queue(name, groups, cohort="c")),
            events.LocalQueueSet(make_local_queue(name, name)),
        )
    cluster.queue("z", 0, cohort="c")
    cluster.submit("first", "a", 2)
    fewer = [make_pod_set({"gpu": 1}, "main", 4, 2)]
    cluster.submit("second", "b", pod_sets=fewer, created=1)
    cluster.submit("large", "z", 9, created=2)
    assert cluster.cycle() == ["+first", "large", "second"]
    assert cluster.cycle() == ["second"]
    assert cluster.cycle() == ["+second"]
