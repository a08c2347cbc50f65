"""When a check is asked, as a function of a Workload and what was answered before."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kueue import PodSetUpdate
from kueuelib.api.meta import Obj, format_time
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.checks.moves import (
    Ask,
    LastAnswer,
    Reset,
    StayPut,
    decided,
    held_reservation,
    holds,
    next_move,
    reservation_of,
    retry_delay_of,
)
from kueuelib.checks.verdicts import Ready, Retry

NOW = 1_700_000_000.0


def workload(*, reserved: float | None = NOW, active: bool = True) -> Obj:
    status: Obj = {}
    if reserved is not None:
        since = {"lastTransitionTime": format_time(reserved)}
        conditions = [{"type": "QuotaReserved", "status": "True", "reason": "R", **since}]
        status = {"admission": {"clusterQueue": "cq"}, "conditions": conditions}
    return {"metadata": {"name": "wl", "uid": "u"}, "spec": {"active": active}, "status": status}


def entry(state: str) -> Obj:
    return {"name": "check", "state": state, "lastTransitionTime": format_time(NOW)}


def move(wl: Obj, state: str, asked: LastAnswer | None = None, now: float = NOW) -> Any:
    return next_move(wl, entry(state), None, asked, 60.0, now)


@pytest.mark.parametrize(
    ("state", "active", "wanted"),
    [
        ("Pending", True, StayPut()),
        ("Ready", True, Reset("Reset to Pending after quota was lost")),
        ("Retry", True, StayPut(NOW + 60)),
        ("Rejected", True, StayPut()),
        ("Rejected", False, Reset("Reset to Pending after deactivation")),
    ],
)
def test_without_quota_a_check_is_not_asked(state: str, active: bool, wanted: Any) -> None:
    assert move(workload(reserved=None, active=active), state) == wanted


def ready(**labels: str) -> Ready:
    return Ready("", (PodSetUpdate("main", labels=labels),))


def passed(**labels: str) -> tuple[Obj, Obj]:
    """A Workload whose check has passed, and its entry."""
    wl = workload()
    wl["spec"]["podSets"] = [{"name": "main"}]
    found = decided(wl, entry("Pending"), ready(**labels), NOW)
    assert found is not None
    return wl, found


def test_other_updates_take_two_writes_because_the_api_refuses_them_while_it_is_ready() -> None:
    wl, was = passed(a="b")
    between = decided(wl, was, ready(a="c"), NOW)
    assert between is not None
    assert (between["state"], "podSetUpdates" in between) == ("Pending", False)
    after = decided(wl, between, ready(a="c"), NOW)
    assert after is not None
    assert (after["state"], after["podSetUpdates"][0]["labels"]) == ("Ready", {"a": "c"})
    assert decided(wl, after, ready(a="c"), NOW) is None


def test_the_form_in_which_updates_are_stored_is_no_other_answer() -> None:
    wl, was = passed(a="b")
    was["podSetUpdates"] = [{"name": "main", "labels": {"a": "b"}, "nodeSelector": {}}]
    assert decided(wl, was, ready(a="b"), NOW) is None


def test_updates_of_an_admitted_workload_never_change() -> None:
    wl, was = passed(a="b")
    wl["status"]["conditions"].append({"type": "Admitted", "status": "True", "reason": "A"})
    for verdict in (ready(a="c"), Ready(), ready(a="not / valid")):
        assert decided(wl, was, verdict, NOW) is None


def test_updates_that_the_api_refuses_do_not_take_back_what_passed() -> None:
    wl, was = passed(a="b")
    with pytest.raises(ValueError, match=r"podSetUpdates\[0\].labels: Invalid value"):
        decided(wl, was, ready(a="not / valid"), NOW)


@pytest.mark.parametrize(("after", "stored"), [(0.0, 0), (0.5, 1), (2.5, 3), (60, 60)])
def test_a_delay_is_not_rounded_down(after: float, stored: int) -> None:
    found = decided(workload(), entry("Pending"), Retry("later", after=after), NOW)
    assert found is not None
    assert found["requeueAfterSeconds"] == stored


def test_each_reservation_is_asked_about_once() -> None:
    first, second = workload(), workload(reserved=NOW + 1)
    assert move(first, "Pending") == Ask()
    reservation = reservation_of(first)
    assert reservation is not None
    asked = LastAnswer(reservation, None, "Pending", None)
    assert move(first, "Pending", asked) == StayPut()
    assert move(second, "Pending", asked) == Ask()


def test_pods_that_were_edited_within_the_second_of_the_reservation_are_asked_about() -> None:
    first, edited = workload(), workload()
    edited["spec"]["podSets"] = [{"name": "main", "count": 2}]
    reservation = reservation_of(first)
    assert reservation is not None
    assert move(edited, "Pending", LastAnswer(reservation, None, "Pending", None)) == Ask()


@pytest.mark.parametrize(
    ("change", "used"),
    [
        ({}, True),
        ({"spec": {"active": False}}, True),
        ({"metadata": {"deletionTimestamp": "t", "finalizers": [IN_USE_FINALIZER]}}, True),
        ({"metadata": {"deletionTimestamp": "t", "finalizers": ["other"]}}, False),
        ({"status": {"conditions": [{"type": "Finished", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}}, False),
    ],
)
def test_a_reservation_is_used_until_the_quota_is_free(change: Obj, used: bool) -> None:
    wl = workload()
    for part, fields in change.items():
        wl[part] = {**wl[part], **fields}
    if change.get("status", {}).get("conditions", [{}])[0].get("type") == "Finished":
        wl["status"]["conditions"] += workload()["status"]["conditions"]
    assert (held_reservation(wl) is not None) is used


@pytest.mark.parametrize(
    ("state", "conditions", "held"),
    [
        ("Ready", ["QuotaReserved"], True),
        ("Pending", ["QuotaReserved"], False),
        ("Retry", ["QuotaReserved"], False),
        ("Ready", ["QuotaReserved", "Admitted", "Evicted"], True),
        ("Retry", ["QuotaReserved", "Admitted", "Evicted"], True),
        ("Pending", ["QuotaReserved", "Admitted"], False),
        ("Ready", ["QuotaReserved", "Admitted", "Finished"], False),
        ("Ready", [], False),
    ],
)
def test_what_a_check_has_accepted_is_held_until_the_last_pod_is_gone(
    state: str, conditions: list[str], held: bool
) -> None:
    wl = workload()
    wl["status"]["conditions"] = [{"type": one, "status": "True"} for one in conditions]
    wl["status"]["admissionChecks"] = [entry(state)]
    assert holds(wl, "check") is held
    assert not holds(wl, "other")


def test_a_pending_check_is_asked_again_when_it_said() -> None:
    reservation = reservation_of(workload())
    assert reservation is not None
    asked = LastAnswer(reservation, None, "Pending", NOW + 5)
    assert move(workload(), "Pending", asked, NOW + 4) == StayPut(NOW + 5)
    assert move(workload(), "Pending", asked, NOW + 5) == Ask()


def test_a_check_says_how_long_a_retry_lasts() -> None:
    assert retry_delay_of({"spec": {"retryDelayMinutes": 2}}) == 120
    assert retry_delay_of({"spec": {"retryDelayMinutes": 0}}) == 0
    assert retry_delay_of({"spec": {}}) == 900
