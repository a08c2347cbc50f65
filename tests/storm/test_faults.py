"""What an adversary does to calls and events arrives as it is meant, and is survived."""

from __future__ import annotations

import pytest

JOBS = 4
CALLS = (
    "late",
    "late_answers",
    "lost",
    "cut",
    "timed_out",
    "silent",
    "refused",
    "conflicts",
    "unconnected",
)
EVENTS = (
    "events_late",
    "events_closed",
    "events_cut",
    "events_gone",
    "events_silent",
    "no_bookmarks",
)
OTHERS = ("no_bookmarks", "stale", "webhook_away", "late_after_death", "lagging_candidate")


@pytest.fixture(scope="module")
def found(simulate):
    return simulate("faulty.py", (*CALLS, *EVENTS, *OTHERS), 3, 0.2)


@pytest.mark.parametrize("name", [*CALLS, *EVENTS, "no_bookmarks"])
def test_all_jobs_run_in_the_end(found, name):
    assert found[name]["complete"] == JOBS
    assert found[name]["workloads"] == JOBS
    assert found[name]["quiet"]
    assert found[name]["hits"] > 0
    assert found[name]["problems"] == []
    assert found[name]["endings"] == []


def test_delays_take_time(found, simulate):
    plain = simulate("faulty.py", ("calm",), 3, 0.2)["calm"]
    assert plain["complete"] == JOBS
    for name in ("late", "late_answers", "refused", "events_late", "events_silent"):
        assert found[name]["done"] > plain["done"] + 2, name


def test_a_write_that_timed_out_was_done_and_is_answered_by_an_error(found):
    assert found["timed_out"]["doubts"] >= found["timed_out"]["hits"] > 0


def test_an_end_of_history_is_answered_by_a_new_list(found):
    assert found["events_gone"]["lists"] > found["events_closed"]["lists"]


def test_a_silent_watch_is_given_up_after_a_while(found):
    assert 60 < found["events_silent"]["done"] < 900


def test_a_silent_watch_leaves_its_manager_behind_until_then(found):
    assert found["events_silent"]["behind"] == [True, False]
    assert found["no_bookmarks"]["behind"] == [False, False]


def test_a_list_from_the_past_shows_what_was_then_and_no_manager_asks_for_one(found):
    stale = found["stale"]
    assert stale["hits"] == 0
    assert stale["seen"] == 0
    assert stale["fresh"] == 3
    assert stale["refused"]
    assert stale["complete"] == 3


def test_nothing_is_stored_while_webhooks_are_away(found):
    away = found["webhook_away"]
    assert away["hits"] > 5
    assert away["early"] == 0
    assert away["complete"] == 2


def test_what_was_asked_for_is_done_after_the_death_of_who_asked(found):
    late = found["late_after_death"]
    assert late["before"] == 0
    assert late["after"] >= 2
    assert late["complete"] == 2


def test_a_new_leader_knows_what_its_watches_have_not_delivered_yet(found):
    candidate = found["lagging_candidate"]
    assert candidate["refused"] == []
    assert candidate["complete"] == 6
