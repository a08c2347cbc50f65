from __future__ import annotations

from kueuelib.api.codec import encode
from kueuelib.api.kueue import Workload, WorkloadStatus
from kueuelib.api.meta import (
    Condition,
    KubeObject,
    find,
    is_true,
    truncate_message,
    with_raw_condition,
)

A = Condition("A", "True", "R", "m", 5.0)
B = Condition("B", "False", "R", "m", 6.0)


def test_conditions_are_found_by_type():
    assert find((A, B), "B") is B
    assert find((A, B), "C") is None


def test_conditions_of_raw_and_typed_objects_are_judged_alike():
    workload = Workload(status=WorkloadStatus(conditions=(A, B)))
    for obj in (workload, encode(workload)):
        assert [is_true(obj, name) for name in "ABC"] == [True, False, False]
    assert not any(is_true(obj, "A") for obj in (KubeObject(), {}, {"status": None}))


def test_a_new_condition_comes_last_and_starts_now():
    first, last = with_raw_condition([encode(A)], "B", False, "R", "m", now=6.0)
    assert first == encode(A)
    assert last == encode(B)


def test_the_time_changes_only_with_the_status():
    (reworded,) = with_raw_condition([encode(A)], "A", True, "S", "n", now=9.0)
    assert reworded == encode(Condition("A", "True", "S", "n", 5.0))
    (flipped,) = with_raw_condition([encode(A)], "A", False, "S", "n", now=9.0)
    assert flipped == encode(Condition("A", "False", "S", "n", 9.0))


def test_nothing_changes_when_the_condition_is_there_already():
    stored = [encode(A)]
    assert with_raw_condition(stored, "A", True, "R", "m", now=9.0) == stored


def test_long_messages_are_cut_to_bytes_and_say_so():
    assert truncate_message("x" * 1024, 1024) == "x" * 1024
    cut = truncate_message("x" * 1025, 1024)
    assert cut == "x" * 1020 + " ..."
    umlauts = truncate_message("ä" * 600, 1024)
    assert len(umlauts.encode()) <= 1024
    assert umlauts.endswith("ä ...")
    (long,) = with_raw_condition((), "A", True, "R", "x" * 40000, now=1.0)
    assert len(long["message"]) == 32768
