"""One pod, one Workload (KEP-976 story 1)."""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import labels_of
from kueuelib.api.names import (
    CLUSTER_QUEUE_LABEL,
    LOCAL_QUEUE_LABEL,
    POD_SET_LABEL,
    WORKLOAD_ANNOTATION,
)
from kueuelib.jobs.contract.commands import (
    Change,
    Count,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
)
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.contract.settings import JobSettings, QuotaReleaseStrategy
from kueuelib.jobs.lookups.owners import Ancestor
from kueuelib.jobs.pods.marks import ungated
from kueuelib.jobs.pods.pod_plan import plan_pod
from kueuelib.jobs.pods.reading import gates_of, trim, trim_missed
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.workload import states
from kueuelib.workload.phases import CHECK_FAILED, PREEMPTED

KUEUE = "kueue.x-k8s.io"
ORIGIN = {POD_SET_LABEL: "main", CLUSTER_QUEUE_LABEL: "cq", LOCAL_QUEUE_LABEL: "main"}


def plan(pods, pod, *workloads, **fields):
    job = PodJob(pod, workloads[0] if workloads else None)
    found = JobSnapshot(job, pods.now, workloads=workloads, flavors=pods.flavors, **fields)
    return plan_pod(found)


@pytest.fixture
def workload(pods):
    create, _ = plan(pods, pods.waiting())
    found = copy.deepcopy(create.obj)
    found["metadata"].update(
        uid="wl", resourceVersion="5", creationTimestamp="2024-01-01T00:00:00Z"
    )
    return found


def of(kind, commands):
    return [command for command in commands if isinstance(command, kind)]


def conditions(patches):
    """What status patches say, by type."""
    return {one["type"]: one for each in patches for one in each.status.get("conditions", ())}


