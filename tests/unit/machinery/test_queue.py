"""The tables of the work queue, row by row."""

from __future__ import annotations

import pytest

from kueuelib.machinery.backoff import ItemExponential
from kueuelib.machinery.queue import LOW_PRIORITY, PATIENCE, Item, QueueCore


def popped(queue, now):
    found = []
    while (item := queue.pop_ready(now)) is not None:
        found.append(item.key)
    return found


def test_many_adds_before_a_pop_lead_to_one_run():
    queue = QueueCore()
    for _ in range(5):
        queue.add("a", "b", "a", now=0.0)
    assert popped(queue, 0.0) == ["a", "b"]
    assert queue.adds == 2


def test_many_adds_during_a_run_lead_to_exactly_one_more_after_it():
    queue = QueueCore()
    queue.add("a", now=0.0)
    assert queue.pop_ready(0.0) == Item("a", 0, 0.0)
    queue.add("a", now=1.0)
    queue.add("a", now=2.0)
    assert len(queue) == 1
    assert queue.next_deadline(2.0) is None
    assert queue.pop_ready(2.0) is None
    assert queue.done("a", 3.0) == (3.0, True)
    assert queue.next_deadline(3.0) == 3.0
    assert queue.pop_ready(4.0) == Item("a", 0, 3.0)
    queue.done("a", 4.0)
    assert queue.pop_ready(4.0) is None


def test_what_was_added_during_a_settled_run_needs_no_other_one():
    queue = QueueCore()
    queue.add("a", "b", now=0.0)
    assert [queue.pop_ready(0.0).key for _ in range(2)] == ["a", "b"]
    queue.add("a", now=1.0, priority=3)
    queue.add("b", now=1.0, after=5.0)
    assert queue.done("a", 2.0, settled=True) == (2.0, False)
    assert queue.done("b", 2.0, settled=True) == (2.0, False)
    assert (queue.depth, queue.waiting) == ({}, 1)
    assert popped(queue, 6.0) == ["b"]


def test_higher_priorities_come_first_and_equals_in_order_of_arrival():
    queue = QueueCore()
    queue.add("low", now=0.0, priority=LOW_PRIORITY)
    queue.add("a", "b", now=0.0)
    queue.add("high", now=0.0, priority=5)
    assert queue.depth == {LOW_PRIORITY: 1, 0: 2, 5: 1}
    assert popped(queue, 0.0) == ["high", "a", "b", "low"]


def test_a_busy_queue_cannot_hold_back_the_keys_of_a_first_list():
    queue = QueueCore()
    listed = [f"listed-{number}" for number in range(20)]
    queue.add(*listed, now=0.0, priority=LOW_PRIORITY)
    taken = []
    for second in range(60):  # one pop per second, and a live change before each
        queue.add(f"live-{second}", now=float(second))
        item = queue.pop_ready(float(second))
        queue.done(item.key, float(second))
        taken.append(item.key)
    assert taken[: int(PATIENCE)] == [f"live-{second}" for second in range(10)]
    assert [key for key in taken if key.startswith("listed")] == listed
    assert taken[10:14] == ["listed-0", "live-10", "listed-1", "live-11"]


def test_a_first_list_takes_at_most_every_second_pop_from_live_changes():
    queue = QueueCore(patience=1.0)
    queue.add(*range(1000), now=0.0, priority=LOW_PRIORITY)
    waits = []
    for step in range(500):
        now = 5.0 + step
        queue.add(f"live-{step}", now=now)
        waits.append(sum(type(queue.pop_ready(now).key) is int for _ in range(2)))
    assert waits == [1] * 500


def test_overdue_keys_come_in_the_order_in_which_they_became_ready():
    queue = QueueCore(patience=5.0)
    queue.add("high", now=2.0, priority=7)
    queue.add("low", now=1.0, priority=-7)
    queue.add("lifted", now=0.0, priority=-7)
    queue.add("lifted", now=3.0)
    queue.add("late", now=0.0, after=4.0, priority=9)
    assert popped(queue, 8.0) == ["lifted", "late", "low", "high"]


def test_keys_that_were_handed_out_by_age_are_forgotten_by_priority():
    queue = QueueCore(patience=0.0)
    for number in range(10_000):
        queue.add(number, now=float(number))
        assert queue.pop_ready(float(number)).key == number
        queue.done(number, float(number))
    assert len(queue._ready) + len(queue._oldest) < 300
    assert queue.next_deadline(10_000.0) is None


def test_a_live_change_lifts_a_key_of_the_initial_list_behind_its_new_equals():
    queue = QueueCore()
    queue.add("a", now=0.0, priority=LOW_PRIORITY)
    queue.add("b", now=0.0)
    queue.add("a", now=0.0)
    assert queue.depth == {0: 2}
    assert popped(queue, 0.0) == ["b", "a"]


def test_a_lower_priority_changes_nothing():
    queue = QueueCore()
    queue.add("a", "b", now=0.0, priority=3)
    queue.add("a", now=0.0, priority=1)
    assert popped(queue, 0.0) == ["a", "b"]


def test_a_delayed_key_comes_when_its_time_has_come():
    queue = QueueCore()
    queue.add("a", now=0.0, after=5.0)
    assert (len(queue), queue.waiting, queue.retries) == (0, 1, 1)
    assert queue.next_deadline(1.0) == 5.0
    assert queue.pop_ready(4.9) is None
    assert queue.pop_ready(7.0) == Item("a", 0, 2.0)


