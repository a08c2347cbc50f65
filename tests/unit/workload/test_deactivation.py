"""A deactivation that meets an eviction: in any order with the stop of the job, the Workload ends
as if its first eviction had been complete before.
"""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest

from kueuelib.api.meta import Obj, format_time
from kueuelib.scheduler.object_reasons import LocalQueueFacts
from kueuelib.scheduler.quota.queue_spec import ACTIVE, Activity
from kueuelib.workload import states
from kueuelib.workload.life import LifeSettings, PodsReadyPolicy
from kueuelib.workload.next_step import WorkloadContext, next_step
from kueuelib.workload.states import Phase

NOW = 1_700_000_000.0
LATER = NOW + 86_400
STOPPED = Activity(active=False, reason="Stopped", message="stopped")
LIFE = LifeSettings(PodsReadyPolicy())
AROUND = WorkloadContext(
    LocalQueueFacts("main", "cq"),
    {
        "metadata": {"name": "cq"},
        "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}},
    },
    ACTIVE,
    {"a": 60.0},
    life=LIFE,
)
ADMISSION: Obj = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "f"}}],
}


def running() -> Obj:
    wl: Obj = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "wl", "namespace": "ns"},
        "spec": {"queueName": "main"},
        "status": {"admissionChecks": [answer("Ready")]},
    }
    return states.reserve(wl, ADMISSION, ["a"], NOW)


def answer(state: str) -> Obj:
    return {"name": "a", "state": state, "message": "", "lastTransitionTime": format_time(NOW)}


# ---- evictions: how each begins; the queue of a drained one is started again at the end


def by_preemption(wl: Obj) -> Obj:
    return states.preempt(wl, "InClusterQueue", "room for others", NOW)


def by_retry(wl: Obj) -> Obj:
    return settled({**wl, "status": {**wl["status"], "admissionChecks": [answer("Retry")]}})


def by_timeout(wl: Obj) -> Obj:
    step = next_step(wl, AROUND, NOW + 300)
    assert step.workload is not None
    return step.workload


def by_a_stopped_cluster_queue(wl: Obj) -> Obj:
    return settled(wl, stopped_cluster_queue())


def by_a_stopped_local_queue(wl: Obj) -> Obj:
    return settled(wl, stopped_local_queue())


def stopped_cluster_queue() -> WorkloadContext:
    queue: Any = AROUND.cluster_queue
    queue = {**queue, "spec": {**queue["spec"], "stopPolicy": "HoldAndDrain"}}
    return attrs.evolve(AROUND, cluster_queue=queue, activity=STOPPED)


def stopped_local_queue() -> WorkloadContext:
    assert AROUND.local_queue is not None
    local = attrs.evolve(AROUND.local_queue, stop_policy="HoldAndDrain")
    return attrs.evolve(AROUND, local_queue=local)


EVICTIONS = {
    by_preemption: AROUND,
    by_retry: AROUND,
    by_timeout: AROUND,
    by_a_stopped_cluster_queue: stopped_cluster_queue(),
    by_a_stopped_local_queue: stopped_local_queue(),
}
"""With the queues while what follows happens."""


# ---- what follows, in any order


def deactivated(wl: Obj) -> Obj:
    return {**wl, "spec": {**wl["spec"], "active": False}}


def activated(wl: Obj) -> Obj:
    return {**wl, "spec": {**wl["spec"], "active": True}}


def stopped(wl: Obj) -> Obj:
    return states.release(wl, NOW) if states.phase_of(wl) is Phase.EVICTING else wl


ORDERS = [
    order
    for order in itertools.permutations((stopped, deactivated, activated))
    if order.index(deactivated) < order.index(activated)
]


def settled(wl: Obj, around: WorkloadContext = AROUND, now: float = NOW) -> Obj:
    """The workload when its controller has nothing left to do."""
    for _ in range(20):
        step = next_step(wl, around, now)
        if step.workload is None:
            assert not step.deactivate
            return wl
        assert states.violations(step.workload) == ()
        wl = step.workload
    raise AssertionError("it never comes to rest")


def end(wl: Obj, around: WorkloadContext, *acts: Any) -> Obj:
    """The state of a workload after some acts, its controller faster than each next one, and after
    its queues have started and all delays are over; without the verdict about quota, which the
    next cycle renews.
    """
    for act in acts:
        wl = settled(act(wl), around)
    wl = settled(settled(wl, around), now=LATER)
    conditions = {
        one["type"]: (one["status"], one["reason"])
        for one in wl["status"]["conditions"]
        if one["type"] != "QuotaReserved"
    }
    checks = [(one["name"], one["state"]) for one in states.check_states(wl)]
    rest = {
        key: value
        for key, value in wl["status"].items()
        if key not in ("conditions", "admissionChecks")
    }
    return {"conditions": conditions, "checks": checks, **rest}


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(a.__name__ for a in order))
@pytest.mark.parametrize("evicted", EVICTIONS, ids=lambda each: each.__name__)
def test_an_activated_workload_ends_as_if_its_eviction_had_been_complete_before(
    evicted: Any, order: Any
) -> None:
    around = EVICTIONS[evicted]
    complete = end(evicted(running()), around, stopped)
    assert complete["conditions"]["Requeued"][0] == "True"
    assert end(evicted(running()), around, *order) == complete


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(a.__name__ for a in order))
def test_a_deactivation_that_comes_first_is_the_eviction(order: Any) -> None:
    wl = settled(deactivated(running()))
    ends = end(by_preemption(wl), AROUND, *order)
    assert ends["conditions"]["Requeued"] == ("True", "Reactivated")
    assert ends["conditions"]["Evicted"] == ("True", "Deactivated")


@pytest.mark.parametrize("reason", ["Preempted", "AdmissionCheck"])
def test_a_workload_that_another_manager_kept_out_is_queued_again(reason: str) -> None:
    wl = states.release(states.evict(running(), reason, "why", NOW), NOW)
    requeued = next(one for one in wl["status"]["conditions"] if one["type"] == "Requeued")
    requeued["status"] = "False"
    assert end(wl, AROUND)["conditions"]["Requeued"] == ("True", reason)
