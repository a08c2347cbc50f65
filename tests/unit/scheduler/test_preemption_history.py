"""What is known of past preemptions: from plans, and from conditions after a restart."""

from __future__ import annotations

from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.scheduler.decide.preemption.guard import NOTHING, PreemptionHistory
from kueuelib.testing.builders import make_condition, make_workload

HOUR = 3600.0
NOW = 100_000.0
RED = ObjectKey("ns", "red")


def preempted(name: str, at: float, *, still: bool = True) -> Workload:
    condition = make_condition("Preempted", still, at=at)
    return make_workload(name, "red", {"gpu": 1}, conditions=[condition])


def test_a_plan_and_the_condition_that_follows_are_one_preemption() -> None:
    history = PreemptionHistory(HOUR)
    history.issued("a", RED, NOW + 0.5)
    assert history.past().workloads == {"a": (NOW + 0.5,)}
    history.seen(preempted("a", NOW + 2), NOW + 2)
    history.seen(preempted("a", NOW + 2), NOW + 3)
    assert history.past().workloads == {"a": (NOW + 2,)}
    assert history.past().queues == {RED: {"a"}}


def test_every_preemption_counts() -> None:
    history = PreemptionHistory(HOUR)
    history.seen(preempted("a", NOW), NOW)
    history.seen(preempted("a", NOW + 5, still=False), NOW + 5)
    history.issued("a", RED, NOW + 9)
    assert history.past().workloads == {"a": (NOW, NOW + 9)}
    history.failed("a")
    history.failed("a")
    assert history.past().workloads == {"a": (NOW,)}


def test_two_preemptions_within_a_second_are_two() -> None:
    history = PreemptionHistory(HOUR)
    for _ in range(2):
        history.issued("a", RED, NOW)
        history.seen(preempted("a", NOW), NOW)
    assert history.past().workloads == {"a": (NOW, NOW)}


def test_what_was_forgotten_meanwhile_can_fail_or_be_confirmed() -> None:
    history = PreemptionHistory(HOUR)
    for name in ("fails", "leaves"):
        history.issued(name, RED, NOW)
    for number in range(1000):
        history.issued(f"w{number}", RED, NOW + 60 * number)
    assert not {"fails", "leaves"} & history.past().workloads.keys()
    history.failed("fails")
    history.seen(preempted("leaves", NOW + 60_000), NOW + 60_000)
    assert history.past().workloads["leaves"] == (NOW + 60_000,)


def test_after_a_restart_a_condition_that_is_false_again_tells_of_one() -> None:
    history = PreemptionHistory(HOUR)
    history.seen(preempted("a", NOW - 60, still=False), NOW)
    history.seen(make_workload("b", "red", {"gpu": 1}), NOW)
    assert history.past().workloads == {"a": (NOW - 60,)}


def test_what_is_too_old_is_forgotten() -> None:
    history = PreemptionHistory(HOUR)
    history.seen(preempted("old", NOW - HOUR), NOW)
    assert history.past().workloads == {}
    for number in range(1000):
        history.issued(f"w{number}", RED, NOW + 60 * number)
    assert len(history.past().workloads) < 200


def test_a_policy_that_needs_no_past_costs_nothing() -> None:
    history = PreemptionHistory(0)
    history.issued("a", RED, NOW)
    history.seen(preempted("a", NOW), NOW)
    assert history.past() is NOTHING


def test_what_a_cycle_was_given_does_not_change() -> None:
    history = PreemptionHistory(HOUR)
    history.issued("a", RED, NOW)
    before = history.past()
    history.issued("b", RED, NOW)
    assert before.workloads == {"a": (NOW,)}
    assert before.queues == {RED: {"a"}}
