from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import yaml

from kueuelib.api.names import JOB_UID_LABEL
from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.capabilities import JobWithFinalize
from kueuelib.jobs.contract.commands import (
    Change,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
    Recheck,
    RequeueAfter,
)
from kueuelib.jobs.contract.settings import JobSettings, QuotaReleaseStrategy, TakenOver
from kueuelib.jobs.lookups.owners import Ancestor
from kueuelib.jobs.reconcile.job_snapshot import Again
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.jobs.reconcile.written import ADDED_AT_START
from kueuelib.workload import states

KUEUE = "kueue.x-k8s.io"
QUEUE = f"{KUEUE}/queue-name"
SUSPENDED = [{"type": "Suspended", "status": "True"}]
PARAMETER = "provreq.kueue.x-k8s.io/ValidUntilSeconds"
UPSTREAM = yaml.load(
    (Path(__file__).parents[3] / "upstream" / "custom_labels.yaml").read_text(encoding="utf-8"),
    yaml.CSafeLoader,
)


def reasons(commands):
    return [found.reason for found in commands if isinstance(found, Emit)]


def writes(commands):
    """What is sent, in a word or a patch each."""
    found = []
    for command in commands:
        match command:
            case Create():
                found.append("create")
            case Change(resource, subresource=""):
                found.append((resource.kind, command.patch))
            case Change(resource, subresource=subresource):
                found.append((f"{resource.kind}/{subresource}", command.patch))
            case PatchStatus(field_manager=manager):
                found.append(manager)
            case Delete():
                found.append("delete")
            case DropFinalizer():
                found.append("drop finalizer")
    return found


def test_a_job_without_a_queue_is_left_alone(build):
    assert plan(build.situation(build.job(queue=None, suspend=False))) == ()


def test_a_job_without_a_queue_is_queued_when_all_are_managed(build):
    settings = JobSettings(manage_jobs_without_queue_name=True)
    labels = {"kubernetes.io/metadata.name": "ns"}
    job = build.job(queue=None)
    commands = plan(build.situation(job, settings=settings, namespace_labels=labels))
    assert reasons(commands) == ["CreatedWorkload"]
    assert "queueName" not in commands[0].obj["spec"]


def test_jobs_of_system_namespaces_are_never_managed_without_a_queue(build):
    settings = JobSettings(manage_jobs_without_queue_name=True)
    labels = {"kubernetes.io/metadata.name": "kube-system"}
    job = build.job(queue=None, suspend=False)
    assert plan(build.situation(job, settings=settings, namespace_labels=labels)) == ()


EXCLUDED = {"kubernetes.io/metadata.name": "kube-system"}


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize("admitted", [True, False, None])
def test_a_job_with_a_queue_in_an_excluded_namespace_is_left_alone(build, suspend, admitted):
    job = build.job(suspend=suspend)
    workloads = [] if admitted is None else [build.workload(job, admitted=admitted)]
    assert plan(build.situation(job, *workloads, namespace_labels=EXCLUDED)) == ()


def test_a_deleted_workload_of_an_excluded_namespace_is_let_go(build):
    job = build.job()
    workload = build.workload(job)
    workload["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (command,) = plan(build.situation(job, workload, namespace_labels=EXCLUDED))
    assert isinstance(command, DropFinalizer)


def test_a_job_waits_until_its_namespace_is_known(build):
    (command,) = plan(build.situation(build.job(), namespace_labels=None))
    assert isinstance(command, RequeueAfter)


def test_a_waiting_job_gets_a_workload(build):
    job = build.job()
    create, event = plan(build.situation(job))
    meta = create.obj["metadata"]
    assert meta["name"].startswith("job-job-")
    assert meta["namespace"] == "ns"
    assert meta["finalizers"] == [f"{KUEUE}/resource-in-use"]
    assert meta["labels"] == {f"{KUEUE}/job-uid": "job-uid"}
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "job-uid", True)
    assert create.obj["spec"]["queueName"] == "main"
    assert create.obj["spec"]["priority"] == 0
    assert [entry["count"] for entry in create.obj["spec"]["podSets"]] == [3]
    assert event.reason == "CreatedWorkload"


