"""Waiting pods that get further selectors: their Workload follows, or loses its reservation."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.meta import is_true
from kueuelib.api.names import ROLE_HASH
from kueuelib.jobs.contract.commands import Change, Create, Emit, PatchStatus
from kueuelib.jobs.pods.marks import gated
from kueuelib.jobs.pods.pod_plan import plan_pod
from kueuelib.jobs.pods.rules import validate_pod
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.reconcile.situation import Situation
from kueuelib.workload import states

Obj = dict[str, Any]
CHECK = {"name": "c", "state": "Pending", "lastTransitionTime": "2024-01-01T00:00:00Z"}
KUEUE = "kueue.x-k8s.io"
ZONE = {"zone": "a"}
FIELDS = {
    "nodeSelector": ZONE,
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
            }
        }
    },
}


def edited(pod: Obj, **fields: Any) -> Obj:
    changed = copy.deepcopy(pod)
    changed["spec"].update(fields or {"nodeSelector": ZONE})
    return changed


def reserved(pods: Any, workload: Obj) -> Obj:
    """With quota, and a check that has not answered."""
    found = pods.admitted({**workload, "status": {"admissionChecks": [CHECK]}})
    assert states.phase_of(found) is states.Phase.RESERVED
    return found


def of_workload(commands: Any) -> list[Obj]:
    return [
        each.new for each in commands if isinstance(each, Change) and each.resource == WORKLOADS
    ]


# ---- a group


@pytest.fixture
def pair(pods: Any) -> list[Obj]:
    return [pods.waiting(name, group="group", total=2) for name in ("a", "b")]


@pytest.mark.parametrize("field", FIELDS)
def test_the_workload_of_a_waiting_group_follows_and_keeps_its_role(
    pods: Any, pair: list[Obj], field: str
) -> None:
    workload = pods.composed(*pair)
    found = [edited(pod, **{field: FIELDS[field]}) for pod in pair]
    commands = pods.plan(*found, workload=workload)
    (new,) = of_workload(commands)
    (before,), (after,) = workload["spec"]["podSets"], new["spec"]["podSets"]
    assert after["template"]["spec"][field] == FIELDS[field]
    assert (after["name"], after["count"]) == (before["name"], before["count"])
    assert "UpdatedWorkload" in [each.reason for each in commands if isinstance(each, Emit)]
    assert pods.plan(*found, workload=new) == ()


def test_a_reservation_for_other_pods_is_taken_back(pods: Any, pair: list[Obj]) -> None:
    workload = reserved(pods, pods.composed(*pair))
    assert pods.plan(*pair, workload=workload) == ()
    (patch,) = pods.plan(*map(edited, pair), workload=workload)
    assert isinstance(patch, PatchStatus)
    assert "admission" not in patch.status
    reserved_now = next(c for c in patch.status["conditions"] if c["type"] == "QuotaReserved")
    assert reserved_now["message"] == "The pods were changed after their quota was reserved"


def of_pods(commands: Any) -> list[Obj]:
    return [each.new for each in commands if isinstance(each, Change) and each.resource == PODS]


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize("made", [True, False], ids=["with a Workload", "before there is one"])
def test_each_pod_of_a_waiting_group_may_become_another_one(
    pods: Any, pair: list[Obj], changed: int, made: bool
) -> None:
    """The edited pod gets the name of its shape first, so that it starts with what it asks for."""
    workload = pods.composed(*pair) if made else None
    pair[changed] = edited(pair[changed])
    (named,) = pods.plan(*pair, workload=workload)
    assert named.new == gated(pair[changed])
    assert not validate_pod(named.new, pair[changed], group_exists=made)
    pair[changed] = named.new
    commands = pods.plan(*pair, workload=workload)
    workload = of_workload(commands)[0] if made else pods.composed(*pair)
    sets = workload["spec"]["podSets"]
    assert {each["name"]: each["count"] for each in sets} == {
        pod["metadata"]["annotations"][f"{KUEUE}/role-hash"]: 1 for pod in pair
    }
    selectors = [each["template"]["spec"].get("nodeSelector") for each in sets]
    assert sorted(selectors, key=str) == [None, ZONE]
    assert pods.plan(*pair, workload=workload) == ()
    started = of_pods(pods.plan(*pair, workload=pods.admitted(workload)))
    assert sorted(pod["metadata"]["name"] for pod in started) == ["a", "b"]


@pytest.mark.parametrize("changed", [0, 1])
def test_a_reservation_is_taken_back_whichever_pod_was_edited(
    pods: Any, pair: list[Obj], changed: int
) -> None:
    workload = reserved(pods, pods.composed(*pair))
    pair[changed] = edited(pair[changed])
    (patch,) = pods.plan(*pair, workload=workload)
    assert "admission" not in patch.status


def test_pods_keep_their_role_while_quota_is_held_for_them(pods: Any, pair: list[Obj]) -> None:
    """They start as what they were admitted."""
    workload = pods.admitted(pods.composed(*pair))
    started = of_pods(pods.plan(pair[0], edited(pair[1]), workload=workload))
    assert [pod["metadata"]["annotations"][ROLE_HASH] for pod in started] == [
        pod["metadata"]["annotations"][ROLE_HASH] for pod in pair
    ]


def test_pods_that_are_not_known_as_a_whole_change_nothing(pods: Any, pair: list[Obj]) -> None:
    """A pod that has run is kept without its affinity."""
    found = [edited(pod, affinity=FIELDS["affinity"]) for pod in pair]
    workload = pods.composed(*found)
    over = [pods.over(name, "Succeeded", group="group", total=2) for name in ("a", "b")]
    for pod, waited in zip(over, pair, strict=True):
        pod["metadata"]["annotations"] = waited["metadata"]["annotations"]
    assert of_workload(pods.plan(*over, workload=workload)) == []


def test_what_is_declared_stays_whatever_its_pods_are_like(pods: Any) -> None:
    template = "{spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}"
    sets = f"[{{name: driver, count: 1}}, {{name: worker, count: 1, template: {template}}}]"
    make = {"group": "group", "total": 2}
    driver = pods.waiting("driver", annotations={f"{KUEUE}/pod-group-sets": sets}, **make)
    worker = pods.waiting("worker", labels={f"{KUEUE}/pod-group-role": "worker"}, **make)
    workload = reserved(pods, pods.composed(driver, worker))
    assert pods.plan(driver, edited(worker), workload=workload) == ()


# ---- a single pod


def plan(pods: Any, pod: Obj, *workloads: Obj) -> tuple[Any, ...]:
    return plan_pod(Situation(PodJob(pod), pods.now, workloads=workloads, flavors=pods.flavors))


@pytest.fixture
def workload(pods: Any) -> Obj:
    (create,) = [each for each in plan(pods, pods.waiting()) if isinstance(each, Create)]
    found = copy.deepcopy(create.obj)
    time = "2024-01-01T00:00:00Z"
    found["metadata"].update(uid="wl", resourceVersion="7", creationTimestamp=time)
    return found


@pytest.mark.parametrize("field", FIELDS)
def test_the_workload_of_a_waiting_pod_follows(pods: Any, workload: Obj, field: str) -> None:
    pod = edited(pods.waiting(), **{field: FIELDS[field]})
    (new,) = of_workload(plan(pods, pod, workload))
    assert new["spec"]["podSets"][0]["template"]["spec"][field] == FIELDS[field]
    assert not is_true(new, "QuotaReserved")
    assert plan(pods, pod, new) == ()


def test_a_reservation_for_another_pod_is_taken_back(pods: Any, workload: Obj) -> None:
    held = reserved(pods, workload)
    assert plan(pods, pods.waiting(), held) == ()
    (patch,) = plan(pods, edited(pods.waiting()), held)
    assert "admission" not in patch.status


def test_gates_in_the_workload_of_another_manager_do_not_count(pods: Any, workload: Obj) -> None:
    pod = pods.waiting()
    workload["spec"]["podSets"][0]["template"] = {"spec": copy.deepcopy(pod["spec"])}
    assert plan(pods, pod, workload) == ()
