"""Waiting pods that get further selectors: their Workload follows, or loses its reservation."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.meta import is_true
from kueuelib.api.names import POD_SET_LABEL, ROLE_HASH
from kueuelib.jobs.contract.commands import (
    Change,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
)
from kueuelib.jobs.pods.marks import gated
from kueuelib.jobs.pods.pod_plan import plan_pod
from kueuelib.jobs.pods.reading import is_gated
from kueuelib.jobs.pods.shapes import shape_of
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.pods.webhook import validate_pod
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.workload import states

Obj = dict[str, Any]
CHECK = {"name": "c", "state": "Pending", "lastTransitionTime": "2024-01-01T00:00:00Z"}
KUEUE = "kueue.x-k8s.io"
ZONE = {"zone": "a"}
SPOT = [{"key": "spot", "operator": "Exists"}]
DEFAULTS = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
FIELDS = {
    "nodeSelector": ZONE,
    "tolerations": SPOT,
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


def of_pods(commands: Any) -> list[Obj]:
    return [each.new for each in commands if isinstance(each, Change) and each.resource == PODS]


def counts(workload: Obj) -> dict[str, int]:
    return {each["name"]: each["count"] for each in workload["spec"]["podSets"]}


def followed(pods: Any, *found: Obj, workload: Obj) -> Obj:
    """The Workload after the only step that edited pods need."""
    commands = pods.plan(*found, workload=workload)
    assert of_pods(commands) == []
    (new,) = of_workload(commands)
    assert "UpdatedWorkload" in [each.reason for each in commands if isinstance(each, Emit)]
    assert new["metadata"]["uid"] == workload["metadata"]["uid"]
    assert pods.plan(*found, workload=new) == ()
    return new


def started(pods: Any, *found: Obj, workload: Obj) -> list[Obj]:
    """The pods after their start, on a node."""
    commands = pods.plan(*found, workload=workload)
    ready = [pod for pod in of_pods(commands) if not is_gated(pod)]
    for pod in ready:
        (old,) = [each for each in found if each["metadata"]["uid"] == pod["metadata"]["uid"]]
        assert not validate_pod(pod, old, group_exists=True)
        pod["spec"]["nodeName"] = "node"
        pod["status"] = {"phase": "Running"}
    return ready


def replaces(pods: Any, new: Obj, *found: Obj, workload: Obj) -> Obj:
    """The new pod, started in the place of the one that failed; nothing is deleted."""
    failed, *others = found
    failed = {**failed, "status": {"phase": "Failed"}}
    commands = pods.plan(failed, *others, new, workload=workload)
    assert not [each for each in commands if isinstance(each, Delete)]
    dropped = [each.obj["metadata"]["name"] for each in commands if isinstance(each, DropFinalizer)]
    assert dropped == [failed["metadata"]["name"]]
    (owned,) = of_workload(commands)
    assert new["metadata"]["uid"] in [ref["uid"] for ref in owned["metadata"]["ownerReferences"]]
    (begun,) = started(pods, failed, *others, new, workload=workload)
    assert begun["metadata"]["name"] == new["metadata"]["name"]
    return begun


@pytest.mark.parametrize("field", FIELDS)
def test_the_workload_of_a_waiting_group_follows_with_the_name_of_the_new_shape(
    pods: Any, pair: list[Obj], field: str
) -> None:
    workload = pods.composed(*pair)
    found = [edited(pod, **{field: FIELDS[field]}) for pod in pair]
    new = followed(pods, *found, workload=workload)
    (entry,) = new["spec"]["podSets"]
    assert entry["template"]["spec"][field] == FIELDS[field]
    assert counts(new) == {shape_of(gated(found[0])): 2}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("order", ["at once", "one after another"])
def test_a_replacement_of_an_edited_pod_has_its_place(pods: Any, field: str, order: str) -> None:
    make = {"group": "group", "total": 3}
    found = [pods.waiting(name, **make) for name in ("a", "b", "c")]
    workload = pods.composed(*found)
    for number, pod in enumerate(found):
        found[number] = edited(pod, **{field: FIELDS[field]})
        if order == "one after another":
            workload = followed(pods, *found, workload=workload)
    if order == "at once":
        workload = followed(pods, *found, workload=workload)
    new = pods.waiting("new", **make, **{field: FIELDS[field]})
    assert counts(workload) == {shape_of(new): 3}
    workload = pods.admitted(workload)
    running = [copy.deepcopy(pod) for pod in started(pods, *found, workload=workload)]
    assert len(running) == 3
    assert all(pod["metadata"]["annotations"][ROLE_HASH] == shape_of(new) for pod in running)
    begun = replaces(pods, new, *running, workload=workload)
    assert begun["metadata"]["labels"][POD_SET_LABEL] == shape_of(new)


def test_replacements_of_pods_of_three_shapes_have_their_places(pods: Any) -> None:
    make = {"group": "group", "total": 3}
    found = [pods.waiting(name, **make) for name in ("a", "b", "c")]
    workload = pods.composed(*found)
    specs = [{}, {"nodeSelector": ZONE}, {"nodeSelector": ZONE, "tolerations": SPOT}]
    found[1] = edited(found[1])
    workload = followed(pods, *found, workload=workload)
    found[2] = edited(found[2])
    workload = followed(pods, *found, workload=workload)
    assert sorted(counts(workload).values()) == [1, 2]
    found[2] = edited(found[2], tolerations=SPOT)
    workload = pods.admitted(followed(pods, *found, workload=workload))
    assert sorted(counts(workload).values()) == [1, 1, 1]
    running = started(pods, *found, workload=workload)
    running.sort(key=lambda pod: pod["metadata"]["name"])
    assert len(running) == 3
    for number, spec in enumerate(specs):
        new = pods.waiting("new", **make, **spec)
        others = [pod for pod in running if pod is not running[number]]
        begun = replaces(pods, new, running[number], *others, workload=workload)
        assert begun["spec"]["nodeSelector"] == {"pool": "spot", **spec.get("nodeSelector", {})}


def test_a_reservation_for_other_pods_is_taken_back(pods: Any, pair: list[Obj]) -> None:
    workload = reserved(pods, pods.composed(*pair))
    assert pods.plan(*pair, workload=workload) == ()
    (patch,) = pods.plan(*map(edited, pair), workload=workload)
    assert isinstance(patch, PatchStatus)
    assert "admission" not in patch.status
    reserved_now = next(c for c in patch.status["conditions"] if c["type"] == "QuotaReserved")
    assert reserved_now["message"] == "The pods were changed after their quota was reserved"


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize("made", [True, False], ids=["with a Workload", "before there is one"])
def test_each_pod_of_a_waiting_group_may_become_another_one(
    pods: Any, pair: list[Obj], changed: int, made: bool
) -> None:
    workload = pods.composed(*pair)
    pair[changed] = edited(pair[changed])
    workload = followed(pods, *pair, workload=workload) if made else pods.composed(*pair)
    assert counts(workload) == {shape_of(pod): 1 for pod in pair}
    sets = workload["spec"]["podSets"]
    selectors = [each["template"]["spec"].get("nodeSelector") for each in sets]
    assert sorted(selectors, key=str) == [None, ZONE]
    begun = started(pods, *pair, workload=pods.admitted(workload))
    assert sorted(pod["metadata"]["name"] for pod in begun) == ["a", "b"]


@pytest.mark.parametrize("changed", [0, 1])
def test_a_reservation_is_taken_back_whichever_pod_was_edited(
    pods: Any, pair: list[Obj], changed: int
) -> None:
    workload = reserved(pods, pods.composed(*pair))
    pair[changed] = edited(pair[changed])
    (patch,) = pods.plan(*pair, workload=workload)
    assert "admission" not in patch.status


def test_an_admission_is_taken_back_if_no_pod_has_begun(pods: Any, pair: list[Obj]) -> None:
    workload = pods.admitted(pods.composed(*pair))
    assert states.phase_of(workload) is states.Phase.ADMITTED
    (patch,) = pods.plan(pair[0], edited(pair[1]), workload=workload)
    assert isinstance(patch, PatchStatus)
    assert "admission" not in patch.status


@pytest.mark.parametrize("begun_first", [True, False])
def test_the_order_of_tolerations_does_not_tell_shapes_apart(pods: Any, begun_first: bool) -> None:
    """The API server adds its own at the end of those of a new pod."""
    make = {"group": "group", "total": 2}
    pair = [pods.waiting(name, tolerations=DEFAULTS, **make) for name in ("a", "b")]
    workload, running = pods.composed(*pair), []
    if begun_first:
        workload = pods.admitted(workload)
        running = started(pods, pair[0], workload=workload)
    pair = [edited(pod, tolerations=[*DEFAULTS, *SPOT]) for pod in pair]
    if not begun_first:
        workload = pods.admitted(followed(pods, *pair, workload=workload))
        running = started(pods, pair[0], workload=workload)
    running += started(pods, *running, pair[1], workload=workload)
    new = pods.waiting("new", tolerations=[*SPOT, *DEFAULTS], **make)
    replaces(pods, new, *reversed(running), workload=workload)


def test_a_pod_that_is_edited_after_others_began_starts_in_its_place(
    pods: Any, pair: list[Obj]
) -> None:
    """Its replacement, which is like it, starts there as well."""
    workload = pods.admitted(pods.composed(*pair))
    (role,) = counts(workload)
    (first,) = started(pods, pair[0], workload=workload)
    (second,) = started(pods, first, edited(pair[1]), workload=workload)
    assert second["metadata"]["labels"][POD_SET_LABEL] == role
    assert second["spec"]["nodeSelector"] == {"pool": "spot", **ZONE}
    new = pods.waiting("new", group="group", total=2, nodeSelector=ZONE)
    begun = replaces(pods, new, second, first, workload=workload)
    assert begun["metadata"]["labels"][POD_SET_LABEL] == role


def test_a_pod_that_is_edited_twice_starts_in_the_place_that_is_left(
    pods: Any, pair: list[Obj]
) -> None:
    """The Workload has followed the first edit only, and has none of the pod's first shape."""
    found = [edited(pod) for pod in pair]
    workload = pods.admitted(followed(pods, *found, workload=pods.composed(*pair)))
    (role,) = counts(workload)
    (first,) = started(pods, found[0], workload=workload)
    again = edited(found[1], tolerations=SPOT)
    (second,) = started(pods, first, again, workload=workload)
    assert second["metadata"]["labels"][POD_SET_LABEL] == role
    assert second["metadata"]["annotations"][ROLE_HASH] == shape_of(again)