def test_a_job_is_read_before_its_workload_is_created_again(build):
    job = build.job()
    first, *rest = plan(build.situation(job, again=Again()))
    assert first == Recheck(BatchJob.resource, job)
    assert writes(rest) == ["create"]


def test_a_workload_that_vanishes_again_and_again_is_created_later(build):
    assert plan(build.situation(build.job(), again=Again(4.0))) == (
        RequeueAfter("its workload vanished several times", 4.0),
    )


def test_the_queue_annotation_counts_when_there_is_no_label(build):
    job = build.job(queue=None, annotations={QUEUE: "old"})
    assert plan(build.situation(job))[0].obj["spec"]["queueName"] == "old"


def test_a_recreated_job_gets_a_workload_of_another_name(build):
    first, second = build.job(), build.job(meta={"uid": "other"})
    names = {plan(build.situation(job))[0].obj["metadata"]["name"] for job in (first, second)}
    assert len(names) == 2


def test_a_job_that_slipped_in_unsuspended_is_suspended_first(build):
    job = build.job(suspend=False, status={"startTime": "2024-01-01T00:00:00Z", "active": 3})
    commands = plan(build.situation(job))
    assert reasons(commands) == ["Stopped"]
    assert [kind for kind, _ in writes(commands)] == ["Job"]
    assert writes(commands)[0][1]["spec"] == {"suspend": True}


def test_no_workload_is_made_while_pods_of_the_last_run_are_there(build):
    assert plan(build.situation(build.job(status={"active": 1}))) == ()


def test_a_missing_priority_class_is_told_and_waited_for(build):
    job = build.job(labels={f"{KUEUE}/priority-class": "urgent"})
    event, wait = plan(build.situation(job))
    assert (event.type, event.reason) == ("Warning", "ErrWorkloadCompose")
    assert "urgent" in event.message
    assert isinstance(wait, RequeueAfter)


def test_an_admitted_job_is_started_with_one_patch(build):
    job = build.job(pod={"nodeSelector": {"arch": "arm"}})
    workload = build.workload(job, admitted=True)
    start, event = plan(build.situation(job, workload))
    assert start.versioned
    toleration = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    patch = start.patch
    note = json.loads(patch.pop("metadata")["annotations"][ADDED_AT_START])
    assert note == {
        "job": "job-uid",
        "admitted": states.condition(workload, "Admitted")["lastTransitionTime"],
        "podSets": [
            {
                "name": "main",
                "nodeSelector": {"pool": "spot"},
                "tolerations": [toleration],
                **build.origin,
            }
        ],
    }
    assert patch == {
        "spec": {
            "suspend": False,
            "template": {
                "metadata": build.origin,
                "spec": {
                    "nodeSelector": {"pool": "spot"},
                    "tolerations": [toleration],
                },
            },
        }
    }
    assert (event.reason, event.message) == ("Started", "Admitted by clusterQueue cq")


def test_nothing_is_done_about_a_running_job(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    assert plan(build.situation(build.started(job, active=3), workload)) == ()


def test_a_flavor_that_is_not_known_yet_is_waited_for(build):
    job = build.job()
    commands = plan(build.situation(job, build.workload(job, admitted=True), flavors={}))
    assert isinstance(commands[-1], RequeueAfter)


def test_checks_that_contradict_each_other_end_the_workload(build):
    job = build.job()
    checks = [
        {"name": name, "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": name}}]}
        for name in ("one", "two")
    ]
    commands = plan(build.situation(job, build.workload(job, admitted=True, checks=checks)))
    finish, told = commands
    (condition,) = finish.status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Finished", "FailedToStart")
    assert (told.reason, told.type) == ("FailedToStart", "Warning")
    text = 'pod set "main": labels[a] is "one" by check "one" and "two" by check "two"'
    assert condition["message"] == text


def test_a_job_whose_workload_could_not_start_is_stopped_when_its_user_starts_it(build):
    waiting = build.job()
    ended = build.workload(waiting, finished=True)
    ended["status"]["conditions"][-1]["reason"] = "FailedToStart"
    assert "Stopped" not in reasons(plan(build.situation(waiting, ended)))
    stopped = plan(build.situation(build.job(suspend=False), ended))
    assert "Stopped" in reasons(stopped)
    assert stopped[0].new["spec"]["suspend"] is True