def test_of_two_delays_the_earlier_holds():
    queue = QueueCore()
    queue.add("a", now=0.0, after=5.0)
    queue.add("a", now=1.0, after=9.0)
    assert queue.next_deadline(1.0) == 5.0
    queue.add("a", now=1.0, after=2.0)
    assert queue.next_deadline(1.0) == 3.0
    assert popped(queue, 3.0) == ["a"]
    assert queue.next_deadline(3.0) is None


@pytest.mark.parametrize("priority", [LOW_PRIORITY, None, 5])
@pytest.mark.parametrize("after", [0.0, 1.0, 2.0])
def test_a_key_is_due_if_a_later_add_would_change_nothing(after, priority):
    queue, by = QueueCore(), 1.5
    assert not queue.is_due("a", by)
    queue.add("a", now=0.0, after=after, priority=priority)
    due = queue.is_due("a", by)
    assert due == (after <= by and priority != LOW_PRIORITY)
    assert due != queue.add("a", now=0.0, after=by)


def test_an_immediate_add_moves_a_waiting_key_and_leaves_no_timer():
    queue = QueueCore()
    queue.add("a", now=0.0, after=5.0)
    queue.add("a", now=1.0)
    assert popped(queue, 1.0) == ["a"]
    queue.done("a", 1.0)
    assert queue.next_deadline(1.0) is None
    assert popped(queue, 9.0) == []


def test_a_ready_key_does_not_become_a_waiting_one():
    queue = QueueCore()
    queue.add("a", now=0.0)
    queue.add("a", now=0.0, after=5.0)
    assert popped(queue, 0.0) == ["a"]


def test_keys_line_up_in_the_order_in_which_they_became_ready():
    queue = QueueCore()
    queue.add("late", now=0.0, after=3.0)
    queue.add("early", now=0.0, after=2.0)
    queue.add("now", now=2.5)
    assert popped(queue, 4.0) == ["early", "now", "late"]


def test_a_delay_of_zero_or_less_is_none():
    queue = QueueCore()
    queue.add("a", now=0.0, after=0.0)
    queue.add("b", now=0.0, after=-1.0)
    assert popped(queue, 0.0) == ["a", "b"]
    assert queue.retries == 0


def test_the_rate_limiter_delays_until_forgotten():
    queue = QueueCore(ItemExponential(1.0, 4.0))
    delays = []
    for _ in range(4):
        queue.add("a", now=0.0, rate_limited=True)
        delays.append(queue.next_deadline(0.0))
        popped(queue, 10.0)
        queue.done("a", 10.0)
    assert delays == [1.0, 2.0, 4.0, 4.0]
    assert queue.num_requeues("a") == 4
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    queue.add("a", now=0.0, rate_limited=True)
    assert queue.next_deadline(0.0) == 1.0


@pytest.mark.parametrize(("after", "expected"), [(0.0, 2.0), (1.0, 1.0), (9.0, 2.0)])
def test_of_a_given_and_a_limited_delay_the_smaller_above_zero_holds(after, expected):
    queue = QueueCore(ItemExponential(2.0, 4.0))
    queue.add("a", now=0.0, after=after, rate_limited=True)
    assert queue.next_deadline(0.0) == expected


def test_done_without_a_pop_is_refused():
    with pytest.raises(KeyError):
        QueueCore().done("a", 0.0)


def test_the_work_in_progress_is_measured():
    queue = QueueCore()
    queue.add("a", "b", now=0.0)
    queue.pop_ready(1.0)
    queue.pop_ready(3.0)
    assert queue.unfinished(4.0) == 4.0
    assert queue.longest_running(4.0) == 3.0
    queue.done("a", 4.0)
    assert queue.longest_running(4.0) == 1.0


def test_a_drain_hands_out_what_is_ready_and_runs_touched_keys_once_more():
    queue = QueueCore()
    queue.add("a", "b", now=0.0)
    queue.add("later", now=0.0, after=1.0)
    queue.pop_ready(0.0)
    queue.add("a", now=0.0)
    queue.shut_down(drain=True)
    queue.add("ignored", now=0.0)
    assert not queue.exhausted
    assert popped(queue, 9.0) == ["b"]
    assert not queue.exhausted
    queue.done("a", 9.0)
    queue.done("b", 9.0)
    assert popped(queue, 9.0) == ["a"]
    assert queue.exhausted
    assert not queue.drained
    queue.done("a", 9.0)
    assert queue.drained


def test_an_immediate_shutdown_drops_everything_also_during_a_drain():
    queue = QueueCore()
    queue.add("a", "b", now=0.0)
    queue.pop_ready(0.0)
    queue.shut_down(drain=True)
    queue.shut_down(drain=False)
    assert queue.exhausted
    assert (len(queue), queue.waiting) == (0, 0)
    assert queue.pop_ready(0.0) is None
    queue.shut_down(drain=True)
    assert queue.exhausted
    assert not queue.drained
    queue.done("a", 0.0)
    assert queue.drained


def test_repeated_changes_of_waiting_keys_do_not_pile_up():
    queue = QueueCore()
    for number in range(10_000):
        queue.add("a", "b", now=0.0, after=20_000.0 - number, priority=number)
    assert len(queue._waiting) < 200
