"""Pods of an earlier group, pods that come after the end, and pods that cannot join (KEP-976)."""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.kinds import PODS
from kueuelib.jobs.contract.commands import Delete, DropFinalizer, Emit, PatchStatus
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.pods.pod_plan import plan_group, situation_of
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.workload import states

KUEUE = "kueue.x-k8s.io"
GIVES_UP = {f"{KUEUE}/retriable-in-group": "false"}


@pytest.fixture
def member(pods):
    """Makes pods of a group of two."""

    def made(kind, *arguments, **fields):
        return getattr(pods, kind)(*arguments, group="group", total=2, **fields)

    return made


@pytest.fixture
def admitted(pods, member):
    return pods.admitted(pods.composed(member("waiting", "a"), member("waiting", "b")))


def left(pod):
    """The pod after its group has ended."""
    copied = copy.deepcopy(pod)
    copied["metadata"]["finalizers"] = []
    return copied


def about(commands, kind):
    return [c.obj["metadata"]["name"] for c in commands if isinstance(c, kind) and is_pod(c.obj)]


def is_pod(obj):
    return obj["kind"] == PODS.kind


def reasons(commands):
    return [
        each["reason"]
        for c in commands
        if isinstance(c, PatchStatus) and not is_pod(c.obj)
        for each in c.status.get("conditions", ())
    ]


def test_a_failed_pod_of_an_earlier_group_does_not_give_a_later_one_up(pods, member, admitted):
    old = left(member("over", "old", annotations=GIVES_UP))
    failed = [member("over", name) for name in "ab"]
    assert pods.plan(old, *failed, workload=admitted) == ()
    assert pods.plan(old, failed[0], workload=admitted) == (), "it does not become an owner, either"
    failed[1]["metadata"]["annotations"].update(GIVES_UP)
    assert reasons(pods.plan(old, *failed, workload=admitted)) == ["Failed"]


def test_a_pod_of_an_earlier_group_that_succeeded_has_a_place_and_does_not_give_up(pods, member):
    old = left(member("over", "old", "Succeeded", annotations=GIVES_UP))
    workload = pods.admitted(pods.composed(old, member("waiting", "a")))
    assert [ref["name"] for ref in workload["metadata"]["ownerReferences"]] == ["a", "old"]
    failed, done = member("over", "a"), member("over", "a", "Succeeded")
    assert "Failed" not in reasons(pods.plan(old, failed, workload=workload))
    assert reasons(pods.plan(old, done, workload=workload)) == ["Succeeded"]


def test_a_pod_that_was_replaced_still_gives_its_group_up(pods, member, admitted):
    replaced = left(member("over", "a", annotations=GIVES_UP))
    others = [member("over", name) for name in ("b", "c")]
    assert reasons(pods.plan(replaced, *others, workload=admitted)) == ["Failed"]


def test_a_group_that_was_given_up_is_finished_before_it_lets_its_pods_go(pods, member, admitted):
    failed = [member("over", name, annotations=GIVES_UP) for name in "ab"]
    commands = pods.plan(*failed, workload=admitted)
    kinds = [type(c) for c in commands]
    assert kinds.index(PatchStatus) < kinds.index(DropFinalizer)
    finished = states.finish(admitted, "Failed", "given up", pods.now)
    again = pods.plan(left(failed[0]), failed[1], workload=finished)
    assert about(again, DropFinalizer) == ["b"], "after a crash it goes on where it was"


@pytest.mark.parametrize("condition", ["TerminationTarget", "DisruptionTarget"])
def test_who_gives_its_group_up_does_so_when_it_is_stopped_too(pods, member, admitted, condition):
    stopped = [pods.deleted(member("over", name)) for name in "ab"]
    for pod in stopped:
        pod["status"]["conditions"].append({"type": condition, "status": "True"})
    evicted = pods.evicted(admitted) if condition == "TerminationTarget" else admitted
    assert "Failed" not in reasons(pods.plan(*stopped, workload=evicted))
    stopped[0]["metadata"]["annotations"].update(GIVES_UP)
    assert reasons(pods.plan(*stopped, workload=evicted)) == ["Failed"]


def test_a_late_pod_that_lost_its_gate_is_deleted_unless_it_is_on_a_node(pods, member, admitted):
    finished = states.finish(admitted, "Succeeded", "done", pods.now)
    done = [left(member("over", name, "Succeeded")) for name in "ab"]
    late = member("waiting", "late")
    assert about(pods.plan(*done, late, workload=finished), Delete) == []
    del late["spec"]["schedulingGates"]
    commands = pods.plan(*done, late, workload=finished)
    assert about(commands, Delete) == ["late"]
    assert about(commands, DropFinalizer) == [], "it keeps the finalizer until it is deleted"
    text = "The group is finished; this pod will never run"
    assert next(c.message for c in commands if isinstance(c, Emit)) == text
    gone = pods.plan(*done, pods.deleted(late), workload=finished)
    assert (about(gone, Delete), set(about(gone, DropFinalizer))) == ([], {"late"})
    running = member("running", "late")
    commands = pods.plan(*done, running, workload=finished)
    assert (about(commands, Delete), about(commands, DropFinalizer)) == ([], ["late"])


def test_a_pod_that_its_group_let_run_is_not_deleted_at_the_end(pods, member, admitted):
    finished = states.finish(admitted, "Succeeded", "by somebody else", pods.now)
    started = member("waiting", "b")
    del started["spec"]["schedulingGates"]
    done = left(member("over", "a", "Succeeded"))
    assert about(pods.plan(done, started, workload=finished), Delete) == []


def test_late_pods_are_left_alone_in_namespaces_that_are_not_selected(pods, member, admitted):
    finished = states.finish(admitted, "Succeeded", "done", pods.now)
    late = member("waiting", "late")
    del late["spec"]["schedulingGates"]
    group = pods.group(late, workload=finished)
    here = {"matchLabels": {"team": "a"}}
    base = JobSnapshot(None, pods.now, settings=JobSettings(namespace_selector=here))
    assert about(plan_group(situation_of(group, base), group), Delete) == []


@pytest.mark.parametrize(("kind", "how"), [("running", {}), ("over", {"phase": "Succeeded"})])
def test_a_pod_that_contradicts_the_flavor_does_not_end_a_group_that_has_begun(
    pods, member, admitted, kind, how
):
    """It waits with an event; where no pod has begun, the group could not start."""
    other = member("waiting", "c")
    other["spec"]["nodeSelector"] = {"pool": "ondemand"}
    commands = pods.plan(member(kind, "a", **how), member("over", "b"), other, workload=admitted)
    assert "Finished" not in str([one for one in commands if isinstance(one, PatchStatus)])
    (told,) = (one for one in commands if isinstance(one, Emit) and one.type == "Warning")
    assert (told.obj, told.reason) == (other, "FailedToStart")
    alone = pods.plan(member("over", "b"), other, workload=admitted)
    (end,) = (one for one in alone if isinstance(one, PatchStatus))
    assert "FailedToStart" in str(end)
