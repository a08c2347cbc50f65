"""The life of a Workload, step by step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import Obj, format_time
from kueuelib.workload import states
from kueuelib.workload.states import (
    ADMISSION_MANAGER,
    IllegalTransition,
    Phase,
    status_writes,
)

NOW = 1_700_000_000.0
ADMISSION: Obj = {
    "clusterQueue": "cq",
    "podSetAssignments": [
        {"name": "main", "count": 1, "flavors": {"cpu": "a"}, "resourceUsage": {"cpu": "1"}}
    ],
}


def workload(**status: Any) -> Obj:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "wl",
            "namespace": "ns",
            "uid": "u1",
            "resourceVersion": "7",
            "generation": 1,
        },
        "spec": {"queueName": "main", "active": True},
        "status": status,
    }


def reserved(**status: Any) -> Obj:
    checks = status.pop("admissionChecks", [])
    failed = [entry for entry in checks if entry["state"] in ("Retry", "Rejected")]
    wl = workload(**status, **({} if failed else {"admissionChecks": checks}))
    wl = states.reserve(wl, ADMISSION, ["a"] if failed else [], NOW)
    return {**wl, "status": {**wl["status"], "admissionChecks": checks}}


def check(name: str, state: str = "Pending", **fields: Any) -> Obj:
    return {"name": name, "state": state, "message": "", "lastTransitionTime": "x", **fields}


def active(wl: Obj) -> Obj:
    return {**wl, "spec": {**wl["spec"], "active": True}}


def inactive(wl: Obj) -> Obj:
    return {**wl, "spec": {**wl["spec"], "active": False}}


def test_a_reservation_without_checks_admits_in_the_same_step() -> None:
    wl = reserved()
    assert states.phase_of(wl) is Phase.ADMITTED
    assert wl["status"]["admission"] == ADMISSION
    found = states.condition(wl, "QuotaReserved")
    assert found == {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "Quota reserved in ClusterQueue cq",
        "lastTransitionTime": format_time(NOW),
        "observedGeneration": 1,
    }


def test_a_reservation_does_not_admit_while_a_required_check_is_missing() -> None:
    wl = states.reserve(workload(), ADMISSION, ["a"], NOW)
    assert states.phase_of(wl) is Phase.RESERVED
    assert states.condition(wl, "Admitted") == {}


def test_a_reservation_admits_when_the_required_checks_are_ready() -> None:
    wl = workload(admissionChecks=[check("a", "Ready")])
    assert states.is_admitted(states.reserve(wl, ADMISSION, ["a"], NOW))


@pytest.mark.parametrize("change", ["inactive", "deleted", "finished", "reserved", "evicting"])
def test_quota_is_reserved_for_pending_workloads_only(change: str) -> None:
    wl = {
        "inactive": inactive(workload()),
        "deleted": {
            **workload(),
            "metadata": {**workload()["metadata"], "deletionTimestamp": "x"},
        },
        "finished": states.finish(workload(), "Succeeded", "done", NOW),
        "reserved": reserved(),
        "evicting": states.evict(reserved(), "Preempted", "why", NOW),
    }[change]
    with pytest.raises(IllegalTransition, match="ns/wl: cannot reserve quota"):
        states.reserve(wl, ADMISSION, [], NOW)


def test_an_eviction_holds_quota_until_it_is_released() -> None:
    wl = states.evict(reserved(), "Preempted", "for a better one", NOW + 5)
    assert states.phase_of(wl) is Phase.EVICTING
    assert states.is_admitted(wl)
    assert wl["status"]["admission"] == ADMISSION
    wl = states.release(wl, NOW + 9)
    assert states.phase_of(wl) is Phase.PENDING
    assert "admission" not in wl["status"]
    assert states.condition(wl, "QuotaReserved")["message"] == "for a better one"
    assert states.condition(wl, "Admitted")["reason"] == "NoReservation"
    assert states.condition(wl, "Requeued")["status"] == "True"


def test_a_second_cause_does_not_replace_the_first() -> None:
    wl = states.evict(reserved(), "Preempted", "first", NOW)
    assert states.evict(wl, "Deactivated", "second", NOW) is wl


def test_the_next_reservation_turns_evicted_false_and_keeps_its_reason() -> None:
    wl = states.release(states.evict(reserved(), "Preempted", "why", NOW), NOW)
    wl = states.reserve(wl, ADMISSION, [], NOW + 60)
    found = states.condition(wl, "Evicted")
    assert (found["status"], found["reason"], found["message"]) == ("False", "Preempted", "why")
    assert found["lastTransitionTime"] == format_time(NOW + 60)


def test_evictions_are_counted_by_reason_and_what_is_behind_it() -> None:
    wl = reserved()
    assert states.evictions_of(wl) == {}
    causes = ("Preempted", "DeactivatedDueToRequeuingLimitExceeded", "Preempted")
    for reason, is_first in zip(causes, (True, True, False), strict=True):
        wl = states.evict(wl, reason, "why", NOW)
        assert states.is_first_eviction(wl) is is_first
        wl = states.reserve(states.release(wl, NOW), ADMISSION, [], NOW)
    assert wl["status"]["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 2},
        {"reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 1},
    ]
    (write,) = status_writes(wl, states.evict(wl, "Preempted", "why", NOW))
    assert write.body["status"]["schedulingStats"]["evictions"][0]["count"] == 3


@pytest.mark.parametrize(
    ("ready", "behind"), [("WaitForRecovery", "WaitForRecovery"), ("Started", "WaitForStart")]
)
def test_behind_a_timeout_are_pods_that_never_started_or_were_lost(ready: str, behind: str) -> None:
    held = reserved(conditions=[{"type": "PodsReady", "status": "False", "reason": ready}])
    wl = states.evict(held, "PodsReadyTimeout", "why", NOW)
    assert states.evictions_of(wl) == {("PodsReadyTimeout", behind): 1}


def test_lost_quota_resets_the_checks_and_their_updates() -> None:
    checks = [check("a", "Ready", podSetUpdates=[{"name": "main"}]), check("b")]
    wl = states.evict(reserved(admissionChecks=checks), "Preempted", "why", NOW)
    wl = states.release(wl, NOW)
    assert [(entry["name"], entry["state"]) for entry in states.check_states(wl)] == [
        ("a", "Pending"),
        ("b", "Pending"),
    ]
    assert "podSetUpdates" not in states.check_states(wl)[0]


@pytest.mark.parametrize("cause", ["AdmissionCheck", "Preempted"])
def test_a_retry_outlives_the_quota_until_its_delay_is_over(cause: str) -> None:
    retry = check("a", "Retry", requeueAfterSeconds=60)
    wl = states.evict(reserved(admissionChecks=[retry]), cause, "why", NOW)
    assert states.check_states(states.release(wl, NOW)) == [retry]
    (entry,) = states.check_states(states.release(inactive(wl), NOW))
    assert (entry["state"], entry["retryCount"]) == ("Pending", 1)
    assert "requeueAfterSeconds" not in entry


ASKING = check(
    "a",
    reason="PreemptionRequired",
    message="others have to leave",
    podSetUpdates=[{"name": "main"}],
    retryCount=2,
)
UNASKED = check("a", message="Reset to Pending after quota was lost", retryCount=2)


@pytest.mark.parametrize(
    "lose",
    [
        lambda wl: states.cancel(wl, "Suspended", "stopped", NOW),
        lambda wl: states.release(states.evict(wl, "Preempted", "why", NOW), NOW),
        lambda wl: states.release(inactive(states.evict(wl, "Deactivated", "why", NOW)), NOW),
    ],
    ids=["cancelled", "evicted", "deactivated"],
)
def test_a_request_to_preempt_ends_with_its_reservation(lose: Callable[[Obj], Obj]) -> None:
    wl = lose(reserved(admissionChecks=[ASKING]))
    assert states.check_states(wl) == [UNASKED], "what counts attempts stays"
    again = states.check_states(lose(states.reserve(active(wl), ADMISSION, ["a"], NOW)))
    assert again == [UNASKED]


def test_a_request_that_was_stored_without_quota_is_not_about_the_next_reservation() -> None:
    """Another manager, or a controller that writes late, may have left it."""
    wl = states.reserve(workload(admissionChecks=[ASKING, check("b")]), ADMISSION, ["a"], NOW)
    assert states.check_states(wl) == [UNASKED, check("b")]


def test_a_rejected_check_is_reset_only_once_it_has_deactivated_the_workload() -> None:
    wl = states.evict(reserved(admissionChecks=[check("a", "Rejected")]), "Preempted", "why", NOW)
    assert states.checks_in(states.release(wl, NOW), "Rejected") == ("a",)
    assert states.checks_in(states.release(inactive(wl), NOW), "Pending") == ("a",)


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_quota_is_not_reserved_while_a_check_says_no(state: str) -> None:
    with pytest.raises(IllegalTransition, match="checks failed: a"):
        states.reserve(workload(admissionChecks=[check("a", state)]), ADMISSION, ["a"], NOW)


def test_a_reservation_whose_job_does_not_run_can_be_cancelled_at_once() -> None:
    wl = states.cancel(
        reserved(admissionChecks=[check("a")]), "Suspended", "ClusterQueue cq is stopped", NOW
    )
    assert states.phase_of(wl) is Phase.PENDING
    assert states.condition(wl, "QuotaReserved")["reason"] == "Suspended"
    assert states.condition(wl, "Admitted") == {}
    admitted = states.cancel(reserved(), "Pending", "it was changed before its start", NOW)
    assert states.phase_of(admitted) is Phase.PENDING
    assert states.condition(admitted, "Admitted")["status"] == "False"
    assert not states.is_evicted(admitted)
    evicted = states.evict(reserved(), "Preempted", "", NOW)
    with pytest.raises(IllegalTransition):
        states.cancel(evicted, "Suspended", "its job may run", NOW)


def test_saying_the_same_reason_again_changes_nothing() -> None:
    wl = states.wait(workload(), "WaitingForQuota", "cpu is short", NOW)
    assert states.wait(wl, "WaitingForQuota", "cpu is short", NOW + 5) is wl
    other = states.wait(wl, "WaitingForQuota", "memory is short", NOW + 5)
    assert states.condition(other, "QuotaReserved")["lastTransitionTime"] == format_time(NOW)


def test_the_same_reason_is_written_again_for_another_generation() -> None:
    wl = states.wait(workload(), "WaitingForQuota", "cpu is short", NOW)
    edited = {**wl, "metadata": {**wl["metadata"], "generation": 2}}
    renewed = states.wait(edited, "WaitingForQuota", "cpu is short", NOW + 5)
    old, new = (states.condition(each, "QuotaReserved") for each in (wl, renewed))
    assert new == {**old, "observedGeneration": 2}
    assert states.wait(renewed, "WaitingForQuota", "cpu is short", NOW + 9) is renewed


def test_a_long_message_is_cut() -> None:
    wl = states.wait(workload(), "WaitingForQuota", "x" * 40_000, NOW)
    message = states.condition(wl, "QuotaReserved")["message"]
    assert len(message) == 32768
    assert message.endswith("x ...")


def test_reactivation_forgets_the_count_of_retries() -> None:
    wl = reserved(requeueState={"count": 3, "requeueAt": "x"})
    wl = states.evict(wl, "Deactivated", "why", NOW)
    wl = states.release(inactive(wl), NOW)
    assert states.condition(wl, "Requeued")["status"] == "False"
    wl = states.requeue(wl, NOW)
    assert states.condition(wl, "Requeued")["reason"] == "Reactivated"
    assert "requeueState" not in wl["status"]


def test_the_end_of_a_back_off_keeps_the_count() -> None:
    wl = states.evict(reserved(), "PodsReadyTimeout", "slow", NOW)
    wl["status"]["requeueState"] = {"count": 3, "requeueAt": "x"}
    wl = states.requeue(states.release(wl, NOW), NOW)
    assert states.condition(wl, "Requeued")["reason"] == "BackoffFinished"
    assert wl["status"]["requeueState"] == {"count": 3}


def test_checks_are_synced_as_a_set_in_the_order_of_the_queue() -> None:
    wl = workload(admissionChecks=[check("gone"), check("b", "Retry")])
    wl = states.sync_checks(wl, ["c", "b", "c"], NOW)
    assert [(entry["name"], entry["state"]) for entry in states.check_states(wl)] == [
        ("c", "Pending"),
        ("b", "Retry"),
    ]
    assert states.sync_checks(wl, ["b", "c"], NOW) is wl
    assert states.check_states(states.sync_checks(wl, [], NOW)) == ()


def test_admission_says_that_only_places_for_pods_are_missing() -> None:
    (main,) = ADMISSION["podSetAssignments"]
    later = {**ADMISSION, "podSetAssignments": [{**main, "delayedTopologyRequest": "Pending"}]}
    wl = reserved(admissionChecks=[check("a", "Ready")], admission=later)
    wl["status"]["admission"] = later
    wl = states.sync_admitted(wl, NOW)
    said = states.condition(wl, "Admitted")
    assert (said["status"], said["reason"]) == ("False", "PendingDelayedTopologyRequests")
    assert said["message"] == "There are pending delayed topology requests"
    assert states.sync_admitted(wl, NOW + 9) is wl
    ready = {**main, "delayedTopologyRequest": "Ready"}
    placed = states.place(wl, {**ADMISSION, "podSetAssignments": [ready]}, [], NOW)
    assert states.is_admitted(placed)


def test_nothing_happens_to_a_finished_workload() -> None:
    wl = states.finish(reserved(), "Succeeded", "done", NOW)
    assert states.finish(wl, "Failed", "later", NOW) is wl
    assert states.sync_checks(wl, ["a"], NOW) is wl
    assert states.sync_admitted(wl, NOW) is wl
    for step in (states.wait, states.cancel, states.evict):
        with pytest.raises(IllegalTransition):
            step(wl, "Reason", "message", NOW)


def test_a_bundle_is_one_apply_with_identity_and_version() -> None:
    old = workload()
    (write,) = status_writes(old, states.reserve(old, ADMISSION, [], NOW))
    assert (write.style, write.field_manager) == ("apply", ADMISSION_MANAGER)
    assert write.body["metadata"] == {
        "name": "wl",
        "namespace": "ns",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert write.body["status"]["admission"] == ADMISSION
    types = [entry["type"] for entry in write.body["status"]["conditions"]]
    assert types == ["Admitted", "QuotaReserved"]


def test_checks_are_reset_before_quota_is_released() -> None:
    old = states.evict(reserved(admissionChecks=[check("a", "Ready")]), "Preempted", "why", NOW)
    first, second = status_writes(old, states.release(old, NOW))
    assert (first.style, second.style) == ("merge", "apply")
    assert first.body["status"]["admissionChecks"][0]["state"] == "Pending"
    assert "admission" not in second.body["status"]
    assert second.at("8").body["metadata"]["resourceVersion"] == "8"


def test_a_bundle_leaves_the_conditions_of_others_alone() -> None:
    old = workload(conditions=[{"type": "PodsReady", "status": "False"}])
    (write,) = status_writes(old, states.reserve(old, ADMISSION, [], NOW))
    assert "PodsReady" not in {entry["type"] for entry in write.body["status"]["conditions"]}
    assert status_writes(old, states.finish(old, "Succeeded", "done", NOW)) == ()


def test_failed_nodes_are_named_until_the_workload_loses_its_places() -> None:
    wl = reserved()
    marked = states.mark_unhealthy(wl, ["b", "a"])
    (write,) = status_writes(wl, marked)
    assert write.body["status"]["unhealthyNodes"] == [{"name": "b"}, {"name": "a"}]
    assert states.mark_unhealthy(marked, ["b", "a"]) is marked
    assert "unhealthyNodes" not in states.mark_unhealthy(marked, [])["status"]
    evicted = states.evict(marked, "NodeFailures", "m", NOW)
    for lost in (evicted, states.cancel(marked, "Suspended", "m", NOW)):
        (write,) = status_writes(marked, lost)
        assert "unhealthyNodes" not in write.body["status"]
    again = states.condition(states.release(evicted, NOW), "Requeued")
    assert (again["status"], again["reason"]) == ("True", "NodeFailures")


def test_pods_of_a_node_that_has_returned_do_not_move() -> None:
    marked = states.mark_unhealthy(reserved(), ["a", "b"])
    moved = states.place(marked, {**ADMISSION, "x": 1}, ["a"], NOW)
    assert (states.unhealthy_nodes(moved), moved["status"]["admission"]["x"]) == (["b"], 1)
    with pytest.raises(IllegalTransition, match="its node has returned"):
        states.place(states.mark_unhealthy(marked, ["b"]), ADMISSION, ["a"], NOW)


# ---- laws

NAMES = st.sampled_from(["a", "b", "c"])
STATES = st.sampled_from(["Pending", "Asks", "Ready", "Retry", "Rejected"])
REASONS = st.sampled_from(
    [
        "Preempted",
        "NodeFailures",
        "AdmissionCheck",
        "ClusterQueueStopped",
        "Deactivated",
        "PodsReadyTimeout",
    ]
)
STEPS = st.one_of(
    st.tuples(st.just("reserve"), st.lists(NAMES)),
    st.tuples(st.just("sync_admitted")),
    st.tuples(st.just("evict"), REASONS, st.just("m")),
    st.tuples(st.just("release")),
    st.tuples(st.just("cancel"), st.just("Suspended"), st.just("m")),
    st.tuples(st.just("wait"), st.just("WaitingForQuota"), st.sampled_from(["m", "n"])),
    st.tuples(st.just("requeue")),
    st.tuples(st.just("finish"), st.just("Succeeded"), st.just("m")),
    st.tuples(st.just("sync_checks"), st.lists(NAMES)),
    st.tuples(st.just("reset_checks"), st.lists(NAMES), st.just("m")),
    st.tuples(st.just("=check"), NAMES, STATES),
    st.tuples(st.just("=active"), st.booleans()),
)


def take(wl: Obj, step: tuple[Any, ...], now: float) -> Obj:
    """One step of the machine, or (`=`) of somebody else."""
    name, *arguments = step
    if name == "=active":
        return {**wl, "spec": {**wl["spec"], "active": arguments[0]}}
    if name == "=check":
        state = arguments[1]
        said: Obj = {"state": state, "podSetUpdates": [{"name": "main"}]}
        if state == "Asks":
            said = {"state": "Pending", "reason": "PreemptionRequired"}
        entries = [
            {**entry, **said} if entry["name"] == arguments[0] else entry
            for entry in states.check_states(wl)
        ]
        return {**wl, "status": {**wl["status"], "admissionChecks": entries}}
    if name == "reserve":
        arguments = [ADMISSION, *arguments]
    return getattr(states, name)(wl, *arguments, now)  # type: ignore[no-any-return]


ALLOWED = {
    Phase.PENDING: {Phase.PENDING, Phase.RESERVED, Phase.ADMITTED, Phase.FINISHED},
    Phase.RESERVED: {
        Phase.RESERVED,
        Phase.ADMITTED,
        Phase.EVICTING,
        Phase.PENDING,
        Phase.FINISHED,
    },
    # sync_admitted may only be asked for workloads that are not admitted, see the step below
    Phase.ADMITTED: {Phase.ADMITTED, Phase.EVICTING, Phase.PENDING, Phase.FINISHED},
    Phase.EVICTING: {Phase.EVICTING, Phase.PENDING, Phase.FINISHED},
    Phase.FINISHED: {Phase.FINISHED},
}


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=300, deadline=None)
def test_no_order_of_steps_makes_an_illegal_workload(steps: list[tuple[Any, ...]]) -> None:
    wl = workload()
    for number, step in enumerate(steps):
        before, copied, phase = wl, copy.deepcopy(wl), states.phase_of(wl)
        if step[0] == "sync_admitted" and phase in (Phase.ADMITTED, Phase.EVICTING):
            continue
        try:
            wl = take(wl, step, NOW + number)
        except IllegalTransition:
            assert before == copied
            continue
        assert before == copied
        assert states.violations(wl) == ()
        assert states.phase_of(wl) in ALLOWED[phase]
        if step[0] in ("release", "cancel"):
            left = [one["state"] for one in states.check_states(wl) if states.is_answered(one)]
            assert {*left} <= ({"Retry", "Rejected"} if states.is_active(wl) else set())


@given(st.lists(STEPS, max_size=15))
@settings(max_examples=100, deadline=None)
def test_a_step_that_changes_nothing_writes_nothing(steps: list[tuple[Any, ...]]) -> None:
    wl = workload()
    for step in steps:
        try:
            after = take(wl, step, NOW)
        except IllegalTransition:
            continue
        if after is wl:
            assert status_writes(wl, after) == ()
        wl = after