class Finalized(BatchJob, JobWithFinalize):
    def finalize(self):
        return (DropFinalizer(self.resource, self.raw, "example.com/own"),)


@pytest.mark.parametrize("ended", [False, True])
def test_a_kinds_finalizers_stay_until_its_job_has_ended(build, ended):
    raw = build.job(
        status={"conditions": [{"type": "Complete", "status": "True"}]} if ended else {}
    )
    workload = build.workload(raw, finished=True)
    workload["status"]["conditions"][-1]["reason"] = "FailedToStart"
    commands = plan(attrs.evolve(build.situation(raw, workload), job=Finalized(raw)))
    dropped = [each.finalizer for each in commands if isinstance(each, DropFinalizer)]
    assert ("example.com/own" in dropped) is ended


def test_an_evicted_job_is_stopped_and_keeps_its_quota_until_it_is_restored(build):
    job = build.job(pod={"nodeSelector": {"arch": "arm"}})
    workload = build.workload(job, admitted=True, evicted="Preempted")
    commands = plan(build.situation(build.started(job), workload))
    assert writes(commands) == [
        (
            "Job",
            {
                "metadata": {"annotations": {f"{KUEUE}/stopping": "true"}},
                "spec": {"suspend": True},
            },
        )
    ]
    event = commands[1]
    assert (event.reason, event.message) == ("Stopped", "Evicted because Preempted")
    half = commands[0].new
    assert plan(build.situation(half, workload)) == (), "the Job controller has not seen it"
    half["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    assert writes(plan(build.situation(half, workload))) == [
        ("Job/status", {"status": {"startTime": None}}),
        (
            "Job",
            {
                "metadata": {"annotations": {f"{KUEUE}/stopping": None}},
                "spec": {
                    "template": {
                        "spec": {"nodeSelector": {"pool": None}, "tolerations": None},
                    }
                },
            },
        ),
    ]


def test_an_evicted_job_keeps_its_quota_while_pods_are_active(build):
    job = build.job(status={"active": 1})
    workload = build.workload(job, admitted=True, evicted="Preempted")
    assert plan(build.situation(job, workload)) == ()


@pytest.mark.parametrize("strategy", QuotaReleaseStrategy)
def test_the_strategy_decides_whether_terminating_pods_keep_the_quota(build, strategy):
    job = build.job(status={"terminating": 1})
    workload = build.workload(job, admitted=True, evicted="Deactivated", active=False)
    situation = build.situation(job, workload)
    situation = attrs.evolve(situation, settings=JobSettings(quota_release=strategy))
    released = [command.status for command in plan(situation)]
    if strategy is QuotaReleaseStrategy.ON_TERMINAL:
        assert not released
    else:
        assert released
        assert "admission" not in released[0]


def test_an_evicted_job_that_is_about_to_end_is_not_stopped_and_frees_its_quota(build):
    job = build.job(completions=1, parallelism=1)
    workload = build.workload(job, admitted=True, evicted="Preempted")
    done = build.started(job, active=1, conditions=[{"type": "FailureTarget", "status": "True"}])
    assert plan(build.situation(done, workload)) == ()
    done["status"]["active"] = 0
    (reclaim,) = plan(build.situation(done, workload))
    assert reclaim.status == {"reclaimablePods": [{"name": "main", "count": 1}]}
    workload["status"]["reclaimablePods"] = reclaim.status["reclaimablePods"]
    assert plan(build.situation(done, workload)) == ()


@pytest.mark.parametrize("admitted", [True, False])
def test_an_evicted_job_without_pods_gives_its_quota_back(build, admitted):
    job = build.job()
    workload = build.workload(job, reserved=True, admitted=admitted, evicted="Preempted")
    (release,) = plan(build.situation(job, workload))
    assert release.versioned
    assert release.field_manager == "kueue-admission"
    assert "admission" not in release.status
    told = {found["type"]: found for found in release.status["conditions"]}
    assert told["QuotaReserved"]["status"] == "False"
    assert told["QuotaReserved"]["message"] == "Evicted because Preempted"
    assert told["Evicted"]["status"] == "True"
    assert told.get("Admitted", {}).get("status") == ("False" if admitted else None)


