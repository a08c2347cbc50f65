"""Groups that are made beforehand (KEP-976 story 2)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.meta import is_true, labels_of
from kueuelib.api.names import POD_SET_LABEL
from kueuelib.jobs.contract.capabilities import Matching
from kueuelib.jobs.contract.commands import (
    Change,
    Count,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
    RequeueAfter,
)
from kueuelib.jobs.contract.settings import (
    JobSettings,
    PodSettings,
    QuotaReleaseStrategy,
    TakenOver,
)
from kueuelib.jobs.pods.pod_plan import plan_group, plan_without_pods, situation_of
from kueuelib.jobs.pods.reading import is_gated
from kueuelib.jobs.reconcile.job_snapshot import Case, JobSnapshot
from kueuelib.jobs.reconcile.steps import expiry
from kueuelib.workload import states

KUEUE = "kueue.x-k8s.io"
NOW = 1_700_000_000.0
UPSTREAM = yaml.load(
    (Path(__file__).parents[3] / "upstream" / "custom_labels.yaml").read_text(encoding="utf-8"),
    yaml.CSafeLoader,
)


def of(kind, commands):
    return [command for command in commands if isinstance(command, kind)]


def released(commands):
    found = [c.obj for c in of(DropFinalizer, commands) if c.resource == PODS]
    return [pod["metadata"]["name"] for pod in found]


def deleted(commands):
    return [c.obj["metadata"]["name"] for c in of(Delete, commands) if c.resource == PODS]


def started(commands):
    found = [c for c in of(Change, commands) if c.resource == PODS]
    return [c.new["metadata"]["name"] for c in found if is_gated(c.old) and not is_gated(c.new)]


def events(commands):
    return [(each.obj["metadata"]["name"], each.reason) for each in of(Emit, commands)]


# ---- the Workload


def test_an_incomplete_group_waits_and_complains_after_a_while(pods, pair):
    (command,) = pods.plan(pair[0])
    assert isinstance(command, RequeueAfter)
    pair[0]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    (event,) = pods.plan(pair[0])
    assert (event.reason, event.type) == ("ErrWorkloadCompose", "Warning")
    assert event.message == "The group has 1 of 2 pods"


def test_a_complete_group_makes_one_workload_of_its_name(pods, pair):
    create, event = pods.plan(*pair)
    meta, spec = create.obj["metadata"], create.obj["spec"]
    assert (meta["name"], meta["annotations"]) == ("group", {f"{KUEUE}/is-group-workload": "true"})
    assert [ref["uid"] for ref in meta["ownerReferences"]] == ["uid-a", "uid-b"]
    assert not any("controller" in ref for ref in meta["ownerReferences"])
    (pod_set,) = spec["podSets"]
    assert pod_set["count"] == 2
    assert pod_set["name"] == pair[0]["metadata"]["annotations"][f"{KUEUE}/role-hash"]
    assert "schedulingGates" not in pod_set["template"]["spec"]
    assert (spec["queueName"], spec["priority"]) == ("main", 0)
    assert event.reason == "CreatedWorkload"


def test_a_group_starts_with_all_its_pods_or_not_at_all(pods, pair):
    (pod_set,) = pods.composed(*pair)["spec"]["podSets"]
    assert "minCount" not in pod_set


def test_the_workload_takes_over_limit_of_time_and_labels(pods, pair):
    labels = {f"{KUEUE}/max-exec-time-seconds": "60", "team": "blue"}
    found = [pods.waiting(name, group="group", total=2, labels=labels) for name in ("a", "b")]
    create = pods.plan(*found, taken_over=TakenOver(("team",)))[0]
    assert create.obj["spec"]["maximumExecutionTimeSeconds"] == 60
    assert create.obj["metadata"]["labels"] == {"team": "blue"}


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("case", UPSTREAM["taken_over"]["groups"], ids=str)
def test_pods_of_a_group_agree_about_what_their_workload_takes_over(pods, part, case):
    found = [pods.waiting(name, group="group", total=2) for name in ("a", "b")]
    for pod, values in zip(found, case["pods"], strict=True):
        pod["metadata"][part] = {**pod["metadata"].get(part, {}), **values}
    made, *_ = pods.plan(*found, taken_over=TakenOver(**{part: ("one", "two")}))
    if case["workload"] is None:
        what = f"{part.removesuffix('s')} one"
        assert (made.reason, made.obj["metadata"]["name"]) == ("ErrWorkloadCompose", "b")
        assert f"The pods of the group have different values of the {what}" in made.message
        return
    taken = made.obj["metadata"][part]
    assert {key: value for key, value in taken.items() if "/" not in key} == case["workload"]


def test_shapes_become_pod_sets_sorted_by_name(pods):
    found = [pods.waiting(f"p{cpu}", group="group", total=3, cpu=cpu) for cpu in ("1", "2", "3")]
    names = [entry["name"] for entry in pods.composed(*found)["spec"]["podSets"]]
    assert len(names) == 3
    assert names == sorted(names)


@pytest.mark.parametrize(("shapes", "made"), [(8, True), (9, False)])
def test_eight_shapes_are_the_most(pods, shapes, made):
    found = [
        pods.waiting(f"p{cpu}", group="group", total=shapes, cpu=str(cpu + 1))
        for cpu in range(shapes)
    ]
    commands = pods.plan(*found)
    assert bool(of(Create, commands)) is made
    if not made:
        (event,) = commands
        assert event.reason == "ErrWorkloadCompose"
        assert "9 different shapes, more than the 8" in event.message


def test_a_waiting_group_with_nine_shapes_says_why_it_waits(pods):
    found = [pods.waiting(f"p{i}", group="group", total=9) for i in range(9)]
    workload = pods.composed(*found)
    for number, pod in enumerate(found):
        pod["spec"]["nodeSelector"] = {"number": str(number)}
    commands = pods.plan(*found, workload=workload)
    assert ("p0", "ErrWorkloadCompose") in events(commands)
    (patch,) = of(PatchStatus, commands)
    (requeued,) = [c for c in patch.status["conditions"] if c["type"] == "Requeued"]
    assert requeued["message"].startswith("Pod p0: The pods of the group have 9 different shapes")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"total": 3}, "3 pods according to this pod, but 2"),
        ({"queue": "other"}, 'queued in "other"'),
    ],
)
def test_pods_that_disagree_make_no_workload_and_are_told(pods, pair, fields, words):
    other = pods.waiting("c", age=-5, group="group", **{"total": 2, **fields})
    (event,) = pods.plan(pair[0], other)
    assert (event.reason, event.type) == ("ErrWorkloadCompose", "Warning")
    assert event.obj["metadata"]["name"] == "c"
    assert words in event.message


def test_excess_pods_go_before_the_workload_is_made_in_one_pass(pods, pair):
    young = pods.waiting("young", age=-5, group="group", total=2)
    commands = pods.plan(*pair, young)
    assert deleted(commands) == released(commands) == ["young"]
    assert ("young", "ExcessPodDeleted") in events(commands)
    assert of(Count, commands) == [Count("rejected", ("ns", "excess"))]
    (create,) = of(Create, commands)
    assert [ref["name"] for ref in create.obj["metadata"]["ownerReferences"]] == ["a", "b"]


def test_the_oldest_pod_can_be_the_one_too_many(pods, pair):
    """It has lost our finalizer, and no other has its shape."""
    oldest = pods.waiting("o", group="group", total=2, cpu="8", age=9)
    oldest["metadata"]["finalizers"] = []
    commands = pods.plan(oldest, *pair)
    assert deleted(commands) == ["o"]
    (create,) = of(Create, commands)
    assert [entry["count"] for entry in create.obj["spec"]["podSets"]] == [2]


def test_more_looks_before_the_deletion_is_seen_choose_the_same_pod(pods, pair):
    young = pods.waiting("young", age=-5, group="group", total=2)
    for found in ((*pair, young), (young, *reversed(pair))):
        assert deleted(pods.plan(*found)) == ["young"]
    commands = pods.plan(*pair, pods.deleted(young))
    assert deleted(commands) == []
    assert released(commands) == ["young"]


def test_a_workload_of_somebody_else_is_refused_and_never_touched(pods, pair):
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j", "controller": True}
    foreign = pods.admitted(pods.composed(*pair))
    foreign["metadata"]["ownerReferences"] = [ref]
    plain = copy.deepcopy(foreign)
    plain["metadata"].update(ownerReferences=[], annotations={})
    for workload in (foreign, plain):
        (event,) = pods.plan(*pair, workload=workload)
        assert (event.reason, event.type) == ("ErrWorkloadCompose", "Warning")
        assert "exists and does not belong to this group" in event.message
        commands = pods.plan(pods.deleted(pair[0]), workload=workload)
        assert {c.resource for c in of(DropFinalizer, commands)} == {PODS}
    assert plan_without_pods(pods.facts(workload=foreign).own) == ()


# ---- admission


def test_an_admitted_group_starts_whole(pods, pair, admitted):
    commands = pods.plan(*pair, workload=admitted)
    assert started(commands) == ["a", "b"]
    assert of(Count, commands) == [Count("ungated", ("cq", "true"), 0.0)] * 2
    assert {c.new["spec"]["nodeSelector"]["pool"] for c in of(Change, commands)} == {"spot"}
    (pod_set,) = admitted["spec"]["podSets"]
    assert {labels_of(c.new)[POD_SET_LABEL] for c in of(Change, commands)} == {pod_set["name"]}
    assert [reason for _, reason in events(commands)] == ["Started", "Started"]


def test_pods_that_are_left_after_a_failed_write_are_started_later(pods, pair, running, admitted):
    assert started(pods.plan(running[0], pair[1], workload=admitted)) == ["b"]


def test_excess_pods_after_admission_go_by_role(pods):
    make = {"group": "group", "total": 2}
    found = [pods.waiting(f"p{cpu}", cpu=cpu, **make) for cpu in ("1", "2")]
    workload = pods.admitted(pods.composed(*found))
    members = [pods.running(f"p{cpu}", cpu=cpu, **make) for cpu in ("1", "2")]
    extra = [pods.waiting(f"x{cpu}", cpu=cpu, **make) for cpu in ("1", "2")]
    commands = pods.plan(*members, *extra, workload=workload)
    assert sorted(deleted(commands)) == ["x1", "x2"]
    assert started(commands) == []


def test_a_group_with_quota_stays_what_it_is_though_its_pods_ask_for_another_one(
    pods, running, admitted
):
    found = [pods.waiting(f"n{i}", group="group", total=4) for i in range(2)]
    commands = pods.plan(*running, *found, workload=admitted)
    assert [c for c in of(Change, commands) if c.resource == WORKLOADS] == []
    assert sorted(deleted(commands)) == ["n0", "n1"]
    failed = pods.over("b", group="group", total=2)
    other = pods.waiting("c", group="group", total=2, cpu="9")
    commands = pods.plan(running[0], failed, other, workload=admitted)
    assert deleted(commands) == ["c"]
    assert [c for c in of(Change, commands) if c.resource == WORKLOADS] == []


def test_a_new_shape_in_an_admitted_group_is_rejected(pods, running, admitted):
    stranger = pods.waiting("s", group="group", total=2, cpu="9")
    commands = pods.plan(*running, stranger, workload=admitted)
    assert deleted(commands) == ["s"]
    assert ("s", "PodRejected") in events(commands)
    assert of(Count, commands) == [Count("rejected", ("ns", "unknown_role"))]


# ---- replacement


def test_a_replacement_becomes_an_owner_before_the_failed_pod_is_let_go(pods, running, admitted):
    failed = pods.over("a", group="group", total=2)
    new = pods.waiting("new", age=-5, group="group", total=2)
    commands = pods.plan(failed, running[1], new, workload=admitted)
    owned, *rest = [c for c in commands if not isinstance(c, Emit | Count)]
    assert owned.resource == WORKLOADS
    assert [ref["name"] for ref in owned.new["metadata"]["ownerReferences"]] == ["a", "b", "new"]
    assert released(rest) == ["a"]
    assert started(rest) == ["new"]
    assert ("group", "OwnerReferencesAdded") in events(commands)


def test_pods_of_a_changed_group_become_owners_before_the_failed_pod_is_let_go(pods):
    before = pods.composed(pods.waiting("a", group="group", total=1))
    evicted = pods.evicted(pods.admitted(before))
    free = states.hold_back(states.release(evicted, pods.now), "waits", pods.now)
    failed = pods.deleted(pods.over("a", group="group", total=1))
    new = pods.waiting("b", group="group", total=1, cpu="2")
    commands = pods.plan(failed, new, workload=free)
    change, *rest = [c for c in commands if not isinstance(c, Emit | Count)]
    assert [ref["name"] for ref in change.new["metadata"]["ownerReferences"]] == ["a", "b"]
    assert released(rest) == ["a"]


def test_replacements_of_pods_that_never_ran_become_owners_before_those_go(pods, pair):
    new = [pods.waiting(name, group="group", total=2, age=-5) for name in ("c", "d")]
    waiting = pods.composed(*pair)
    for workload in (waiting, pods.admitted(waiting)):
        commands = pods.plan(*map(pods.deleted, pair), *new, workload=workload)
        owned = commands[0].new["metadata"]["ownerReferences"]
        assert [ref["name"] for ref in owned] == ["a", "b", "c", "d"]
        assert released(commands[1:]) == ["a", "b"]


@pytest.mark.parametrize("fields", [{"total": 2, "cpu": "7"}, {"total": 3}])
def test_the_first_pod_of_a_changed_group_owns_the_workload_before_the_old_pods_go(
    pods, pair, fields
):
    new = pods.waiting("c", group="group", age=-5, **fields)
    commands = pods.plan(*map(pods.deleted, pair), new, workload=pods.composed(*pair))
    owned = commands[0].new["metadata"]["ownerReferences"]
    assert [ref["name"] for ref in owned] == ["a", "b", "c"]
    assert released(commands[1:]) == ["a", "b"]


def test_pods_that_never_ran_stay_while_their_replacements_do_not_own_the_workload(pods, pair):
    workload = pods.composed(*pair)
    running = pods.running("c", group="group", total=2)
    assert released(pods.plan(*map(pods.deleted, pair), running, workload=workload)) == []


@pytest.mark.parametrize("edited", [True, False])
def test_a_changed_group_owns_its_workload_before_pods_that_never_ran_go(pods, pair, edited):
    fields = {} if edited else {"cpu": "7"}
    new = [pods.waiting(name, group="group", total=2, age=-5, **fields) for name in ("c", "d")]
    if edited:
        new[0]["spec"]["nodeSelector"] = {"zone": "a"}
    commands = pods.plan(*map(pods.deleted, pair), *new, workload=pods.composed(*pair))
    owned = commands[0].new["metadata"]["ownerReferences"]
    assert [ref["name"] for ref in owned] == ["a", "b", "c", "d"]
    assert released(commands[1:]) == ["a", "b"]


def test_a_size_that_disagrees_with_that_of_a_succeeded_pod_is_reported(pods, pair, admitted):
    done = pods.over("a", "Succeeded", group="group", total=2)
    evicted = states.release(pods.evicted(admitted), pods.now)
    free = states.hold_back(evicted, "waits", pods.now)
    new = pods.waiting("x", group="group", total=3, cpu="7", age=-5)
    commands = pods.plan(done, new, workload=free)
    assert deleted(commands) == []
    (event,) = [each for each in of(Emit, commands) if each.reason == "ErrWorkloadCompose"]
    assert event.obj["metadata"]["name"] == "x"
    assert event.message.startswith("The group has 3 pods according to this pod, but 2")
    same = pods.waiting("x", group="group", total=2, cpu="7", age=-5)
    assert "ErrWorkloadCompose" not in str(events(pods.plan(done, same, workload=free)))


def test_a_size_that_disagrees_with_that_of_a_waiting_pod_is_reported(pods, pair):
    new = pods.waiting("x", group="group", total=3, age=-5)
    commands = pods.plan(pair[0], new, workload=pods.composed(*pair))
    (event,) = [each for each in of(Emit, commands) if each.reason == "ErrWorkloadCompose"]
    assert event.obj["metadata"]["name"] == "x"
    assert event.message.startswith("The group has 3 pods according to this pod, but 2")
    commands = pods.plan(pair[0], new, workload=pods.admitted(pods.composed(*pair)))
    assert "ErrWorkloadCompose" not in str(events(commands))


def test_one_replacement_of_two_failures_releases_the_first_failure_only(pods, admitted):
    first = pods.over("a", at=10, group="group", total=2)
    second = pods.over("b", at=20, group="group", total=2)
    new = pods.waiting("new", group="group", total=2)
    assert released(pods.plan(second, first, new, workload=admitted)) == ["a"]


def test_a_replacement_does_not_run_beside_the_pod_that_still_leaves(pods, running, admitted):
    leaving = pods.deleted(running[0])
    new = pods.waiting("new", group="group", total=2)
    commands = pods.plan(leaving, running[1], new, workload=admitted)
    assert started(commands) == deleted(commands) == []
    over = pods.deleted(pods.over("a", group="group", total=2))
    assert started(pods.plan(over, running[1], new, workload=admitted)) == ["new"]


def test_all_failed_is_not_finished_until_somebody_gives_up(pods, admitted):
    failed = [pods.over(name, group="group", total=2) for name in ("a", "b")]
    assert pods.plan(*failed, workload=admitted) == ()
    failed[0]["metadata"]["annotations"][f"{KUEUE}/retriable-in-group"] = "false"
    commands = pods.plan(*failed, workload=admitted)
    (finish,) = of(PatchStatus, commands)
    assert finish.status["conditions"][0]["type"] == "Finished"
    assert finish.status["conditions"][0]["reason"] == "Failed"
    assert released(commands) == ["a", "b"]


def test_given_up_is_finished_only_when_nothing_runs(pods, running, admitted):
    failed = pods.over("a", group="group", total=2)
    failed["metadata"]["annotations"][f"{KUEUE}/retriable-in-group"] = "false"
    assert pods.plan(failed, running[1], workload=admitted) == ()
    assert pods.plan(failed, pods.deleted(running[1]), workload=admitted) == ()


def test_given_up_is_not_finished_while_a_pod_waits(pods, pair, admitted):
    failed = pods.over("a", group="group", total=2)
    failed["metadata"]["annotations"][f"{KUEUE}/retriable-in-group"] = "false"
    commands = pods.plan(failed, pair[1], workload=admitted)
    assert started(commands) == ["b"]
    assert of(PatchStatus, commands) == []


def test_only_a_pod_that_has_ended_gives_its_group_up(pods, running, admitted):
    note = {f"{KUEUE}/retriable-in-group": "false"}
    failed = [pods.over(name, group="group", total=2) for name in ("a", "b")]
    stranger = pods.waiting("c", group="group", total=2, cpu="7", annotations=note)
    commands = pods.plan(*failed, stranger, workload=admitted)
    assert deleted(commands) == ["c"]
    assert of(PatchStatus, commands) == []
    running[1]["metadata"]["annotations"].update(note)
    assert pods.plan(failed[0], running[1], workload=admitted) == ()
    failed[1]["metadata"]["annotations"].update(note)
    (finish,) = of(PatchStatus, pods.plan(*failed, workload=admitted))
    assert finish.status["conditions"][0]["reason"] == "Failed"


# ---- the end


def test_all_succeeded_is_finished_and_lets_everything_go(pods, admitted):
    done = [pods.over(name, "Succeeded", group="group", total=2) for name in ("a", "b")]
    commands = pods.plan(*done, workload=admitted)
    (finish,) = of(PatchStatus, commands)
    condition = finish.status["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("Succeeded", "Pods succeeded: 2/2.")
    assert released(commands) == ["a", "b"]
    assert [c.obj["metadata"]["name"] for c in of(DropFinalizer, commands)][-1] == "group"
    assert pods.plan(*map(pods.deleted, done), workload=admitted)[0] == finish


def test_a_succeeded_pod_gives_its_quota_back(pods, running, admitted):
    done = pods.over("a", "Succeeded", group="group", total=2)
    (patch,) = of(PatchStatus, pods.plan(done, running[1], workload=admitted))
    role = admitted["spec"]["podSets"][0]["name"]
    assert patch.status == {"reclaimablePods": [{"name": role, "count": 1}]}


def test_a_finished_group_lets_go_and_tells_late_pods_which_keep_their_finalizer(
    pods, pair, admitted
):
    done = pods.over("a", "Succeeded", group="group", total=2)
    finished = states.finish(admitted, "Succeeded", "done", pods.now)
    commands = pods.plan(done, pair[1], workload=finished)
    assert released(commands) == ["a"], "without its Workload, the pod would get it back"
    assert "b" in released(pods.plan(done, pods.deleted(pair[1]), workload=finished))
    assert ("b", "GroupFinished") in events(commands)


def test_a_pod_that_is_rejected_while_it_runs_takes_its_place_until_it_is_gone(pods):
    waiting = pods.waiting("a", group="group", total=1)
    admitted = pods.admitted(pods.composed(waiting))
    lost = pods.running("b", group="group", total=1)
    lost["metadata"]["finalizers"] = []
    commands = pods.plan(waiting, lost, workload=admitted)
    assert (deleted(commands), started(commands)) == (["b"], [])


def test_pods_that_vanish_take_the_workload_along(pods, admitted):
    assert [type(c) for c in plan_without_pods(admitted)] == [Delete, DropFinalizer]
    finished = states.finish(admitted, "Succeeded", "done", pods.now)
    assert [type(c) for c in plan_without_pods(finished)] == [DropFinalizer]
    assert plan_without_pods(None) == ()


def test_a_deleted_pod_of_a_group_that_was_never_admitted_goes_at_once(pods, pair):
    assert released(pods.plan(pods.deleted(pair[0]), pair[1])) == ["a"]
    workload = pods.composed(*pair)
    commands = pods.plan(pods.deleted(pair[0]), pair[1], workload=workload)
    assert released(commands) == ["a"]
    (patch,) = of(PatchStatus, commands)
    assert patch.status["conditions"][-1]["reason"] == "WaitingForReplacementPods"


def test_a_workload_that_lacks_pods_is_held_back_and_let_in_again(pods, pair):
    workload = states.hold_back(pods.composed(*pair), "missing", pods.now)
    with pytest.raises(states.IllegalTransition):
        states.reserve(workload, {"clusterQueue": "cq"}, (), pods.now)
    (patch,) = of(PatchStatus, pods.plan(*pair, workload=workload))
    (condition,) = [c for c in patch.status["conditions"] if c["type"] == "Requeued"]
    assert (condition["status"], condition["reason"]) == ("True", "PodsReplaced")


def test_a_reservation_without_its_pods_is_cancelled(pods, pair):
    check = {"name": "c", "state": "Pending", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    workload = pods.composed(*pair)
    workload["status"] = {"admissionChecks": [check]}
    workload = pods.admitted(workload)
    assert states.phase_of(workload) is states.Phase.RESERVED
    (patch,) = of(PatchStatus, pods.plan(pair[0], workload=workload))
    assert "admission" not in patch.status


def test_somebody_who_deletes_everything_gives_the_group_up(pods, admitted):
    over = [pods.deleted(pods.over(name, group="group", total=2)) for name in ("a", "b")]
    commands = pods.plan(*over, workload=admitted)
    assert released(commands) == ["a", "b"]
    assert [c.obj["metadata"]["name"] for c in of(Delete, commands)] == ["group"]


DISRUPTIONS = (
    *("EvictionByEvictionAPI", "DeletionByTaintManager"),
    *("DeletionByPodGC", "PreemptionByScheduler"),
)


@pytest.fixture
def drained(pods):
    """What becomes of the pods of a group of two whose nodes are drained."""
    return [pods.disrupted(pods.over(name, group="group", total=2)) for name in ("a", "b")]


@pytest.mark.parametrize("reason", DISRUPTIONS)
@pytest.mark.parametrize("size", [1, 2])
def test_a_group_keeps_its_quota_when_all_of_its_pods_are_disrupted(pods, reason, size):
    fields = {"group": "group", "total": size}
    names = ("a", "b")[:size]
    admitted = pods.admitted(pods.composed(*[pods.waiting(name, **fields) for name in names]))
    leaving = [pods.disrupted(pods.running(name, **fields), reason) for name in names]
    assert pods.plan(*leaving, workload=admitted) == ()
    over = [pods.disrupted(pods.over(name, **fields), reason) for name in names]
    assert pods.plan(*over, workload=admitted) == ()
    commands = pods.plan(*over, pods.waiting("n", age=-9, **fields), workload=admitted)
    assert started(commands) == ["n"]
    assert released(commands) == [names[-1]], "the one that it replaces"
    assert deleted(commands) == []


def test_whoever_deletes_the_other_pods_of_a_drained_group_gives_it_up(pods, admitted, drained):
    other = pods.deleted(pods.over("b", group="group", total=2))
    commands = pods.plan(drained[0], other, workload=admitted)
    assert [c.obj["metadata"]["name"] for c in of(Delete, commands)] == ["group"]
    assert released(commands) == ["a", "b"]
    assert type(commands[0]) is Delete, "first, because one pod alone does not show the choice:"
    assert pods.plan(drained[0], workload=admitted) == ()


def test_a_rejected_pod_never_looks_as_if_a_user_had_deleted_it(pods, admitted):
    drained = [pods.disrupted(pods.over(name, group="group", total=2)) for name in "ab"]
    stranger = pods.waiting("s", group="group", total=2, cpu="7")
    first, second, *_ = pods.plan(*drained, stranger, workload=admitted)
    assert (type(first), type(second)) == (DropFinalizer, Delete)
    stranger["metadata"]["finalizers"] = []
    assert of(Delete, pods.plan(*drained, pods.deleted(stranger), workload=admitted)) == []


def test_a_choice_stays_visible_until_what_was_drained_has_ended(pods, admitted, running):
    leaves = pods.disrupted(running[0])
    waited = pods.deleted(pods.waiting("new", group="group", total=2, age=-9))
    assert pods.plan(leaves, waited, workload=admitted) == ()
    over = pods.disrupted(pods.over("a", group="group", total=2))
    commands = pods.plan(over, waited, workload=admitted)
    assert released(commands) == ["a", "new"]
    assert [c.obj["metadata"]["name"] for c in of(Delete, commands)] == ["group"]


def test_pods_that_a_kubelet_ended_are_deleted_by_choice(pods, admitted):
    """A kubelet under pressure ends pods and deletes none of them."""
    over = [pods.over(name, group="group", total=2) for name in ("a", "b")]
    gone = [pods.disrupted(pod, "TerminationByKubelet") for pod in over]
    assert [c.obj["metadata"]["name"] for c in of(Delete, pods.plan(*gone, workload=admitted))] == [
        "group"
    ]


def test_a_disruption_that_was_called_off_is_none(pods, admitted, drained):
    for pod in drained:
        pod["status"]["conditions"][-1]["status"] = "False"
    assert released(pods.plan(*drained, workload=admitted)) == ["a", "b"]


def test_pods_that_we_stopped_wait_for_replacements(pods, admitted):
    over = [pods.deleted(pods.over(name, group="group", total=2)) for name in ("a", "b")]
    for pod in over:
        target = {"type": "TerminationTarget", "status": "True"}
        pod["status"]["conditions"].append(target)
    released_quota = states.release(pods.evicted(admitted), pods.now)
    commands = pods.plan(*over, workload=released_quota)
    assert released(commands) == []


# ---- eviction


def test_eviction_stops_what_runs_and_says_why_first(pods, pair, running, admitted):
    commands = pods.plan(running[0], pair[1], workload=pods.evicted(admitted))
    (target,) = of(PatchStatus, commands)
    condition = target.status["conditions"][0]
    assert condition["type"] == "TerminationTarget"
    assert condition["reason"] == "WorkloadEvictedDueToPreempted"
    assert condition["message"] == "room for others"
    assert deleted(commands) == ["a"]
    assert commands.index(target) < [isinstance(c, Delete) for c in commands].index(True)
    assert events(commands) == [("a", "Stopped")]


def test_quota_is_kept_until_no_pod_runs_and_then_pods_are_missing(pods, running, admitted):
    evicted = pods.evicted(admitted)
    assert pods.plan(*map(pods.deleted, running), workload=evicted) == ()
    over = [pods.deleted(pods.over(name, group="group", total=2)) for name in ("a", "b")]
    for pod in over:
        pod["status"]["conditions"].append({"type": "TerminationTarget", "status": "True"})
    (patch,) = pods.plan(*over, workload=evicted)
    assert "admission" not in patch.status
    (condition,) = [c for c in patch.status["conditions"] if c["type"] == "Requeued"]
    assert condition["message"] == "The group waits for 2 pods to be replaced"


def test_with_the_other_strategy_a_group_leaves_its_quota_while_its_pods_leave(
    pods, running, admitted
):
    group = pods.group(*map(pods.deleted, running), workload=pods.evicted(admitted))
    early = PodSettings(group_release=QuotaReleaseStrategy.ON_TERMINATION)
    base = JobSnapshot(None, pods.now, settings=JobSettings(pods=early), flavors=pods.flavors)
    (patch,) = plan_group(situation_of(group, base), group)
    assert "admission" not in patch.status
    (condition,) = [c for c in patch.status["conditions"] if c["type"] == "Requeued"]
    assert condition["message"] == "The group waits for 2 pods to be replaced"


def test_a_force_deleted_pod_on_a_dead_node_blocks_nothing(pods, running, admitted):
    gone = pods.deleted(running[0])
    gone["metadata"]["deletionGracePeriodSeconds"] = 0
    other = pods.deleted(pods.over("b", group="group", total=2))
    for pod in (gone, other):
        pod["status"].setdefault("conditions", []).append(
            {"type": "TerminationTarget", "status": "True"}
        )
    assert "admission" not in pods.plan(gone, other, workload=pods.evicted(admitted))[0].status


def test_a_deleted_workload_takes_every_pod_along(pods, pair, running, admitted):
    admitted["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    failed = pods.over("f", group="group", total=2)
    commands = pods.plan(running[0], pair[1], failed, workload=admitted)
    assert sorted(deleted(commands)) == ["a", "b", "f"]
    assert sorted(released(commands)) == ["a", "b", "f"]
    left = pods.deleted(running[0])
    assert released(pods.plan(left, workload=admitted)) == ["a"]
    left["metadata"]["finalizers"] = []
    assert pods.plan(left, workload=admitted) == ()
    over = pods.deleted(pods.over("a", group="group", total=2))
    over["metadata"]["finalizers"] = []
    (last,) = pods.plan(over, workload=admitted)
    assert last.resource == WORKLOADS


def test_what_runs_without_admission_is_stopped(pods, running, pair):
    assert deleted(pods.plan(*running)) == ["a", "b"]
    assert deleted(pods.plan(*running, workload=pods.composed(*pair))) == ["a", "b"]


# ---- repair


def test_a_waiting_pod_gets_its_finalizer_back(pods, pair, admitted):
    pair[0]["metadata"]["finalizers"] = []
    commands = pods.plan(*pair, workload=pods.composed(*pair))
    (change,) = [c for c in of(Change, commands) if c.resource == PODS]
    assert change.new["metadata"]["finalizers"] == [f"{KUEUE}/managed"]
    assert Count("missed", ("Pod", "repaired")) in commands


def test_a_waiting_pod_has_the_name_of_its_shape_before_it_starts(pods, pair):
    for pod in pair:
        del pod["metadata"]["annotations"][f"{KUEUE}/role-hash"]
    commands = pods.plan(*pair)
    named = [c.new for c in of(Change, commands) if c.resource == PODS]
    assert len(named) == 2
    workload = pods.admitted(pods.composed(*named))
    begun = [c.new for c in of(Change, pods.plan(*named, workload=workload)) if c.resource == PODS]
    assert all("pool" in pod["spec"]["nodeSelector"] for pod in begun)
    assert not deleted(pods.plan(*begun, workload=workload))


def test_a_lost_finalizer_does_not_cost_the_name_of_the_shape(pods, pair):
    pair[0]["metadata"]["finalizers"] = []
    pair[0]["metadata"]["annotations"][f"{KUEUE}/role-hash"] = "cafe"
    (change,) = [c for c in of(Change, pods.plan(*pair)) if c.resource == PODS]
    assert change.new["metadata"]["annotations"][f"{KUEUE}/role-hash"] == "cafe"


@pytest.mark.parametrize("has_waited", [True, False])
@pytest.mark.parametrize("cpus", ["1111", "1188", "8181"])
def test_a_group_that_becomes_a_larger_one_waits_until_it_is_complete(pods, pair, has_waited, cpus):
    workload = pods.composed(*pair)
    if not has_waited:
        workload = states.hold_back(workload, "The group waits for 2 pods", pods.now)
    found = [
        pods.waiting(f"n{i}", group="group", total=4, cpu=cpu, age=-i) for i, cpu in enumerate(cpus)
    ]
    for count in (2, 3):
        commands = pods.plan(*found[:count], workload=workload)
        assert deleted(commands) == [], "none of them is one too many"
        (patch,) = of(PatchStatus, commands)
        (requeued,) = [c for c in patch.status["conditions"] if c["type"] == "Requeued"]
        assert (requeued["status"], requeued["reason"]) == ("False", "WaitingForReplacementPods")
    (change,) = [
        c for c in of(Change, pods.plan(*found, workload=workload)) if c.resource == WORKLOADS
    ]
    assert sum(entry["count"] for entry in change.new["spec"]["podSets"]) == 4


def test_a_waiting_group_may_become_another_one(pods, pair):
    workload = pods.composed(*pair)
    found = [pods.waiting(f"n{i}", group="group", total=3) for i in range(3)]
    commands = pods.plan(*found, workload=workload)
    (change,) = [c for c in of(Change, commands) if c.resource == WORKLOADS]
    assert change.new["spec"]["podSets"][0]["count"] == 3
    assert not is_true(change.new, "QuotaReserved")
    assert deleted(commands) == []


def test_pods_are_ready_when_every_place_is(pods, pair, running, admitted):
    assert pods.group(*running, workload=admitted).pods_ready()
    assert not pods.group(running[0], workload=admitted).pods_ready()
    assert not pods.group(running[0], pair[1], workload=admitted).pods_ready()
    done = pods.over("b", "Succeeded", group="group", total=2)
    assert pods.group(running[0], done, workload=admitted).pods_ready()


def test_a_group_that_was_given_up_by_us_is_deleted_as_a_whole(pods):
    """Retention: all pods go with their finalizers, also those that are leaving already."""
    waits = pods.waiting("a", group="group", total=2)
    failed = pods.deleted(pods.over("b", group="group", total=2))
    made = pods.composed(waits, pods.waiting("b", group="group", total=2))
    admitted = pods.admitted(made)
    admitted["spec"]["active"] = False
    reason = "DeactivatedDueToRequeuingLimitExceeded"
    evicted = states.evict(admitted, reason, "too often", NOW)
    over = states.release(evicted, NOW)
    group = pods.group(waits, failed, workload=over)
    settings = JobSettings(delete_deactivated_after=5.0)
    early, late = (
        expiry(Case(situation_of(group, JobSnapshot(None, now, settings)), group, Matching(over)))
        for now in (NOW + 1, NOW + 6)
    )
    assert [type(each) for each in early] == [RequeueAfter]
    assert [(type(each), name_of(each)) for each in late] == [
        (Emit, "a"),
        (Delete, "a"),
        (DropFinalizer, "a"),
        (DropFinalizer, "b"),
    ]


def name_of(command):
    return command.obj["metadata"]["name"]


def test_a_pod_that_is_rejected_while_its_group_is_stopped_is_deleted_once(pods, running, admitted):
    """A pod without our finalizer gives its place to another one."""
    running[1]["metadata"]["finalizers"] = []
    extra = pods.waiting("c", group="group", total=2)
    commands = pods.plan(*running, extra, workload=pods.evicted(admitted))
    assert sorted(deleted(commands)) == ["a", "b"]
