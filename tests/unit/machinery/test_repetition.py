"""Which lines are told, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.machinery.recurrence import Recent, Repetition, cause_of

UNREACHABLE = "https://10.0.0.1/apis/batch/v1/namespaces/red/jobs/a: connection refused"


def test_the_first_line_is_told_at_once_and_the_last_one_after_a_period() -> None:
    lines = Repetition[int](60.0)
    assert [lines.note("x", n, 10.0 + n) for n in range(5)] == [0, None, None, None, None]
    assert lines.next_due == 70.0
    assert lines.due(69.9) == []
    assert lines.due(70.0) == [(1, 4, 3)]
    assert lines.note("x", 5, 71.0) is None
    assert lines.due(130.0) == [(5, 5, 0)]
    assert lines.due(190.0) == []
    assert lines.note("x", 6, 191.0) == 0


def test_without_a_timer_the_next_line_tells_how_many_were_left_out() -> None:
    lines = Repetition[str](60.0)
    assert [lines.note("x", "a", 0.0), lines.note("x", "b", 59.0)] == [0, None]
    assert lines.note("x", "c", 60.0) == 1
    assert lines.due() == []


def test_each_cause_is_told_by_itself() -> None:
    lines = Repetition[str](60.0)
    assert [lines.note(cause, cause, 0.0) for cause in "aabb"] == [0, None, 0, None]
    assert lines.due() == [("a", "a", 0), ("b", "b", 0)]


STEPS = st.lists(st.tuples(st.sampled_from(["line", "timer"]), st.integers(0, 2), st.floats(0, 50)))


@given(STEPS)
def test_counts_are_exact_and_no_cause_is_told_twice_in_a_period(steps) -> None:
    lines, now = Repetition[int](60.0), 0.0
    noted, told = Counter[int](), Counter[int]()
    last_told: dict[int, float] = {}

    def tell(cause: int, left_out: int) -> None:
        assert now - last_told.get(cause, -60.0) >= 60.0
        last_told[cause] = now
        told[cause] += 1 + left_out

    for what, cause, seconds in steps:
        now = round(now + seconds)
        if what == "line":
            noted[cause] += 1
            left_out = lines.note(cause, cause, now)
            if left_out is not None:
                tell(cause, left_out)
        else:
            for _, each, left_out in lines.due(now):
                tell(each, left_out)
            assert lines.next_due > now
    for _, each, left_out in lines.due():
        told[each] += 1 + left_out
    assert told == noted


def line(error: str, **more: object) -> dict[str, object]:
    return {"event": "reconciliation failed", "kind": "TransportError", "error": error, **more}


@pytest.mark.parametrize(
    "other",
    [
        line(UNREACHABLE.replace("jobs/a", "jobs/train-17"), key="red/train-17", again=True),
        line(UNREACHABLE, key="blue/b", again=False),
    ],
)
def test_lines_have_the_same_cause_whatever_object_they_are_about(other) -> None:
    ignored = frozenset({"key"})
    assert cause_of(other, ignored) == cause_of(line(UNREACHABLE, key="a", again=True), ignored)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('pods "a" not found', 'pods "train b" not found'),
        ("Workload 'a' holds 3 cpu", "Workload 'b' holds 4 cpu"),
        ("can't bind 10.0.0.1:80", "can't bind [::1]:443"),
    ],
)
def test_names_and_numbers_tell_nothing_about_a_cause(one, other) -> None:
    assert cause_of(line(one), frozenset()) == cause_of(line(other), frozenset())


@pytest.mark.parametrize(
    "other",
    [
        line(UNREACHABLE.replace("connection refused", "timed out")),
        line(UNREACHABLE, kind="NotConnected"),
        line(UNREACHABLE, component="controller.jobs"),
        {**line(UNREACHABLE), "event": "an event is lost"},
    ],
)
def test_another_message_another_kind_and_another_problem_are_other_causes(other) -> None:
    assert cause_of(other, frozenset()) != cause_of(line(UNREACHABLE), frozenset())


def test_a_text_about_a_subject_is_new_once_a_period_and_whenever_it_changes() -> None:
    recent = Recent(60.0)
    said = [("a", "x", 0.0), ("a", "x", 59.0), ("b", "x", 59.0), ("a", "y", 59.5), ("a", "x", 59.6)]
    assert [recent.is_new(*each) for each in said] == [True, False, True, True, True]
    assert not recent.is_new("b", "x", 118.9)
    assert recent.is_new("b", "x", 119.0)