def test_no_pod_is_one_too_many_because_it_was_edited(pods: Any) -> None:
    """Its name is that of a pod set that has as many pods as it counts."""
    make = {"group": "group", "total": 3}
    found = [pods.waiting(name, **make) for name in ("a", "b", "c")]
    changed = [edited(found[0]), *found[1:]]
    workload = reserved(pods, followed(pods, *changed, workload=pods.composed(*found)))
    again = [edited(changed[0], tolerations=SPOT), *found[1:]]
    (patch,) = pods.plan(*again, workload=workload)
    assert isinstance(patch, PatchStatus)
    assert "admission" not in patch.status


@pytest.mark.parametrize("beside", [True, False], ids=["beside it", "in its place"])
def test_a_new_pod_like_an_edited_one_is_not_deleted_before_the_workload_follows(
    pods: Any, pair: list[Obj], beside: bool
) -> None:
    workload = reserved(pods, pods.composed(*pair))
    new = pods.waiting("new", group="group", total=2, nodeSelector=ZONE, age=-5)
    found = [edited(pair[0])] if beside else [pods.deleted(edited(pair[0])), pair[1]]
    commands = pods.plan(*found, new, workload=workload)
    assert not [each for each in commands if isinstance(each, Delete)]
    (patch,) = [each for each in commands if isinstance(each, PatchStatus)]
    assert "admission" not in patch.status
    other = pods.waiting("new", group="group", total=2, nodeSelector={"zone": "b"}, age=-5)
    commands = pods.plan(edited(pair[0]), other, workload=workload)
    (gone,) = [each for each in commands if isinstance(each, Delete)]
    assert gone.obj["metadata"]["name"] == "new"


