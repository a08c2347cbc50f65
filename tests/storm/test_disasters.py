"""Processes that die, sleep, restart or have a wrong clock."""

from __future__ import annotations

import pytest

PROGRAMS = (
    "plain",
    "killed",
    "killed_anywhere",
    "paused",
    "skewed",
    "restarted",
    "restored",
    "stopped",
    "warmed",
)


@pytest.fixture(scope="module")
def found(simulate):
    return simulate("programs.py", PROGRAMS, 3, 0.2)


@pytest.fixture(scope="module")
def found_again(simulate):
    return simulate("programs.py", PROGRAMS, 3, 0.2, hash_seed=1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_left_undone(found, name):
    assert found[name].get("quiet", True)
    assert found[name]["problems"] == []
    assert found[name]["endings"] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_seed_is_one_history(found, found_again, name):
    assert found[name]["trace"] == found_again[name]["trace"]
    assert found[name]["lines"] > 280


def test_the_real_manager_finishes_jobs_in_virtual_time(found):
    plain = found["plain"]
    assert plain["complete"] == 5
    assert plain["now"] > 15
    assert plain["holder"].startswith("manager-1_")
    assert plain["actors"] == ["installer", "manager-1", "server", "user"]


def test_another_manager_takes_over_from_a_dead_one(found):
    assert found["killed"]["complete"] == 6
    assert found["killed"]["after"] == ["manager-2", "server"]


def test_a_manager_may_die_after_any_write(found):
    assert found["killed_anywhere"]["deaths"] == 6
    assert found["killed_anywhere"]["complete"] == 6


def test_a_manager_that_slept_beyond_its_lease_does_not_lead(found):
    paused = found["paused"]
    assert paused["complete"] == 6
    assert paused["meanwhile"] == ["manager-2", "server"]
    assert paused["woken"] == []
    assert paused["holder"].startswith("manager-2_")


def test_each_process_has_its_own_clock(found):
    skewed = found["skewed"]
    assert skewed["complete"] == 3
    assert 11 <= skewed["renewals"] <= 13  # every five of its seconds, for thirty of ours
    assert skewed["ahead"] == pytest.approx(3630, abs=1)


def test_a_server_that_restarts_loses_nothing(found):
    assert found["restarted"]["complete"] == 6
    assert found["restarted"]["relists"] >= 2


def test_after_an_older_copy_was_restored_nothing_is_finished_that_did_not_run(found):
    restored = found["restored"]
    assert (restored["ended"], restored["complete"]) == (6, 6)
    assert restored["wrong"] == []
    assert (restored["most"], restored["held"]) == (2, 0)
    assert restored["told"]


def test_a_manager_that_is_asked_to_stop_gives_its_lease_back(found):
    assert found["stopped"]["ended"]
    assert found["stopped"]["holder"] == ""


def test_a_warm_world_is_as_empty_as_a_cold_one(found):
    warmed = found["warmed"]
    assert warmed["after"] == warmed["before"]
    assert ["namespaces", "default"] in warmed["after"]
    assert warmed["complete"] == 5
