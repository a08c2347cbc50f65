from __future__ import annotations

import attrs

from kueuelib.api.codec import encode
from kueuelib.api.kueue import Workload, WorkloadStatus
from kueuelib.api.meta import (
    Condition,
    KubeObject,
    find,
    is_true,
    truncate_message,
    with_condition,
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
    assert with_condition((A,), Condition("B", "False", "R", "m"), 6.0) == (A, B)


def test_the_time_changes_only_with_the_status():
    (reworded, _) = with_condition((A, B), Condition("A", "True", "S", "n"), 9.0)
    assert reworded == Condition("A", "True", "S", "n", 5.0)
    (flipped, _) = with_condition((A, B), Condition("A", "False", "S", "n"), 9.0)
    assert flipped == Condition("A", "False", "S", "n", 9.0)


def test_nothing_changes_when_the_condition_is_there_already():
    given = (A, B)
    assert with_condition(given, attrs.evolve(A, last_transition_time=0.0), 9.0) is given


def test_long_messages_are_cut_to_bytes_and_say_so():
    assert truncate_message("x" * 1024, 1024) == "x" * 1024
    cut = truncate_message("x" * 1025, 1024)
    assert cut == "x" * 1020 + " ..."
    umlauts = truncate_message("ä" * 600, 1024)
    assert len(umlauts.encode()) <= 1024
    assert umlauts.endswith("ä ...")
    (long,) = with_condition((), Condition("A", "True", "R", "x" * 40000), 1.0)
    assert len(long.message) == 32768