def test_a_waiting_pod_gets_a_workload(pods):
    create, event = plan(pods, pods.waiting(schedulingGates=[{"name": "other"}]))
    (owner,) = create.obj["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "uid-pod", True)
    (pod_set,) = create.obj["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    assert "schedulingGates" not in pod_set["template"]["spec"]
    assert event.reason == "CreatedWorkload"


def test_admission_takes_our_gate_only_and_is_counted(pods, workload):
    pod = pods.waiting(schedulingGates=[{"name": "other"}])
    change, count, event = plan(pods, pod, pods.admitted(workload))
    assert gates_of(change.new) == ("other",)
    assert change.new["spec"]["nodeSelector"] == {"pool": "spot"}
    assert {each: labels_of(change.new)[each] for each in ORIGIN} == ORIGIN
    assert (
        change.new["metadata"]["annotations"][WORKLOAD_ANNOTATION] == workload["metadata"]["name"]
    )
    assert count == Count("ungated", ("cq", "false"), 0.0)
    assert event.reason == "Started"
    assert plan(pods, change.new, pods.admitted(workload)) == ()


@pytest.mark.parametrize(("phase", "reason"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
def test_the_end_of_the_pod_is_the_end_of_the_workload(pods, workload, phase, reason):
    commands = plan(pods, pods.over(phase=phase), pods.admitted(workload))
    (finish,) = of(PatchStatus, commands)
    assert finish.status["conditions"][0]["reason"] == reason
    assert [c.resource.kind for c in of(DropFinalizer, commands)] == ["Pod", "Workload"]


def test_eviction_deletes_the_pod_and_says_why_first(pods, workload):
    evicted = pods.evicted(pods.admitted(workload))
    target, delete, event = plan(pods, pods.running(), evicted)
    condition = target.status["conditions"][0]
    assert condition["reason"] == "WorkloadEvictedDueToPreempted"
    assert condition["message"] == event.message == "room for others"
    assert (delete.resource, event.reason) == (PODS, "Stopped")
    told = pods.running()
    told["status"]["conditions"].append(condition)
    assert [type(c) for c in plan(pods, told, evicted)] == [Delete, Emit]


def test_a_leaving_pod_is_let_go_and_its_quota_with_it(pods, workload):
    evicted = pods.evicted(pods.admitted(workload))
    *releases, drop = plan(pods, pods.deleted(pods.running()), evicted)
    assert (drop.resource, drop.finalizer) == (PODS, f"{KUEUE}/managed")
    told = conditions(releases)
    assert told["QuotaReserved"]["status"] == "False"
    assert (told["Requeued"]["status"], told["Requeued"]["reason"]) == (
        "False",
        "WaitingForReplacementPods",
    ), "it never runs again"


@pytest.mark.parametrize("cause", [PREEMPTED, CHECK_FAILED])
@pytest.mark.parametrize("checks", [("pending",), ()], ids=["reserved", "admitted"])
def test_a_waiting_pod_that_loses_its_quota_is_queued_again(pods, workload, checks, cause):
    holding = pods.admitted(workload, checks)
    assert states.is_admitted(holding) is not bool(checks)
    evicted = states.evict(holding, cause, "room for others", pods.now)
    told = conditions(plan(pods, pods.waiting(), evicted))
    assert told["QuotaReserved"]["status"] == "False"
    assert (told["Requeued"]["status"], told["Requeued"]["reason"]) == ("True", cause)


def test_a_waiting_pod_whose_workload_was_held_back_is_queued_again(pods, workload):
    free = states.release(pods.evicted(pods.admitted(workload)), pods.now)
    held = states.hold_back(free, "The pod is being deleted", pods.now)
    told = conditions(plan(pods, pods.waiting(), held))
    assert told["Requeued"]["status"] == "True"
    assert plan(pods, pods.waiting(), states.requeue(held, pods.now)) == ()


def test_a_leaving_pod_whose_workload_is_deactivated_is_not_queued_again(pods, workload):
    evicted = pods.evicted(pods.admitted(workload))
    evicted = {**evicted, "spec": {**evicted["spec"], "active": False}}
    *releases, _ = plan(pods, pods.deleted(pods.running()), evicted)
    assert conditions(releases)["Requeued"]["reason"] == "WaitingForReplacementPods"


def test_a_leaving_pod_keeps_its_quota_until_it_ends_if_that_is_the_strategy(pods, workload):
    evicted = pods.evicted(pods.admitted(workload))
    late = JobSettings(quota_release=QuotaReleaseStrategy.ON_TERMINAL)
    (drop,) = plan(pods, pods.deleted(pods.running()), evicted, settings=late)
    assert (drop.resource, drop.finalizer) == (PODS, f"{KUEUE}/managed")


def test_a_pod_that_its_user_deletes_keeps_its_quota_until_it_ends(pods, workload):
    (drop,) = plan(pods, pods.deleted(pods.running()), pods.admitted(workload))
    assert (drop.resource, drop.finalizer) == (PODS, f"{KUEUE}/managed")


def test_a_pod_that_a_foreign_finalizer_keeps_does_not_keep_its_quota(pods, workload):
    pod = pods.deleted(pods.over(meta={"finalizers": ["other/one"]}))
    finish, *drops = plan(pods, pod, pods.evicted(pods.admitted(workload)))
    assert finish.status["conditions"][0]["type"] == "Finished"
    assert [c.resource.kind for c in drops] == ["Workload", "Pod"]


def test_a_deleted_waiting_pod_goes_at_once(pods, workload):
    commands = plan(pods, pods.deleted(pods.waiting()), workload)
    assert [c.resource.kind for c in commands] == ["Workload", "Pod"]


def test_a_deleted_workload_takes_the_pod_along(pods, workload):
    going = {**workload, "metadata": {**workload["metadata"], "deletionTimestamp": "2024-01-01"}}
    assert [type(c) for c in plan(pods, pods.waiting(), going)] == [Delete, DropFinalizer, Emit]
    running = plan(pods, pods.running(), going)
    assert [type(c) for c in running] == [PatchStatus, Delete, Emit]


def test_a_pod_that_runs_without_workload_is_stopped(pods):
    assert [type(c) for c in plan(pods, pods.running())] == [PatchStatus, Delete, Emit]


def test_a_running_pod_is_not_measured_again(pods, workload):
    pod = pods.running()
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "7"}}
    assert plan(pods, pod, pods.admitted(workload)) == ()
    waiting = pods.waiting(cpu="7")
    (change, event) = plan(pods, waiting, workload)
    assert change.new["spec"]["podSets"][0]["template"]["spec"]["containers"] != []
    assert event.reason == "UpdatedWorkload"


def test_a_pod_whose_owner_is_queued_is_left_alone(pods):
    assert plan(pods, pods.waiting(), ancestor=Ancestor("Job ns/j", admitted=False)) == ()
    assert plan(pods, pods.running(), ancestor=Ancestor("Job ns/j", admitted=False)) == ()


def test_a_pod_without_our_label_is_left_alone(pods):
    assert plan(pods, pods.raw()) == ()


def test_a_pod_that_lost_its_finalizer_gets_it_back(pods):
    pod = pods.waiting()
    pod["metadata"]["finalizers"] = []
    change, count, *_ = plan(pods, pod)
    assert change.new["metadata"]["finalizers"] == [f"{KUEUE}/managed"]
    assert count == Count("missed", ("Pod", "repaired"))


def test_an_unqueued_pod_that_is_over_is_let_go(pods):
    (drop,) = plan(pods, pods.over(queue=None))
    assert drop.resource == PODS


def test_the_queue_of_a_waiting_pod_moves_its_workload(pods, workload):
    (change,) = plan(pods, pods.waiting(queue="other"), workload)
    assert change.new["spec"]["queueName"] == "other"


def test_a_workload_follows_no_flavor_that_changed_while_the_pod_runs(pods, workload):
    admitted = pods.admitted(workload)
    flavors = {"spot": {"spec": {"tolerations": [{"key": "new", "operator": "Exists"}]}}}
    job = PodJob(pods.running(), admitted)
    found = JobSnapshot(job, pods.now, workloads=(admitted,), flavors=flavors)
    assert plan_pod(found) == ()
    assert states.is_admitted(admitted)


# ---- what is remembered


def test_a_waiting_pod_is_remembered_whole_and_a_running_one_is_not(pods):
    more = {"volumes": [{"name": "v"}], "affinity": {"nodeAffinity": {}}}
    waiting = pods.waiting(meta={"managedFields": [1]}, **more)
    running = pods.running(**more)
    for pod in (waiting, running):
        pod["spec"]["containers"][0]["env"] = [{"name": "A", "value": "x" * 1000}]
        pod["status"]["containerStatuses"] = [{"name": "c"}]
    kept = trim(copy.deepcopy(waiting))
    assert kept["spec"] == waiting["spec"]
    assert "managedFields" not in kept["metadata"]
    small = trim(copy.deepcopy(running))
    assert {*small["spec"]} == {"containers", "nodeName"}
    assert "env" not in small["spec"]["containers"][0]
    assert "containerStatuses" not in small["status"]
    assert small["metadata"] == running["metadata"]
    assert trim_missed(copy.deepcopy(running))["spec"] == {"schedulingGates": []}
    again = trim(copy.deepcopy(running))
    assert again["status"] is small["status"]
    assert again["metadata"]["labels"] is small["metadata"]["labels"]
    assert trim(copy.deepcopy(waiting))["spec"]["containers"] is kept["spec"]["containers"]


def test_a_create_is_followed_by_nothing_that_counts(pods):
    assert of(Count, plan(pods, pods.waiting())) == []
    assert len(of(Create, plan(pods, pods.waiting()))) == 1
    assert of(Change, plan(pods, pods.waiting())) == []


@pytest.mark.parametrize("name", ["waiting", "running"])
def test_a_pod_of_an_excluded_namespace_is_left_alone(pods, workload, name):
    excluded = {"kubernetes.io/metadata.name": "kube-system"}
    pod = getattr(pods, name)()
    assert plan(pods, pod, namespace_labels=excluded) == ()
    assert plan(pods, pod, workload, namespace_labels=excluded) == ()


def test_a_start_changes_no_pod_that_is_stored(pods):
    pod = pods.waiting("a", nodeSelector={"zone": "a"})
    before = copy.deepcopy(pod)
    info = PodSetInfo(
        "main",
        labels={"added": "x"},
        annotations={"added": "x"},
        node_selector={"pool": "a"},
        tolerations=[{"key": "spot"}],
    )
    started = ungated(pod, info)
    assert pod == before
    assert started["spec"]["nodeSelector"] == {"zone": "a", "pool": "a"}
    assert started["metadata"]["labels"] == {**before["metadata"]["labels"], "added": "x"}
    assert "schedulingGates" not in started["spec"]
