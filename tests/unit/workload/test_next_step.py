"""What the workload reconciler decides."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.api.workload_state import passed_all
from kueuelib.scheduler.object_reasons import LocalQueueFacts
from kueuelib.scheduler.quota.queue_spec import ACTIVE, UNKNOWN, Activity
from kueuelib.scheduler.reasons import MakingRoom, NotEvaluated, QuotaWithdrawn
from kueuelib.workload import states
from kueuelib.workload.checks import required_checks
from kueuelib.workload.next_step import NOTHING, TAKEN_BACK, Step, WorkloadContext, next_step
from kueuelib.workload.states import Phase

NOW = 1_700_000_000.0
ADMISSION: Obj = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "a"}}],
}


def workload(*, active: bool = True, **status: Any) -> Obj:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "wl",
            "namespace": "ns",
            "uid": "u1",
            "resourceVersion": "7",
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        },
        "spec": {"queueName": "main", "active": active},
        "status": status,
    }


def check(name: str, state: str = "Pending", now: float = NOW) -> Obj:
    return {"name": name, "state": state, "message": "", "lastTransitionTime": format_time(now)}


def queue(*checks: str, policy: str = "None", deleted: bool = False, **spec: Any) -> Obj:
    strategy = {"admissionChecks": [{"name": name} for name in checks]}
    metadata = {"name": "cq", **({"deletionTimestamp": "x"} if deleted else {})}
    spec = {"stopPolicy": policy, "admissionChecksStrategy": strategy, **spec}
    return {"metadata": metadata, "spec": spec}


LOCAL = LocalQueueFacts("main", "cq")


def around(
    cq: Obj | None = None, why: str = "", local: LocalQueueFacts = LOCAL, **fields: Any
) -> WorkloadContext:
    activity = ACTIVE if not why else Activity(active=False, reason=why, message=why)
    return WorkloadContext(local, queue() if cq is None else cq, activity, **fields)


def stopped(policy: str) -> LocalQueueFacts:
    return attrs.evolve(LOCAL, stop_policy=policy)


def reserved(*checks: Obj) -> Obj:
    """Quota is held, and the checks have answered since."""
    wl = states.reserve(workload(), ADMISSION, ["missing"], NOW)
    return {**wl, "status": {**wl["status"], "admissionChecks": list(checks)}}


def admitted() -> Obj:
    return states.reserve(workload(), ADMISSION, [], NOW)


def status_reason(step: Any) -> str:
    return str(states.condition(step.workload, "QuotaReserved")["reason"])


def test_a_pending_workload_of_a_sound_queue_is_left_to_the_scheduler() -> None:
    assert next_step(workload(), around(), NOW) == NOTHING


@pytest.mark.parametrize(
    ("surroundings", "reason", "message"),
    [
        (WorkloadContext(), "Misconfigured", "LocalQueue main doesn't exist"),
        (WorkloadContext(local_queue=LOCAL), "Misconfigured", "ClusterQueue cq doesn't exist"),
        (around(local=stopped("Hold")), "Suspended", "LocalQueue main is stopped"),
        (around(queue(policy="Hold"), "Stopped"), "Suspended", "ClusterQueue cq is stopped"),
        (around(why="Terminating"), "Suspended", "ClusterQueue cq is terminating"),
        (around(why="FlavorNotFound"), "Misconfigured", "ClusterQueue cq is inactive"),
    ],
)
def test_a_reason_is_named_once(surroundings: WorkloadContext, reason: str, message: str) -> None:
    step = next_step(workload(), surroundings, NOW)
    assert step.workload is not None
    found = states.condition(step.workload, "QuotaReserved")
    assert (found["reason"], found["message"]) == (reason, message)
    assert next_step(step.workload, surroundings, NOW + 9) == NOTHING


def test_what_the_condition_says_once_no_reason_is_left_is_up_to_the_scheduler() -> None:
    stuck = states.wait(workload(), "Misconfigured", "LocalQueue main doesn't exist", NOW)
    assert next_step(stuck, around(), NOW) == NOTHING
    full = states.wait(workload(), "WaitingForQuota", "cpu is short", NOW)
    assert next_step(full, around(), NOW) == NOTHING


def test_an_orphan_that_is_deleted_loses_its_finalizer_and_an_owned_one_does_not() -> None:
    wl = workload()
    wl["metadata"]["deletionTimestamp"] = "x"
    assert next_step(wl, around(), NOW).drop_finalizer
    wl["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j"}]
    assert next_step(wl, around(), NOW) == NOTHING


def test_checks_follow_the_queue_before_and_after_the_reservation() -> None:
    for wl in (workload(), admitted()):
        step = next_step(wl, around(queue("a", "b")), NOW)
        assert states.checks_in(step.workload or {}, "Pending") == ("a", "b")


def test_the_last_ready_check_admits_and_reports_it() -> None:
    wl = reserved(check("a", "Ready"), check("b"))
    assert next_step(wl, around(queue("a", "b")), NOW) == NOTHING
    wl = {**wl, "status": {**wl["status"], "admissionChecks": [check("a", "Ready")]}}
    step = next_step(wl, around(queue("a")), NOW + 7)
    assert step.workload is not None
    assert states.phase_of(step.workload) is Phase.ADMITTED
    (note,) = step.notes
    assert note.reason == "Admitted"
    assert note.message.endswith("was 7s")
    assert "cq" in note.message


def test_a_retry_evicts_a_workload_with_quota() -> None:
    step = next_step(reserved(check("a", "Retry")), around(queue("a")), NOW)
    assert step.workload is not None
    assert states.condition(step.workload, "Evicted")["reason"] == "AdmissionCheck"
    assert step.notes[0].reason == "EvictedDueToAdmissionCheck"


def test_a_retry_is_pending_again_after_its_delay() -> None:
    wl = workload(admissionChecks=[check("a", "Retry")])
    surroundings = around(queue("a"), retry_delays={"a": 60.0})
    assert next_step(wl, surroundings, NOW + 59).look_again == NOW + 60
    step = next_step(wl, surroundings, NOW + 60)
    assert states.checks_in(step.workload or {}, "Pending") == ("a",)


def test_a_retry_is_pending_again_after_its_delay_although_the_queue_is_held() -> None:
    wl = workload(admissionChecks=[check("a", "Retry")])
    held = {**queue("a"), "spec": {**queue("a")["spec"], "stopPolicy": "Hold"}}
    surroundings = around(held, retry_delays={"a": 60.0})
    waits = next_step(wl, surroundings, NOW + 59).workload or wl
    assert next_step(waits, surroundings, NOW + 59).look_again == NOW + 60
    step = next_step(waits, surroundings, NOW + 60)
    assert states.checks_in(step.workload or {}, "Pending") == ("a",)


@pytest.mark.parametrize("with_quota", [True, False])
def test_a_rejected_check_deactivates(with_quota: bool) -> None:
    entry = check("a", "Rejected")
    wl = reserved(entry) if with_quota else workload(admissionChecks=[entry])
    step = next_step(wl, around(queue("a")), NOW)
    assert step.deactivate
    assert "a" in step.notes[0].message


def test_deactivation_evicts_whoever_holds_quota_running_or_not() -> None:
    for running in (admitted(), reserved(check("a"))):
        wl = {**running, "spec": {**running["spec"], "active": False}}
        step = next_step(wl, around(queue("a")), NOW)
        assert step.workload is not None
        assert states.condition(step.workload, "Evicted")["reason"] == "Deactivated"
        assert next_step(step.workload, around(queue("a")), NOW) == NOTHING


def test_a_deactivated_pending_workload_says_so_and_forgets_its_rejection() -> None:
    asking = {**check("b"), "reason": "PreemptionRequired"}
    wl = workload(active=False, admissionChecks=[check("a", "Rejected"), asking])
    step = next_step(wl, around(queue("a", "b")), NOW)
    assert status_reason(step) == "Deactivated"
    assert step.workload is not None
    assert states.checks_in(step.workload, "Pending") == ("a", "b")
    assert not any(map(states.is_answered, states.check_states(step.workload)))
    assert next_step(step.workload, around(queue("a", "b")), NOW) == NOTHING


def test_a_victim_that_is_deactivated_says_so_and_not_for_whom_it_left() -> None:
    wl = states.release(states.evict(admitted(), "Preempted", "room for others", NOW), NOW)
    step = next_step({**wl, "spec": {**wl["spec"], "active": False}}, around(queue()), NOW)
    assert status_reason(step) == "Deactivated"
    assert step.workload is not None
    assert "room" not in states.condition(step.workload, "QuotaReserved")["message"]
    assert next_step(step.workload, around(queue()), NOW) == NOTHING


def test_the_message_of_a_deactivation_stays_when_the_quota_goes() -> None:
    wl = states.evict(admitted(), "DeactivatedDueToAdmissionCheck", "by a check", NOW)
    wl = states.release({**wl, "spec": {**wl["spec"], "active": False}}, NOW)
    reserved = states.condition(wl, "QuotaReserved")
    assert (reserved["reason"], reserved["message"]) == ("Deactivated", "by a check")
    assert next_step(wl, around(queue()), NOW) == NOTHING


def test_a_reactivated_workload_is_queued_again() -> None:
    wl = states.evict(admitted(), "Deactivated", "why", NOW)
    wl = states.release({**wl, "spec": {"queueName": "main", "active": False}}, NOW)
    wl = {**wl, "spec": {"queueName": "main", "active": True}}
    step = next_step(wl, around(), NOW)
    assert step.workload is not None
    assert states.condition(step.workload, "Requeued")["reason"] == "Reactivated"


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_cancels_reservations_and_only_draining_evicts(policy: str) -> None:
    waiting = next_step(reserved(check("a")), around(queue("a", policy=policy)), NOW)
    assert waiting.workload is not None
    assert states.phase_of(waiting.workload) is Phase.PENDING
    assert status_reason(waiting) == "Suspended"
    running = next_step(admitted(), around(queue(policy=policy)), NOW)
    if policy == "Hold":
        assert running == NOTHING
    else:
        assert running.workload is not None
        assert states.condition(running.workload, "Evicted")["reason"] == "ClusterQueueStopped"


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_so_does_a_stopped_local_queue(policy: str) -> None:
    waiting = next_step(reserved(check("a")), around(queue("a"), local=stopped(policy)), NOW)
    assert status_reason(waiting) == "Suspended"
    running = next_step(admitted(), around(local=stopped(policy)), NOW)
    if policy == "Hold":
        assert running == NOTHING
    else:
        assert running.workload is not None
        assert states.condition(running.workload, "Evicted")["reason"] == "LocalQueueStopped"


def test_a_queue_that_starts_again_takes_its_drained_workloads_back() -> None:
    wl = states.release(states.evict(admitted(), "ClusterQueueStopped", "why", NOW), NOW)
    step = next_step(wl, around(), NOW)
    assert step.workload is not None
    assert states.condition(step.workload, "Requeued")["reason"] == "ClusterQueueRestarted"


def test_a_deleted_queue_cancels_reservations_and_lets_admitted_workloads_run() -> None:
    gone = WorkloadContext(LOCAL, None)
    for surroundings in (gone, around(queue("a", deleted=True))):
        step = next_step(reserved(check("a")), surroundings, NOW)
        assert status_reason(step) in ("Misconfigured", "Suspended")
    assert next_step(admitted(), gone, NOW) == NOTHING
    assert next_step(admitted(), around(queue(deleted=True)), NOW) == NOTHING


def test_required_checks_depend_on_the_assigned_flavors() -> None:
    cq = queue()
    cq["spec"]["admissionChecksStrategy"]["admissionChecks"] = [
        {"name": "all"},
        {"name": "some", "onFlavors": ["a"]},
        {"name": "other", "onFlavors": ["b"]},
    ]
    assert required_checks(cq, None) == ("all",)
    assert required_checks(cq, ADMISSION) == ("all", "some")
    assert required_checks({"spec": {"admissionChecks": ["x", "y", "x"]}}, None) == ("x", "y")


def test_a_reservation_that_lost_its_quota_or_flavor_is_taken_back_instead_of_admitted() -> None:
    wl = reserved(check("a", "Ready"))
    void = QuotaWithdrawn("cq", "f", "cpu", 2000, 500)
    step = next_step(wl, around(queue("a"), void=void), NOW)
    assert step.workload is not None
    assert states.phase_of(step.workload) is Phase.PENDING
    assert states.checks_in(step.workload, "Pending") == ("a",)
    assert step.notes[0].reason == "ReservationVoid"
    assert "500m of cpu in flavor f left, 2 are needed" in step.notes[0].message


def test_a_reservation_that_the_scheduler_has_not_seen_is_not_admitted_yet() -> None:
    wl = reserved(check("a", "Ready"))
    assert next_step(wl, around(queue("a"), void=NotEvaluated()), NOW) == NOTHING


@pytest.mark.parametrize("state", ["Pending", "Ready"])
def test_who_has_to_leave_for_a_reservation_is_told_by_the_step_alone(state: str) -> None:
    wl = reserved(check("a", state))
    making_room = MakingRoom((ObjectKey("ns", "low"),))
    step = next_step(wl, around(queue("a"), void=making_room), NOW)
    assert step == Step(make_room=True)
    stopped = around(queue("a", policy="Hold"), "Stopped", void=making_room)
    step = next_step(wl, stopped, NOW)
    assert not step.make_room
    assert step.workload is not None
    assert states.phase_of(step.workload) is Phase.PENDING


def test_quota_that_is_missing_counts_once_the_checks_have_passed() -> None:
    void = QuotaWithdrawn("cq", "f", "cpu", 2000, 500)
    wl = reserved(check("a"))
    assert next_step(wl, around(queue("a"), void=void), NOW) == NOTHING
    later = attrs.evolve(void, again=NOW + 60)
    assert next_step(wl, around(queue("a"), void=later), NOW) == Step(look_again=NOW + 60)
    wl = reserved(check("a", "Ready"))
    step = next_step(wl, around(queue("a"), void=void), NOW)
    assert states.phase_of(step.workload or wl) is Phase.PENDING


def test_a_check_may_say_itself_how_long_a_retry_lasts() -> None:
    wl = workload(admissionChecks=[{**check("a", "Retry"), "requeueAfterSeconds": 5}])
    surroundings = around(queue("a"), retry_delays={"a": 900.0})
    assert next_step(wl, surroundings, NOW).look_again == NOW + 5
    step = next_step(wl, surroundings, NOW + 5)
    assert states.checks_in(step.workload or {}, "Pending") == ("a",)


def test_a_retry_for_one_flavor_outlives_the_loss_of_that_flavor() -> None:
    rule = {"name": "a", "onFlavors": ["a"]}
    cq = queue(admissionChecksStrategy={"admissionChecks": [rule]})
    wl = workload(admissionChecks=[check("a", "Retry")])
    surroundings = around(cq, retry_delays={"a": 60.0})
    assert next_step(wl, surroundings, NOW).look_again == NOW + 60
    over = next_step(wl, surroundings, NOW + 60).workload
    assert over is not None
    assert next_step(over, surroundings, NOW + 60).workload is None
    (kept,) = states.check_states(over)
    assert (kept["state"], kept["retryCount"]) == ("Pending", 1)
    other = {"name": "main", "flavors": {"cpu": "b"}, "count": 1}
    admission = {"clusterQueue": "cq", "podSetAssignments": [other]}
    elsewhere = states.reserve(over, admission, (), NOW + 60)
    listed = next_step(elsewhere, surroundings, NOW + 60).workload
    assert listed is not None
    assert not states.check_states(listed), "it does not hold up another flavor"


def test_a_rejection_tells_the_job_what_the_check_said() -> None:
    rejected = {**check("a", "Rejected"), "message": "no money"}
    wl = reserved(rejected)
    (note,) = next_step(wl, around(queue("a")), NOW).notes
    assert note.on_owners
    assert "a (no money)" in note.message
    wl = {**wl, "spec": {**wl["spec"], "active": False}}
    step = next_step(wl, around(queue("a")), NOW)
    assert step.workload is not None
    eviction = states.condition(step.workload, "Evicted")
    assert "no money" in eviction["message"]
    assert eviction["reason"] == "DeactivatedDueToAdmissionCheck"


def activate(wl: Obj, *, active: bool = True) -> Obj:
    return {**wl, "spec": {**wl["spec"], "active": active}}


@pytest.mark.parametrize("stopped", [True, False])
def test_a_workload_that_was_rejected_and_is_activated_again_waits_for_its_checks(
    stopped: bool,
) -> None:
    wl = activate(reserved(check("a", "Rejected")), active=False)
    evicting = next_step(wl, around(queue("a")), NOW).workload
    assert evicting is not None
    if stopped:
        wl = activate(states.release(evicting, NOW))
    else:
        wl = states.release(activate(evicting), NOW)
    for _ in range(3):
        step = next_step(wl, around(queue("a")), NOW)
        wl = step.workload or wl
    assert states.checks_in(wl, "Pending") == ("a",)
    assert states.condition(wl, "Requeued")["reason"] == "Reactivated"
    assert states.is_active(wl)


# ---- laws

CHECKS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from(["Pending", "Ready", "Retry", "Rejected"])
    ),
    max_size=2,
    unique_by=lambda entry: entry[0],
)
MOVES = st.lists(
    st.sampled_from(["reserve", "evict", "release", "deactivate", "activate", "finish"]), max_size=6
)


@given(
    CHECKS,
    MOVES,
    st.booleans(),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
    st.sampled_from(["None", "Hold", "HoldAndDrain"]),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_steps_are_legal_and_come_to_an_end(
    entries: list[tuple[str, str]],
    moves: list[str],
    active: bool,
    required: list[str],
    policy: str,
    has_queue: bool,
) -> None:
    wl = workload(admissionChecks=[check(*entry) for entry in entries])
    for move in moves:
        try:
            if move == "reserve":
                wl = states.reserve(wl, ADMISSION, required, NOW)
            elif move == "evict":
                wl = states.evict(wl, "Preempted", "why", NOW)
            elif move == "release":
                wl = states.release(wl, NOW)
            elif move == "finish":
                wl = states.finish(wl, "Succeeded", "done", NOW)
            else:
                wl = {**wl, "spec": {**wl["spec"], "active": move == "activate"}}
        except states.IllegalTransition:
            continue
    cq = queue(*required, policy=policy) if has_queue else None
    surroundings = WorkloadContext(LOCAL, cq, ACTIVE if active else UNKNOWN, {"a": 60.0, "b": 60.0})
    for _ in range(8):
        step = next_step(wl, surroundings, NOW)
        if step.deactivate:
            wl = {**wl, "spec": {**wl["spec"], "active": False}}
        elif step.workload is not None:
            assert step.workload != wl
            wl = step.workload
        else:
            break
        assert states.violations(wl) == ()
    else:
        pytest.fail("the reconciler does not come to rest")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([], False),
        ([check("a", "Ready")], False),
        ([check("a", "Ready"), check("b")], False),
        ([check("a", "Ready"), check("b", "Ready")], True),
        ([check("a", "Ready"), check("b", "Ready"), check("c")], False),
    ],
)
def test_a_required_check_that_is_not_listed_yet_has_not_passed(
    listed: list[Obj], expected: bool
) -> None:
    assert passed_all(workload(admissionChecks=listed), ("a", "b")) is expected
    assert passed_all(workload(), ())


def test_a_workload_whose_job_was_deleted_without_it_is_finished_and_let_go() -> None:
    wl = workload()
    wl["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "gone"}
    around = WorkloadContext(local_queue=LOCAL, cluster_queue=queue())
    finished = next_step(wl, around, NOW).workload
    assert finished is not None
    assert states.condition(finished, "Finished")["reason"] == "OwnerNotFound"
    assert next_step(finished, around, NOW).drop_finalizer
    del finished["metadata"]["finalizers"]
    assert next_step(finished, around, NOW) == NOTHING
    wl["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "app", "uid": "other"}]
    assert next_step(wl, around, NOW).workload == finished | {"metadata": wl["metadata"]}
    wl["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "gone"}]
    owned = next_step(wl, around, NOW).workload
    assert owned is None or not states.is_finished(owned)


def test_a_workload_that_its_job_takes_back_is_not_finished() -> None:
    wl = workload()
    wl["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "there"}
    around = WorkloadContext(local_queue=LOCAL, cluster_queue=queue(), has_job=True)
    step = next_step(wl, around, NOW)
    assert (step.workload, step.look_again) == (None, NOW + TAKEN_BACK)
