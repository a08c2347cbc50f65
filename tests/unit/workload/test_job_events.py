"""Which Event a job gets about its Workload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kueuelib.api.meta import Obj
from kueuelib.workload import states
from kueuelib.workload.job_events import HOLD, MINUTE, SaidReason, next_event, reason_of
from kueuelib.workload.next_step import Note

NOW = 1_700_000_000.0
QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor spot, "
    "{} more needed"
)
UNCOVERED = (
    "couldn't assign flavors to pod set main: resource ephemeral-storage unavailable in "
    "ClusterQueue"
)
JOB: Obj = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
OTHER: Obj = {"apiVersion": "example.com/v1", "kind": "Set", "name": "s", "uid": "s"}
ADMISSION: Obj = {"clusterQueue": "cq", "podSetAssignments": []}


def pod(uid: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid}


def new(*owners: Obj) -> Obj:
    meta = {"name": "wl", "namespace": "ns", "uid": "w", "ownerReferences": [*(owners or (JOB,))]}
    return {"metadata": meta, "spec": {"queueName": "main"}, "status": {}}


def waits(
    reason: str = "WaitingForQuota", message: str = QUOTA.format(2), wl: Obj | None = None
) -> Obj:
    return states.wait(wl or new(), reason, message, NOW)


def reserved(*checks: Obj) -> Obj:
    wl = states.reserve(waits(), ADMISSION, [one["name"] for one in checks], NOW)
    return states.with_status(wl, admissionChecks=[*checks]) if checks else wl


def evicted(wl: Obj, reason: str = "Preempted", *, released: bool = False) -> Obj:
    wl = states.evict(wl, reason, "Preempted for another", NOW)
    return states.release(wl, NOW) if released else wl


def check(name: str, state: str = "Pending", message: str = "") -> Obj:
    return {"name": name, "state": state, "message": message}


def note(wl: Obj, place: int | None = None) -> Note | None:
    found = reason_of(wl)
    return None if found is None else found.note(place)


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        (
            "WaitingForQuota",
            QUOTA.format(2),
            "Waiting for quota: cpu on spot: 2 more needed; place 3",
        ),
        (
            "PendingEvaluation",
            "Not evaluated yet: workload ns/big was the head of ClusterQueue cq when this one came",
            "Waiting: behind ns/big; place 3",
        ),
        (
            "WaitingForPreemptedWorkloads",
            f"{QUOTA.format(2)}. Pending the preemption of 1 workload(s)",
            "Waiting for preempted Workloads: cpu on spot: 2 more needed; 1 to be preempted",
        ),
        ("Suspended", "ClusterQueue cq is stopped", "Waiting: ClusterQueue cq is stopped"),
        ("AdmissionGated", "Admission is gated by: a/b", "Waiting: Admission is gated by: a/b"),
    ],
)
def test_a_wait_that_ends_by_itself_is_normal(reason: str, message: str, said: str) -> None:
    assert note(waits(reason, message), 3) == Note("Normal", reason, said)


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        ("NoMatchingFlavor", UNCOVERED, "the queue has no quota for ephemeral-storage"),
        ("Misconfigured", "LocalQueue main doesn't exist", "LocalQueue main doesn't exist"),
        ("Deactivated", "The workload is deactivated", "The workload is deactivated"),
    ],
)
def test_what_somebody_has_to_change_is_a_warning(reason: str, message: str, said: str) -> None:
    assert note(waits(reason, message), 3) == Note("Warning", reason, f"Cannot be admitted: {said}")


def test_an_unknown_place_is_left_out() -> None:
    told = note(waits())
    assert told is not None
    assert told.message == "Waiting for quota: cpu on spot: 2 more needed"


def test_open_checks_are_named_with_their_messages() -> None:
    wl = reserved(check("nodes", message="20 % done"), check("b", "Ready"), check("c"))
    said = "Waiting for checks: nodes (20 % done), c"
    assert note(wl) == Note("Normal", "WaitingForChecks", said)


def test_an_eviction_before_the_start_is_said_and_stays_until_another_reason() -> None:
    said = Note("Normal", "EvictedDueToPreempted", "Evicted: Preempted for another")
    wl = reserved(check("nodes"))
    assert note(evicted(wl)) == note(evicted(wl, released=True)) == said


def test_a_back_off_says_when_it_ends() -> None:
    wl = states.back_off(evicted(reserved(), "PodsReadyTimeout"), 1, NOW + 60)
    told = note(states.release(wl, NOW))
    assert told is not None
    assert told.reason == "BackingOff"
    assert "2023-11-14T22:14:20Z" in told.message


@pytest.mark.parametrize(
    "wl",
    [
        new(),
        waits(wl={**new(), "metadata": {"name": "wl", "namespace": "ns"}}),
        {**waits(), "metadata": {**waits()["metadata"], "deletionTimestamp": "now"}},
        waits("Pending", "about to be tried"),
        reserved(),
        evicted(reserved()),
        evicted(reserved(), released=True),
        evicted(reserved(), "WaitingForReplacementPods", released=True),
        states.finish(waits(), "OwnerNotFound", "gone", NOW),
    ],
    ids=[
        "new",
        "no owner",
        "deleted",
        "pending",
        "admitted",
        "evicted",
        "released",
        "pods",
        "over",
    ],
)
def test_nothing_is_said_that_the_job_says_itself(wl: Obj) -> None:
    assert reason_of(wl) is None


def test_the_controller_is_told_and_of_a_group_the_newest_pod() -> None:
    def told(*owners: Obj) -> str | None:
        found = reason_of(waits(wl=new(*owners)))
        return None if found is None else found.uid

    assert told(JOB, OTHER) == "j"
    assert told(pod("a"), pod("b")) == "b"


# ---- pace


def play(moments: Iterable[tuple[float, Any]]) -> list[tuple[float, str]]:
    """The Events of a Workload that changes at some times, with their times."""
    events, said, given = [], None, [*moments]
    ends = [at for at, _ in given[1:]] + [float("inf")]
    for (at, wl), end in zip(given, ends, strict=True):
        now: float | None = at
        while now is not None and now < end:
            step = next_event(said, wl, None, now)
            said = step.said
            if step.note is not None:
                events.append((now, step.note.message.removeprefix("Waiting for ")))
            assert step.look_again is None or step.look_again > now
            now = step.look_again
    return events


FIRST = "quota: cpu on spot: 2 more needed"
STOPPED = waits("Suspended", "q is stopped")


def test_a_reason_is_said_once_it_lasts() -> None:
    assert play([(0, waits())]) == [(HOLD, FIRST)]


def test_nothing_is_said_about_a_job_that_is_admitted_at_once() -> None:
    assert play([(0, waits()), (HOLD / 2, reserved())]) == []


def test_numbers_are_no_new_reason() -> None:
    changes = [(10.0 * turn, waits(message=QUOTA.format(turn + 2))) for turn in range(50)]
    assert play(changes) == [(HOLD, FIRST)]


def test_a_new_reason_is_said_after_a_minute_at_the_earliest() -> None:
    moments = [(0, waits()), (5, STOPPED), (500, waits())]
    assert play(moments) == [
        (HOLD, FIRST),
        (HOLD + MINUTE, "Waiting: q is stopped"),
        (500 + HOLD, FIRST),
    ]


def test_what_changes_back_meanwhile_is_not_said() -> None:
    assert play([(0, waits()), (5, STOPPED), (20, waits())]) == [(HOLD, FIRST)]


def test_a_second_wait_is_said_again_but_never_twice_a_minute() -> None:
    back = waits(wl=evicted(reserved(), released=True))
    assert play([(0, waits()), (5, reserved()), (8, back)]) == [
        (HOLD, FIRST),
        (HOLD + MINUTE, FIRST),
    ]
    assert play([(0, waits()), (5, reserved()), (200, back)]) == [
        (HOLD, FIRST),
        (200 + HOLD, FIRST),
    ]


def test_a_workload_that_is_made_again_is_said_again_after_a_minute() -> None:
    assert play([(0, waits()), (5, None), (8, waits())]) == [(HOLD, FIRST), (HOLD + MINUTE, FIRST)]


def test_another_pod_of_the_group_is_told_without_a_pause() -> None:
    moments = [(0, waits(wl=new(pod("a")))), (5, waits(wl=new(pod("a"), pod("b"))))]
    assert play(moments) == [(HOLD, FIRST), (5 + HOLD, FIRST)]


def test_nothing_is_remembered_longer_than_a_minute_after_the_wait() -> None:
    said = SaidReason("j", "cause", NOW)
    step = next_event(said, reserved(), None, NOW + 1)
    assert step.said is not None
    assert step.look_again == NOW + MINUTE
    assert next_event(step.said, reserved(), None, NOW + MINUTE).said is None