def test_an_edited_pod_of_a_fast_group_leaves_the_others_their_places(pods: Any) -> None:
    """After an eviction its pods come back one by one."""
    notes = {f"{KUEUE}/pod-group-fast-admission": "true"}
    make = {"group": "group", "total": 3, "annotations": notes}
    found = [pods.waiting(name, cpu=cpu, **make) for name, cpu in zip("abc", "112", strict=True)]
    workload = pods.composed(found[0])
    workload = followed(pods, *found, workload=workload)
    back = edited(pods.waiting("back", **make))
    (new,) = of_workload(pods.plan(back, workload=workload))
    assert counts(new) == {shape_of(each): 1 for each in (back, found[0], found[2])}


def test_a_size_that_disagrees_costs_no_edited_pod_its_place(pods: Any, pair: list[Obj]) -> None:
    workload = pods.composed(*pair)
    larger = pods.waiting("larger", group="group", total=3, age=-5)
    commands = pods.plan(edited(pair[0]), pair[1], larger, workload=workload)
    (gone,) = [each for each in commands if isinstance(each, Delete)]
    assert gone.obj["metadata"]["name"] == "larger"
    (patch,) = [each for each in commands if isinstance(each, PatchStatus)]
    (requeued,) = [each for each in patch.status["conditions"] if each["type"] == "Requeued"]
    assert requeued["message"].startswith("Pod larger: The group has 3 pods according to this pod")
    commands = pods.plan(*pair, larger, workload=workload)
    assert not [each for each in commands if isinstance(each, PatchStatus)]