def test_an_evicted_job_that_has_no_quota_any_more_waits(build):
    job = build.job()
    assert plan(build.situation(job, build.workload(job, evicted="Preempted"))) == ()


def test_a_job_that_runs_without_admission_is_stopped(build):
    job = build.job()
    workload = build.workload(job)
    running = {**job, "spec": {**job["spec"], "suspend": False}}
    assert reasons(plan(build.situation(running, workload))) == ["Stopped"]


def test_a_stop_that_was_cut_short_is_completed_although_the_workload_is_admitted_again(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    half = build.started(job)
    half["spec"]["suspend"] = True
    half["metadata"]["annotations"] = {f"{KUEUE}/stopping": "true"}
    half["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    kinds = [kind for kind, _ in writes(plan(build.situation(half, workload)))]
    assert kinds == ["Job/status", "Job"]
    assert reasons(plan(build.situation(half, workload))) == []


@pytest.mark.parametrize(("type", "reason"), [("Complete", "Succeeded"), ("Failed", "Failed")])
def test_a_finished_job_finishes_its_workload_with_two_writes(build, type, reason):
    job = build.job()
    workload = build.workload(job, admitted=True)
    conditions = [{"type": type, "status": "True", "message": "so it ended"}]
    done = build.started(job, conditions=conditions)
    commands = plan(build.situation(done, workload))
    assert writes(commands) == ["kueue-job-controller-Finished", "drop finalizer"]
    assert reasons(commands) == ["FinishedWorkload"]
    (condition,) = commands[0].status["conditions"]
    assert (condition["reason"], condition["message"]) == (reason, "so it ended")


def test_a_finished_job_keeps_its_workload_whatever_it_asks_for(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    done = build.started(job, conditions=[{"type": "Complete", "status": "True"}])
    done["spec"]["parallelism"] = 1
    assert writes(plan(build.situation(done, workload)))[0] == "kueue-job-controller-Finished"


def test_a_finished_job_whose_pods_cannot_be_read_frees_its_quota(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    done = build.started(job, conditions=[{"type": "Complete", "status": "True"}])
    done["spec"]["template"]["spec"]["containers"] = []
    commands = plan(build.situation(done, workload))
    assert writes(commands) == ["kueue-job-controller-Finished", "drop finalizer"]


def test_what_was_left_of_finishing_is_done_later(build):
    job = build.job()
    workload = build.workload(job, admitted=True, finished=True)
    commands = plan(build.situation(build.started(job), workload))
    assert writes(commands) == ["drop finalizer"]
    assert reasons(commands) == ["FinishedWorkload"]


def test_of_two_workloads_a_running_job_keeps_the_one_that_has_not_finished(build):
    job = build.job()
    ended = build.workload(job, admitted=True, finished=True, name="ended")
    live = build.workload(job, admitted=True, name="live", created="2024-01-02T00:00:00Z")
    commands = plan(build.situation(build.started(job, active=3), ended, live))
    deleted = [each.obj["metadata"]["name"] for each in commands if isinstance(each, Delete)]
    assert deleted == ["ended"]


def test_nothing_is_left_to_do_about_a_finished_workload(build):
    job = build.job()
    workload = build.workload(job, admitted=True, finished=True, meta={"finalizers": []})
    assert plan(build.situation(build.started(job), workload)) == ()


def test_workloads_of_a_job_that_is_gone_are_released(build):
    workload = build.workload(build.job())
    assert writes(plan(build.situation(None, orphans=(workload,)))) == ["drop finalizer"]


def test_workloads_of_an_earlier_job_of_the_same_name_are_released(build):
    old = build.workload(build.job(meta={"uid": "old"}), name="old")
    commands = plan(build.situation(build.job(), orphans=(old,)))
    assert writes(commands) == ["drop finalizer", "create"]


def test_a_running_job_whose_workload_is_deleted_is_stopped(build):
    job = build.job()
    deleted = {"deletionTimestamp": "2024-01-01T00:00:00Z"}
    workload = build.workload(job, admitted=True, meta=deleted)
    finalizer = workload["metadata"]["finalizers"]
    assert finalizer
    commands = plan(build.situation(build.started(job, active=3), workload))
    assert reasons(commands) == ["Stopped"]
    assert plan(build.situation(build.job(status={"active": 2}), workload)) == ()
    assert writes(plan(build.situation(job, workload))) == ["drop finalizer"]


def test_a_waiting_job_that_was_edited_gets_its_workload_updated(build):
    job = build.job()
    workload = build.workload(job)
    edited = build.job(parallelism=2)
    change, event = plan(build.situation(edited, workload))
    assert change.old is workload
    assert change.patch["spec"]["podSets"][0]["count"] == 2
    assert event.reason == "UpdatedWorkload"


@pytest.mark.parametrize("state", [{"reserved": True}, {"admitted": True}])
def test_a_suspended_job_that_was_edited_after_the_decision_gives_its_quota_back(build, state):
    workload = build.workload(build.job(), **state)
    (cancel,) = plan(build.situation(build.job(parallelism=2), workload))
    assert cancel.field_manager == "kueue-admission"
    assert "admission" not in cancel.status


def test_a_running_job_that_was_edited_is_stopped_and_restored(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    edited = build.started(job)
    edited["spec"]["parallelism"] = 2
    commands = plan(build.situation(edited, workload))
    assert reasons(commands) == ["Stopped"]
    half = commands[0].new
    half["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    commands = plan(build.situation(half, workload))
    restored = writes(commands)[-1][1]["spec"]["template"]["spec"]
    assert restored == {"nodeSelector": None, "tolerations": None}


def test_of_two_equal_workloads_the_older_one_stays(build):
    job = build.job()
    older = build.workload(job, name="b", created="2024-01-01T00:00:00Z")
    newer = build.workload(job, name="a", created="2024-01-01T00:00:01Z")
    commands = plan(build.situation(job, newer, older))
    gone = [found.obj["metadata"]["name"] for found in commands if isinstance(found, Delete)]
    assert gone == ["a"]


@pytest.mark.parametrize("ended", [[], [{"type": "Complete", "status": "True"}]])
@pytest.mark.parametrize("held", [{"reserved": True}, {"admitted": True}])
def test_of_two_equal_workloads_the_one_that_holds_quota_stays(build, held, ended):
    older = build.workload(build.job(), name="b", created="2024-01-01T00:00:00Z")
    newer = build.workload(build.job(), name="a", created="2024-01-01T00:00:01Z", **held)
    for job in (build.job(status={"conditions": ended}), build.started(build.job(), active=3)):
        commands = plan(build.situation(job, older, newer))
        gone = [found.obj["metadata"]["name"] for found in commands if isinstance(found, Delete)]
        assert gone == ["b"]


def test_another_workload_that_others_keep_from_being_deleted_halts_nothing(build):
    job = build.started(build.job(), active=3)
    meta = {"deletionTimestamp": "2024-01-02T00:00:00Z", "finalizers": ["example.com/licenses.0"]}
    kept = build.workload(job, name="copy", created="2024-01-01T00:00:00Z", meta=meta)
    evicted = build.workload(job, admitted=True, evicted="Preempted")
    alone = reasons(plan(build.situation(job, evicted)))
    assert alone
    assert reasons(plan(build.situation(job, evicted, kept))) == alone


def test_a_job_is_stopped_before_another_workload_is_deleted(build):
    """A rule of the cluster may refuse the deletion."""
    job = build.started(build.job(), active=3)
    evicted = build.workload(build.job(), admitted=True, evicted="Preempted")
    copy = build.workload(build.job(), name="copy", created="2024-02-01T00:00:00Z")
    assert reasons(plan(build.situation(job, evicted, copy))) == ["Stopped", "DeletedWorkload"]


def test_a_waiting_job_that_changed_keeps_a_workload_that_lives(build):
    meta = {"deletionTimestamp": "2024-01-02T00:00:00Z", "finalizers": ["example.com/licenses.0"]}
    kept = build.workload(build.job(), name="kept", created="2023-01-01T00:00:00Z", meta=meta)
    lives, copy = build.workload(build.job()), build.workload(build.job(), name="the-copy")
    commands = plan(build.situation(build.job(parallelism=5), kept, lives, copy))
    (change,) = (each for each in commands if isinstance(each, Change))
    assert change.old is lives
    gone = [each.obj["metadata"]["name"] for each in commands if isinstance(each, Delete)]
    assert gone == ["the-copy"]


def test_the_workload_of_a_deactivated_job_follows_its_queue_while_it_is_kept(build):
    job = build.job(queue="other")
    workload = build.workload(job, queueName="main", active=False)
    since = {"lastTransitionTime": "2024-01-01T00:00:00Z", "message": "m", "status": "True"}
    reason = "DeactivatedDueToRequeuingLimitExceeded"
    workload["status"]["conditions"] = [{"type": "Evicted", "reason": reason, **since}]
    settings = JobSettings(delete_deactivated_after=1e10)
    change, wait = plan(build.situation(job, workload, settings=settings))
    assert change.patch == {"spec": {"queueName": "other"}}
    assert type(wait) is RequeueAfter


def test_the_workload_follows_the_queue_of_a_waiting_job(build):
    job = build.job()
    workload = build.workload(job)
    (change,) = plan(build.situation(build.job(queue="other"), workload))
    assert change.patch == {"spec": {"queueName": "other"}}


def test_a_job_that_moves_when_it_is_admitted_starts_and_is_moved_after_its_stop(build):
    job = build.job(queue="other")
    workload = build.workload(build.job(), admitted=True)
    assert reasons(plan(build.situation(job, workload))) == ["Started"]
    victim = build.workload(build.job(), admitted=True, evicted="Preempted")
    (free,) = plan(build.situation(job, victim))
    assert "admission" not in free.status
    (change,) = plan(build.situation(job, states.release(victim, build.now)))
    assert change.patch == {"spec": {"queueName": "other"}}


def test_a_job_that_moves_while_it_waits_for_checks_first_gives_its_reservation_back(build):
    job = build.job()
    checks = [{"name": "check", "state": "Pending"}]
    workload = build.workload(job, reserved=True, checks=checks)
    (cancel,) = plan(build.situation(build.job(queue="other"), workload))
    assert cancel.field_manager == "kueue-admission"
    assert "admission" not in cancel.status


def test_the_queue_of_a_running_job_is_not_followed(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    moved = build.started(job, active=3)
    moved["metadata"]["labels"][QUEUE] = "other"
    assert plan(build.situation(moved, workload)) == ()


def test_the_workload_follows_the_priority_class_label(build):
    classes = PriorityClasses(workload={"high": {"metadata": {"name": "high"}, "value": 7}}, pod={})
    job = build.job(labels={f"{KUEUE}/priority-class": "high"})
    old = {"group": KUEUE, "kind": "WorkloadPriorityClass", "name": "low"}
    workload = build.workload(job, priorityClassRef=old)
    change, event = plan(build.situation(job, workload, classes=classes))
    assert change.patch == {"spec": {"priority": 7, "priorityClassRef": {"name": "high"}}}
    assert event.reason == "UpdatedWorkload"


def test_a_priority_that_was_edited_in_the_workload_stays(build):
    classes = PriorityClasses({"high": {"metadata": {"name": "high"}, "value": 7}})
    job = build.job(labels={f"{KUEUE}/priority-class": "high"})
    ref = {"group": KUEUE, "kind": "WorkloadPriorityClass", "name": "high"}
    workload = build.workload(job, priorityClassRef=ref, priority=3)
    assert plan(build.situation(job, workload, classes=classes)) == ()


def test_a_priority_class_of_another_kind_is_followed_once_quota_is_free(build):
    classes = PriorityClasses({"high": {"metadata": {"name": "high"}, "value": 7}})
    job = build.job(labels={f"{KUEUE}/priority-class": "high"})
    reserved = build.workload(job, reserved=True)
    assert plan(build.situation(job, reserved, classes=classes)) == ()
    (change, _) = plan(build.situation(job, build.workload(job), classes=classes))
    assert change.patch["spec"]["priority"] == 7


def test_a_waiting_job_that_leaves_its_queue_loses_its_workload(build):
    job = build.job()
    workload = build.workload(job, reserved=True)
    commands = plan(build.situation(build.job(queue=None), workload))
    assert reasons(commands) == ["DeletedWorkload"]


def test_a_running_job_that_has_lost_its_queue_is_stopped_when_it_is_evicted(build):
    running = build.started(build.job())
    del running["metadata"]["labels"][f"{KUEUE}/queue-name"]
    workload = build.workload(build.job(), admitted=True)
    assert plan(build.situation(running, workload)) == ()
    evicted = build.workload(build.job(), admitted=True, evicted="Preempted")
    assert reasons(plan(build.situation(running, evicted))) == ["Stopped"]


@pytest.mark.parametrize("evicted", ["Preempted", None])
def test_a_job_that_has_left_its_queue_keeps_its_quota_while_its_pods_run(build, evicted):
    workload = build.workload(build.job(), admitted=True, evicted=evicted)
    stopping = build.job(queue=None, status={"active": 3})
    assert plan(build.situation(stopping, workload)) == (), "neither started, released nor deleted"
    stopped = build.job(queue=None, status={"conditions": SUSPENDED})
    (first, *_) = plan(build.situation(stopped, workload))
    freed = "admission" not in first.status if evicted else isinstance(first, DropFinalizer)
    assert freed


def test_a_foreign_workload_of_a_job_without_a_queue_is_left_alone(build):
    workload = build.workload(build.job(), meta={"labels": {}})
    assert plan(build.situation(build.job(queue=None, suspend=False), workload)) == ()


# ---- children


def test_a_child_of_an_admitted_ancestor_runs_and_has_no_workload(build):
    running = build.job(suspend=False)
    assert plan(build.situation(running, ancestor=Ancestor("Job parent", True))) == ()


def test_a_child_of_an_ancestor_that_is_not_admitted_is_suspended(build):
    running = build.job(suspend=False)
    commands = plan(build.situation(running, ancestor=Ancestor("Job parent", False)))
    assert writes(commands) == [("Job", {"spec": {"suspend": True}})]
    assert reasons(commands) == ["Suspended"]


def test_a_suspended_child_gets_no_workload(build):
    assert plan(build.situation(build.job(), ancestor=Ancestor("Job parent", False))) == ()


@pytest.mark.parametrize("suspend", [True, False])
def test_a_child_of_nobody_is_told_why_it_waits(build, suspend):
    made_up = Ancestor("Workload ns/wl", admitted=False, doubt="which does not exist")
    told, *stopped = plan(build.situation(build.job(suspend=suspend), ancestor=made_up))
    assert (told.reason, told.type) == ("ErrWorkloadCompose", "Warning")
    assert "parent-workload names the Workload ns/wl, which does not exist" in told.message
    assert bool(writes(stopped)) is not suspend


# ---- prebuilt workloads


def prebuilt_job(build, **fields):
    return build.job(labels={f"{KUEUE}/prebuilt-workload-name": "made"}, **fields)


def test_a_job_waits_for_the_workload_it_names(build):
    (told,) = plan(build.situation(prebuilt_job(build)))
    assert told.reason == "ErrWorkloadCompose"
    assert '"made", which does not exist' in told.message
    stopped = plan(build.situation(prebuilt_job(build, suspend=False)))
    assert reasons(stopped) == ["Stopped"]


def test_a_prebuilt_workload_is_adopted(build):
    job = prebuilt_job(build)
    made = build.workload(
        job, name="made", meta={"ownerReferences": [], "labels": {"a": "b"}, "finalizers": []}
    )
    (change,) = plan(build.situation(job, prebuilt=made))
    meta = change.patch["metadata"]
    assert [ref["uid"] for ref in meta["ownerReferences"]] == ["job-uid"]
    assert meta["labels"] == {f"{KUEUE}/job-uid": "job-uid"}
    assert meta["finalizers"] == [f"{KUEUE}/resource-in-use"]


def test_a_prebuilt_workload_of_somebody_else_is_not_adopted(build):
    job = prebuilt_job(build)
    made = build.workload(build.job(meta={"uid": "other"}), name="made", admitted=True)
    (told,) = plan(build.situation(job, prebuilt=made))
    assert told.reason == "ErrWorkloadCompose"
    assert "belongs to another object" in told.message


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"finished": True}, "is finished"),
        ({"meta": {"deletionTimestamp": "2024-01-02T00:00:00Z"}}, "is being deleted"),
    ],
)
def test_a_prebuilt_workload_without_an_owner_that_is_over_is_not_adopted(build, state, said):
    job, meta = prebuilt_job(build), {"ownerReferences": [], "labels": {}}
    made = build.workload(job, name="made", **{**state, "meta": {**meta, **state.get("meta", {})}})
    (told,) = plan(build.situation(job, prebuilt=made))
    assert told.reason == "ErrWorkloadCompose"
    assert told.message.endswith(f'the Workload "made", which {said}')


def test_a_prebuilt_workload_that_asks_for_something_else_is_out_of_sync(build):
    job = prebuilt_job(build)
    made = build.workload(build.job(parallelism=1), name="made")
    (finish,) = plan(build.situation(job, prebuilt=made))
    assert finish.status["conditions"][0]["reason"] == "OutOfSync"


def test_an_adopted_prebuilt_workload_starts_its_job(build):
    job = prebuilt_job(build)
    made = build.workload(job, name="made", admitted=True)
    assert reasons(plan(build.situation(job, prebuilt=made))) == ["Started"]


# ---- reports


def test_reclaimable_pods_are_told(build):
    job = build.job(parallelism=2, completions=4)
    workload = build.workload(job, admitted=True)
    running = build.started(job, active=1, succeeded=3)
    (told,) = plan(build.situation(running, workload))
    assert told.field_manager == "kueue-reclaimable-pods"
    assert told.status == {"reclaimablePods": [{"name": "main", "count": 1}]}
    workload["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    assert plan(build.situation(running, workload)) == ()


def test_of_a_partially_admitted_job_all_pods_but_the_needed_ones_are_reclaimable(build):
    job = build.job(parallelism=4, completions=4, annotations={f"{KUEUE}/job-min-parallelism": "1"})
    workload = build.workload(job, admitted=True, count=2)
    running = build.started(job, active=1, succeeded=3)
    running["spec"]["parallelism"] = 2
    (told,) = plan(build.situation(running, workload))
    assert told.status == {"reclaimablePods": [{"name": "main", "count": 3}]}


def test_pods_of_a_pod_set_with_another_name_are_reclaimable(build):
    """A prebuilt Workload names its pod sets itself, and a waiting job may rename its own."""
    job = build.started(build.job(), active=1, succeeded=2)
    workload = build.workload(build.job(), admitted=True)
    workload["spec"]["podSets"][0]["name"] = "workers"
    workload["status"]["admission"]["podSetAssignments"][0]["name"] = "workers"
    (told,) = plan(build.situation(job, workload))
    assert told.status == {"reclaimablePods": [{"name": "workers", "count": 2}]}


def test_reclaimable_pods_never_shrink_while_quota_is_held(build):
    job = build.job(parallelism=2, completions=4)
    workload = build.workload(job, admitted=True)
    workload["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    assert plan(build.situation(build.started(job, active=2), workload)) == ()


def test_a_plan_depends_on_nothing_but_its_situation(build):
    job = build.job()
    situation = build.situation(build.started(job, active=3), build.workload(job))
    before = attrs.asdict(situation, recurse=False)
    assert plan(situation) == plan(situation)
    assert attrs.asdict(situation, recurse=False) == before


def test_the_workload_takes_over_labels_and_annotations(build):
    facts = UPSTREAM["taken_over"]
    job = build.job()
    meta = job["metadata"]
    meta["labels"] = {**meta.get("labels", {}), **facts["job"]["labels"]}
    meta["annotations"] = {**facts["job"]["annotations"], PARAMETER: "1"}
    settings = JobSettings(taken_over=TakenOver(("job-label",), ("job-annotation",)))
    create = plan(build.situation(job, settings=settings))[0]
    made = create.obj["metadata"]
    assert made["labels"] == {JOB_UID_LABEL: meta["uid"], **facts["workload"]["labels"]}
    assert made["annotations"] == {**facts["workload"]["annotations"], PARAMETER: "1"}
