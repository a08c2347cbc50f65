"""How often Workloads vanish, and how long their jobs wait for another one."""

from __future__ import annotations

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.jobs.reconcile.job_snapshot import LAST_PAUSE, STEADY, Again, Vanished

KEY = ObjectKey("ns", "job")


@pytest.fixture
def vanished():
    return Vanished()


def test_the_first_workload_is_not_created_again(vanished):
    assert vanished.look(KEY, "u", 0.0, present=False) is None
    assert vanished.look(KEY, "u", 1.0, present=True) is None


def test_the_next_one_is_created_at_once_and_those_after_it_later_and_later(vanished):
    now, pauses = 0.0, []
    for _ in range(9):
        vanished.look(KEY, "u", now, present=True)
        now += STEADY / 2
        again = vanished.look(KEY, "u", now, present=False)
        pauses.append(again.wait)
        assert vanished.look(KEY, "u", now + again.wait, present=False) == Again()
        now += again.wait
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LAST_PAUSE, LAST_PAUSE]


def test_a_workload_that_was_there_for_long_may_be_replaced_at_once(vanished):
    for now in (0.0, 2.0):
        vanished.look(KEY, "u", now, present=True)
        again = vanished.look(KEY, "u", now + 1.0, present=False)
    assert again == Again(1.0)
    vanished.look(KEY, "u", 5.0, present=True)
    assert vanished.look(KEY, "u", 5.0 + STEADY, present=False) == Again()


def test_a_job_of_the_same_name_starts_anew(vanished):
    vanished.look(KEY, "u", 0.0, present=True)
    assert vanished.look(KEY, "v", 1.0, present=False) is None


def test_nothing_is_kept_of_a_job_that_is_gone(vanished):
    vanished.look(KEY, "u", 0.0, present=True)
    vanished.forget(KEY)
    vanished.forget(KEY)
    assert len(vanished) == 0
