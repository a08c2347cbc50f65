"""What time does to a Workload, step by step."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.meta import Obj, format_time, parse_time
from kueuelib.scheduler.object_reasons import LocalQueueFacts
from kueuelib.scheduler.quota.queue_spec import ACTIVE
from kueuelib.workload import states
from kueuelib.workload.life import LifeSettings, PodsReadyPolicy, pods_are_ready
from kueuelib.workload.next_step import NOTHING, Step, WorkloadContext, next_step
from kueuelib.workload.states import Phase, status_writes

NOW = 1_700_000_000.0
POLICY = PodsReadyPolicy(timeout=300, backoff_base=60, backoff_max=200, limit=2)
ADMISSION: Obj = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "a"}}],
}
LOCAL = LocalQueueFacts("main", "cq")
QUEUE: Obj = {"metadata": {"name": "cq"}, "spec": {}}


def pending(version: str = "v1beta2", **spec: Any) -> Obj:
    meta = {"name": "wl", "namespace": "ns", "uid": "u1", "resourceVersion": "7"}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": meta,
        "spec": {"queueName": "main", "active": True, **spec},
        "status": {},
    }


def admitted(now: float = NOW, wl: Obj | None = None, **spec: Any) -> Obj:
    return states.reserve(pending(**spec) if wl is None else wl, ADMISSION, [], now)


def with_condition(wl: Obj, type: str, status: str, reason: str, now: float) -> Obj:
    new = {"type": type, "status": status, "reason": reason, "message": ""}
    new["lastTransitionTime"] = format_time(now)
    others = [entry for entry in wl["status"].get("conditions", []) if entry["type"] != type]
    return {**wl, "status": {**wl["status"], "conditions": [*others, new]}}


def step(wl: Obj, now: float, policy: PodsReadyPolicy | None = POLICY, **fields: Any) -> Step:
    life = LifeSettings(policy, **fields)
    return next_step(wl, WorkloadContext(LOCAL, QUEUE, ACTIVE, life=life), now)


def evicted(wl: Obj, now: float) -> Obj:
    """Takes the step that evicts, and lets the job stop at once."""
    found = step(wl, now).workload
    assert found is not None
    assert states.phase_of(found) is Phase.EVICTING
    return states.release(found, now)


def test_pods_have_until_the_timeout_and_the_plan_asks_again_then() -> None:
    wl = admitted()
    assert step(wl, NOW + 299) == Step(look_again=NOW + 300)
    found = step(wl, NOW + 300)
    assert found.workload is not None
    eviction = states.condition(found.workload, "Evicted")
    assert (eviction["status"], eviction["reason"]) == ("True", "PodsReadyTimeout")
    assert "ns/wl" in eviction["message"]
    assert found.notes[0].reason == "EvictedDueToPodsReadyTimeout"
    state = found.workload["status"]["requeueState"]
    assert state == {"count": 1, "requeueAt": format_time(NOW + 360)}


def test_the_clock_starts_again_when_pods_readiness_is_told_after_the_admission() -> None:
    wl = with_condition(admitted(), "PodsReady", "False", "WaitForStart", NOW + 100)
    assert step(wl, NOW + 350) == Step(look_again=NOW + 400)


def test_ready_pods_have_no_deadline() -> None:
    wl = with_condition(admitted(), "PodsReady", "True", "Started", NOW + 10)
    assert pods_are_ready(wl)
    assert step(wl, NOW + 10_000) is NOTHING


def test_readiness_of_an_earlier_turn_does_not_count() -> None:
    wl = with_condition(admitted(), "PodsReady", "True", "Started", NOW - 10)
    assert not pods_are_ready(wl)
    assert step(wl, NOW + 301).workload is not None


@pytest.mark.parametrize(("recovery", "deadline"), [(None, None), (30.0, NOW + 130)])
def test_recovery_has_a_timeout_of_its_own(recovery: float | None, deadline: float | None) -> None:
    wl = with_condition(admitted(), "PodsReady", "False", "WaitForRecovery", NOW + 100)
    policy = attrs.evolve(POLICY, recovery_timeout=recovery)
    assert step(wl, NOW + 129, policy).look_again == deadline
    assert (step(wl, NOW + 131, policy).workload is not None) == (recovery is not None)


def test_nothing_happens_when_pods_are_not_waited_for() -> None:
    assert step(admitted(), NOW + 10_000, None) is NOTHING


@pytest.mark.parametrize(("count", "pause"), [(1, 60), (2, 120), (3, 200), (4, 200), (5000, 200)])
def test_pauses_double_up_to_a_maximum(count: int, pause: float) -> None:
    assert POLICY.pause(count) == pause


def test_a_workload_waits_comes_back_and_counts_on() -> None:
    wl = evicted(admitted(), NOW + 300)
    requeued = states.condition(wl, "Requeued")
    assert (requeued["status"], requeued["reason"]) == ("False", "PodsReadyTimeout")
    assert step(wl, NOW + 359).look_again == NOW + 360
    back = step(wl, NOW + 360).workload
    assert back is not None
    assert states.condition(back, "Requeued")["reason"] == "BackoffFinished"
    assert back["status"]["requeueState"] == {"count": 1}
    again = evicted(admitted(NOW + 400, back), NOW + 700)
    assert again["status"]["requeueState"]["count"] == 2
    assert parse_time(again["status"]["requeueState"]["requeueAt"]) == NOW + 820


def test_beyond_the_limit_a_workload_is_deactivated_by_name_and_starts_afresh() -> None:
    wl = admitted()
    wl["status"]["requeueState"] = {"count": 2}
    announced = step(wl, NOW + 300).workload
    assert announced is not None
    assert states.phase_of(announced) is Phase.ADMITTED
    found = step(announced, NOW + 301)
    assert found.deactivate
    assert found.notes[0].reason == "RequeuingLimitExceeded"
    inactive = {**announced, "spec": {**announced["spec"], "active": False}}
    gone = evicted(inactive, NOW + 302)
    reason = states.condition(gone, "Evicted")["reason"]
    assert reason == "DeactivatedDueToRequeuingLimitExceeded"
    assert not states.condition(gone, "DeactivationTarget")
    assert step(gone, NOW + 303).workload is None
    active = {**gone, "spec": {**gone["spec"], "active": True}}
    back = step(active, NOW + 400).workload
    assert back is not None
    assert states.condition(back, "Requeued")["reason"] == "Reactivated"
    assert "requeueState" not in back["status"]
    fresh = admitted(NOW + 401, back)
    assert step(fresh, NOW + 402) == Step(look_again=NOW + 701)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_time_of_all_turns_is_limited_together(version: str) -> None:
    field = {
        "v1beta1": "accumulatedPastExexcutionTimeSeconds",
        "v1beta2": "accumulatedPastExecutionTimeSeconds",
    }[version]
    wl = admitted(wl=pending(version, maximumExecutionTimeSeconds=100))
    assert step(wl, NOW + 60, None) == Step(look_again=NOW + 100)
    preempted = states.release(states.evict(wl, "Preempted", "", NOW + 60), NOW + 70)
    assert preempted["status"][field] == 70
    (write,) = status_writes(wl, preempted)
    assert write.body["status"][field] == 70
    again = admitted(NOW + 200, preempted)
    assert step(again, NOW + 220, None).look_again == NOW + 230
    announced = step(again, NOW + 230, None).workload
    assert announced is not None
    target = states.condition(announced, "DeactivationTarget")
    assert target["reason"] == "MaximumExecutionTimeExceeded"
    inactive = {**announced, "spec": {**announced["spec"], "active": False}}
    gone = evicted(inactive, NOW + 231)
    active = {**gone, "spec": {**gone["spec"], "active": True}}
    back = step(active, NOW + 300, None).workload
    assert back is not None
    assert field not in back["status"]


def test_the_time_of_turns_is_counted_without_a_limit() -> None:
    wl = states.release(states.evict(admitted(), "Preempted", "", NOW + 60), NOW + 70)
    wl = states.release(
        states.evict(admitted(NOW + 100, wl), "Preempted", "", NOW + 103), NOW + 104
    )
    assert states.past_seconds(wl) == 74


def test_the_announcement_is_stored_with_the_admission() -> None:
    wl = admitted(maximumExecutionTimeSeconds=1)
    announced = step(wl, NOW + 1, None).workload
    assert announced is not None
    (write,) = status_writes(wl, announced)
    types = {entry["type"] for entry in write.body["status"]["conditions"]}
    assert types == {"QuotaReserved", "Admitted", "DeactivationTarget"}


def test_finished_workloads_are_kept_for_a_while_and_lose_their_finalizer_first() -> None:
    wl = states.finish(admitted(), "Succeeded", "", NOW)
    assert step(wl, NOW + 10_000, None) == Step()
    assert step(wl, NOW + 99, None, delete_finished_after=100.0) == Step(look_again=NOW + 100)
    found = step(wl, NOW + 100, None, delete_finished_after=100.0)
    assert found.delete
    kept = {**wl, "metadata": {**wl["metadata"], "finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    first = step(kept, NOW + 100, None, delete_finished_after=100.0)
    assert first.drop_finalizer
    assert not first.delete