# ---- names that another manager gave


@pytest.fixture
def foreign(pods: Any, pair: list[Obj]) -> Obj:
    """A Workload whose pod set has another name than the shape of its pods, and its pods."""
    workload = pods.composed(*pair)
    workload["spec"]["podSets"][0]["name"] = "0123abcd"
    for pod in pair:
        pod["metadata"]["annotations"][ROLE_HASH] = "0123abcd"
    return workload


def test_the_names_of_another_manager_stay(pods: Any, pair: list[Obj], foreign: Obj) -> None:
    assert pods.plan(*pair, workload=foreign) == ()
    assert pods.plan(*pair, workload=reserved(pods, foreign)) == ()
    workload = pods.admitted(foreign)
    running = started(pods, *pair, workload=workload)
    assert [pod["metadata"]["annotations"][ROLE_HASH] for pod in running] == ["0123abcd"] * 2
    new = pods.waiting("new", group="group", total=2)
    for pod in running:  # as a manager left them that does not know the label
        del pod["metadata"]["labels"][POD_SET_LABEL]
    begun = replaces(pods, new, *running, workload=workload)
    assert begun["metadata"]["labels"][POD_SET_LABEL] == "0123abcd"


def test_a_pod_that_was_edited_under_another_manager_gets_its_own_name(
    pods: Any, pair: list[Obj], foreign: Obj
) -> None:
    pair[1] = edited(pair[1])
    assert counts(followed(pods, *pair, workload=foreign)) == {"0123abcd": 1, shape_of(pair[1]): 1}


def test_pods_that_are_not_known_as_a_whole_change_nothing(pods: Any, pair: list[Obj]) -> None:
    """A pod that has run is kept without its affinity."""
    found = [edited(pod, affinity=FIELDS["affinity"]) for pod in pair]
    workload = pods.composed(*found)
    over = [pods.over(name, "Succeeded", group="group", total=2) for name in ("a", "b")]
    for pod, waited in zip(over, found, strict=True):
        pod["metadata"]["annotations"] = gated(waited)["metadata"]["annotations"]
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
    return plan_pod(JobSnapshot(PodJob(pod), pods.now, workloads=workloads, flavors=pods.flavors))


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
