"""Jobs that leave their queue, jobs with prebuilt Workloads that do, and jobs that are ending."""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Resource
from kueuelib.api.names import STOPPING_ANNOTATION
from kueuelib.jobs import Matching, Pods, PodSet, Stop, declare, enough, equals
from kueuelib.jobs.contract.capabilities import (
    ComposableJob,
    JobWithCustomStop,
    JobWithReclaimablePods,
    JobWithReplacements,
)
from kueuelib.jobs.contract.commands import Change, Delete, DropFinalizer, Emit, PatchStatus
from kueuelib.jobs.contract.settings import JobSettings, QuotaReleaseStrategy
from kueuelib.jobs.declared.jobset import JOB_SET
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.workload_build import adopt
from kueuelib.workload import states

NOW = 1_700_000_000.0
QUEUE = "kueue.x-k8s.io/queue-name"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
FLAVORS = {"spot": {"spec": {"nodeLabels": {"pool": "spot"}}}}
RUNNING = {"active": 3, "ready": 3}

KIND = declare(
    Resource("example.com", "v1", "plains", "Plain", namespaced=True),
    pods=[Pods("main", template="spec.template", count="spec.workers")],
    active="status.active",
    ready=enough("status.ready"),
    terminating="status.terminating",
    succeeded=equals("status.phase", "Succeeded"),
    failed=equals("status.phase", "Failed"),
    skip=equals("spec.skip", "yes"),
    allows_prebuilt=True,
)


class Ending(KIND.job_type):
    """Says when its end is certain."""

    def is_ending(self):
        return self.status.get("phase") == "Ending"


class Slow(Ending, JobWithCustomStop):
    """Knows nothing of its end when it stops."""

    def is_stopping(self):
        return "stopping" in self.spec

    def stop(self, infos, reason, message, now):
        changed = self.copy()
        changed.suspend()
        changed.spec.pop("stopping", None)
        return Stop((Change(self.resource, self.raw, changed.raw),))


def job(queue="main", suspend=True, status=None, prebuilt="", **spec):
    labels = {key: name for key, name in ((QUEUE, queue), (PREBUILT, prebuilt)) if name}
    meta = {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels}
    template = copy.deepcopy(TEMPLATE)
    spec = {"suspend": suspend, "workers": 3, "template": template, **spec}
    kind = {"apiVersion": "example.com/v1", "kind": "Plain"}
    return {**kind, "metadata": meta, "spec": spec, "status": status or {}}


def situation(raw, *workloads, kind=KIND.job_type, **fields):
    return JobSnapshot(kind(raw), NOW, workloads=workloads, flavors=FLAVORS, **fields)


def made(kind=KIND.job_type, raw=None):
    """The Workload that is made for a job."""
    workload = plan(situation(raw or job(), kind=kind))[0].obj
    meta = {**workload["metadata"], "resourceVersion": "1", "uid": "wl"}
    return {**workload, "metadata": {**meta, "creationTimestamp": "2024-01-01T00:00:00Z"}}


def prebuilt():
    """A Workload of another program, which the job has adopted."""
    workload = made()
    meta = {"name": "pre", "namespace": "ns", "uid": "pre", "resourceVersion": "1"}
    return adopt(KIND.job_type(job()), {**workload, "metadata": meta})


def admitted(workload, checks=()):
    sets = workload["spec"]["podSets"]
    assigned = [
        {"name": one["name"], "flavors": {"cpu": "spot"}, "count": one["count"]} for one in sets
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
    return states.reserve(workload, admission, checks, NOW - 100)


def evicted(workload):
    return states.evict(admitted(workload), "Preempted", "room", NOW - 10)


def deleted(commands):
    return [each.obj["metadata"]["name"] for each in commands if isinstance(each, Delete)]


def quota_is_freed(raw, workload, **fields):
    """Whether the next write frees the quota, after which the Workload is deleted."""
    (freed, *_) = plan(situation(raw, workload, **fields)) or (None,)
    if isinstance(freed, PatchStatus):
        assert "admission" not in freed.status
        workload = states.release(workload, NOW)
    return deleted(plan(situation(raw, workload, **fields))) == [workload["metadata"]["name"]]


def started(raw, workload, kind=KIND.job_type):
    """The job as its start left it."""
    changes = [each for each in plan(situation(raw, workload, kind=kind)) if _is_of(each, kind)]
    return changes[0].new


def _is_of(command, kind):
    return isinstance(command, Change) and command.resource == kind.resource


def without_queue(raw):
    raw = copy.deepcopy(raw)
    del raw["metadata"]["labels"][QUEUE]
    return raw


def skipped(raw):
    return {**raw, "spec": {**raw["spec"], "skip": "yes"}}


LEAVES = pytest.mark.parametrize("leaves", [without_queue, skipped])


@LEAVES
def test_a_stopped_job_that_leaves_keeps_its_workload_while_pods_run(leaves):
    stopped = job(status=RUNNING)
    for workload in (evicted(made()), admitted(made()), admitted(made(), ("check",)), made()):
        assert plan(situation(leaves(stopped), workload)) == ()
        assert quota_is_freed(leaves(job()), workload)


@LEAVES
def test_a_running_job_that_left_is_stopped_and_loses_its_workload_when_its_pods_are_gone(leaves):
    workload = evicted(made())
    running = {**leaves(started(job(), admitted(made()))), "status": RUNNING}
    stop, told = plan(situation(running, workload))
    assert (stop.new["spec"]["suspend"], told.reason) == (True, "Stopped")
    assert stop.new["spec"]["template"] == TEMPLATE
    assert plan(situation(stop.new, workload)) == ()
    gone = {**stop.new, "status": {}}
    assert quota_is_freed(gone, workload)


@pytest.mark.parametrize("strategy", [*QuotaReleaseStrategy])
def test_the_strategy_decides_about_pods_of_a_job_that_left(strategy):
    stopped = job(queue="", status={"terminating": 1})
    settings = JobSettings(quota_release=strategy)
    freed = strategy is not QuotaReleaseStrategy.ON_TERMINAL
    for workload in (evicted(made()), admitted(made())):
        assert quota_is_freed(stopped, workload, settings=settings) is freed


def test_a_stop_by_the_user_is_completed_before_the_workload_goes():
    running = started(job(), admitted(made()))
    suspended = without_queue({**running, "spec": {**running["spec"], "suspend": True}})
    assert "nodeSelector" in suspended["spec"]["template"]["spec"]
    (restored,) = plan(situation(suspended, admitted(made())))
    assert restored.new["spec"]["template"] == TEMPLATE
    assert deleted(plan(situation(restored.new, admitted(made()))))


def test_a_job_set_that_left_completes_its_stop_first():
    raw = job()
    replicated = {"name": "r", "replicas": 1, "template": {"spec": {"template": TEMPLATE}}}
    raw["spec"] = {"suspend": True, "replicatedJobs": [replicated]}
    kind = JOB_SET.job_type
    workload = evicted(made(kind, raw))
    stopping = without_queue(raw)
    stopping["metadata"]["annotations"] = {STOPPING_ANNOTATION: "true"}
    for status in ({"replicatedJobsStatus": [{"name": "r", "active": 1}]}, {}):
        commands = plan(situation({**stopping, "status": status}, workload, kind=kind))
        assert not deleted(commands)


@pytest.mark.parametrize("state", [{}, {"reserved": True}])
def test_a_job_that_left_while_it_stopped_completes_its_stop_first(build, state):
    """It was stopped because it was not admitted, so no eviction asks for the rest."""
    workload = build.workload(build.job(), **state)
    stopping = build.started(build.job(queue=None), active=3)
    stopping["spec"] = build.job()["spec"]
    stopping["metadata"]["annotations"] = {STOPPING_ANNOTATION: "true"}
    assert plan(build.situation(stopping, workload)) == ()
    seen = {"conditions": [{"type": "Suspended", "status": "True"}]}
    gone = {**stopping, "status": {"startTime": stopping["status"]["startTime"], **seen}}
    cleared, restored = plan(build.situation(gone, workload))
    assert cleared.new["status"]["startTime"] is None
    assert STOPPING_ANNOTATION not in restored.new["metadata"]["annotations"]
    assert deleted(plan(build.situation({**restored.new, "status": seen}, workload)))


def test_a_job_that_its_user_suspends_starts_again_once_its_pods_are_gone():
    workload = admitted(made())
    running = started(job(), workload)
    by_hand = {**running, "spec": {**running["spec"], "suspend": True}, "status": RUNNING}
    (restored,) = plan(situation(by_hand, workload))
    assert restored.new["spec"]["suspend"]
    assert restored.new["spec"]["template"] == TEMPLATE
    assert plan(situation(restored.new, workload)) == ()
    ended = {**restored.new, "status": {}}
    again = started(ended, workload)
    assert not again["spec"]["suspend"]
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "spot"}


# ---- prebuilt workloads


@LEAVES
def test_a_waiting_job_that_leaves_loses_its_prebuilt_workload(leaves):
    raw, workload = leaves(job(prebuilt="pre")), prebuilt()
    for held in (workload, admitted(workload, ("check",)), admitted(workload)):
        drop, delete, told = plan(situation(raw, held, prebuilt=held))
        assert (drop.obj, delete) == (held, Delete(WORKLOADS, held))
        assert isinstance(drop, DropFinalizer)
        assert told.reason == "DeletedWorkload"
    unlabelled = copy.deepcopy(workload)
    del unlabelled["metadata"]["labels"]
    assert deleted(plan(situation(raw, unlabelled, prebuilt=unlabelled)))


def test_a_prebuilt_workload_of_nobody_stays_when_a_job_leaves():
    workload = {**prebuilt(), "metadata": {"name": "pre", "namespace": "ns"}}
    assert plan(situation(without_queue(job(prebuilt="pre")), prebuilt=workload)) == ()


@LEAVES
def test_a_running_job_that_left_with_its_prebuilt_workload_is_stopped_and_frees_its_quota(leaves):
    raw, workload = job(prebuilt="pre"), admitted(prebuilt())
    base = situation(raw, workload, prebuilt=workload)
    running = leaves(next(each.new for each in plan(base) if _is_of(each, KIND.job_type)))
    running["status"] = RUNNING
    assert plan(situation(running, workload, prebuilt=workload)) == ()
    ended = {**running, "status": {"phase": "Succeeded"}}
    finish, *_ = plan(situation(ended, workload, prebuilt=workload))
    assert finish.status["conditions"][0]["type"] == "Finished"
    victim = evicted(prebuilt())
    stop, told = plan(situation(running, victim, prebuilt=victim))
    assert (stop.new["spec"]["suspend"], told.reason) == (True, "Stopped")
    gone = {**stop.new, "status": {}}
    assert quota_is_freed(gone, victim, prebuilt=victim)


@LEAVES
def test_a_job_that_ends_after_it_left_finishes_its_workload(leaves):
    """Also one that was suspended when it ended: nothing waits for it."""
    for suspend in (True, False):
        ended = leaves(job(suspend=suspend, status={"phase": "Failed"}))
        finish, *_ = plan(situation(ended, admitted(made())))
        assert isinstance(finish, PatchStatus)
        assert finish.status["conditions"][0]["reason"] == "Failed"


def test_a_second_workload_of_a_job_with_a_prebuilt_one_is_deleted():
    chosen, extra = prebuilt(), made()
    raw = job(prebuilt="pre")
    commands = plan(situation(raw, chosen, extra, prebuilt=chosen))
    assert deleted(commands) == [extra["metadata"]["name"]]
    told, *gone = plan(situation(raw, admitted(extra)))
    assert deleted(gone) == [extra["metadata"]["name"]]
    assert isinstance(told, Emit)
    assert "does not exist" in told.message
    assert not deleted(plan(situation({**raw, "status": RUNNING}, admitted(extra))))


@LEAVES
def test_a_workload_that_only_others_keep_says_nothing_about_a_job_that_left(leaves):
    kept, lives = evicted(made()), made()
    meta = {**kept["metadata"], "name": "kept", "finalizers": ["example.com/licenses.0"]}
    kept = {**kept, "metadata": {**meta, "deletionTimestamp": "2024-01-02T00:00:00Z"}}
    commands = plan(situation(leaves(job()), kept, lives))
    assert deleted(commands) == [lives["metadata"]["name"]]
    running = leaves(job(suspend=False, status=RUNNING))
    assert plan(situation(running, kept)) == ()


# ---- jobs that are about to end


@pytest.mark.parametrize("kind", [Ending, Slow])
def test_a_job_that_is_ending_is_not_stopped_however_its_kind_stops(kind):
    ending = job(suspend=False, status={"phase": "Ending", **RUNNING})
    assert plan(situation(ending, evicted(made()), kind=kind)) == ()


def sets_of(raw, **sets):
    """A job of several pod sets."""
    raw["spec"]["sets"] = sets
    return raw


class Sets(Ending):
    def pod_sets(self):
        counts = self.spec.get("sets", {"main": 3})
        return tuple(PodSet(name, count, TEMPLATE) for name, count in counts.items())


@pytest.mark.parametrize("edit", [{"main": 9}, {"other": 3}, {"main": 3, "other": 1}])
def test_a_job_that_was_edited_before_it_ends_frees_its_quota(edit):
    victim = evicted(made(Sets))
    ending = sets_of(job(suspend=False, status={"phase": "Ending", **RUNNING}), **edit)
    assert plan(situation(ending, victim, kind=Sets)) == ()
    over = sets_of(job(suspend=False, status={"phase": "Ending"}), **edit)
    (free,) = plan(situation(over, victim, kind=Sets))
    assert free.status == {"reclaimablePods": [{"name": "main", "count": 3}]}


def test_an_edited_job_that_is_ending_gives_back_no_more_than_it_holds():
    class Reclaiming(Sets, JobWithReclaimablePods):
        def reclaimable_pods(self):
            return dict.fromkeys(self.spec.get("sets", ()), 1)

    status = {"phase": "Ending", **RUNNING}
    for edit, given in (({"main": 9}, None), ({"other": 3}, 1), ({"main": 2}, 2)):
        ending = sets_of(job(suspend=False, status=status), **edit)
        commands = plan(situation(ending, admitted(made(Sets)), kind=Reclaiming))
        listed = [each["count"] for one in commands for each in one.status["reclaimablePods"]]
        assert listed == ([] if given is None else [given])


def test_a_job_is_asked_for_replacements_although_it_was_edited_while_it_stopped():
    class Replacing(KIND.job_type, JobWithReplacements):
        def after_release(self, workload, now):
            return states.hold_back(workload, "Replacements are missing", now)

    victim = evicted(made(Replacing))
    for raw in (job(), job(workers=5)):
        (freed,) = plan(situation(raw, victim, kind=Replacing))
        assert "Replacements are missing" in str(freed.status["conditions"])


def test_a_stop_that_was_begun_is_completed_although_the_job_is_ending():
    ending = job(suspend=False, status={"phase": "Ending", **RUNNING}, stopping=True)
    (stop,) = plan(situation(ending, evicted(made()), kind=Slow))
    assert stop.new["spec"]["suspend"]


class Many(Ending, ComposableJob):
    def match_workloads(self, workloads, flavors):
        self.pod_sets()
        return Matching(workloads[0] if workloads else None)

    def compose_workload(self):
        return made()

    def run_members(self, infos, message):
        return ()

    def stop_members(self, infos, reason, message, now):
        changed = self.copy()
        changed.suspend()
        return (Change(self.resource, self.raw, changed.raw), Emit(self.raw, "Stopped", message))

    def remove_members(self):
        return ()


def test_a_composed_job_whose_pods_are_unknown_is_stopped_and_frees_its_quota():
    """Its own methods read fields that are not there."""

    class Broken(Many):
        def pod_sets(self):
            return self.spec["gone"]

    held = admitted(made())
    stop, *_ = plan(situation(job(suspend=False, status=RUNNING), held, kind=Broken))
    assert stop.new["spec"]["suspend"]
    assert deleted(plan(situation(job(), held, kind=Broken)))
    ended = job(suspend=False, status={"phase": "Failed"})
    finish, *_ = plan(situation(ended, held, kind=Broken))
    assert finish.status["conditions"][0]["type"] == "Finished"


def test_members_of_a_job_that_is_ending_are_not_stopped():
    running = job(suspend=False, status=RUNNING)
    victim = evicted(made())
    assert plan(situation(running, victim, kind=Many))
    ending = {**running, "status": {"phase": "Ending", **RUNNING}}
    assert plan(situation(ending, victim, kind=Many)) == ()


@pytest.mark.parametrize(
    ("status", "active", "stays"),
    [({}, True, False), ({}, False, True), ({"state": "Retry"}, True, True)],
)
def test_a_job_that_is_invalid_for_a_while_keeps_what_its_checks_have_said(status, active, stays):
    workload = made()
    workload["spec"]["active"] = active
    if status:
        entry = {"name": "check", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        workload["status"] = {"admissionChecks": [{**entry, **status}]}
    assert bool(deleted(plan(situation(job(workers=-1), workload)))) is not stays
    assert not deleted(plan(situation(job(), workload)))


@pytest.mark.parametrize("state", ["Retry", "Ready"])
@pytest.mark.parametrize("active", [True, False])
def test_a_job_that_is_invalid_when_its_last_pod_ends_keeps_what_holds_it(state, active):
    entry = {"name": "check", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    workload = admitted(made())
    workload["spec"]["active"] = active
    workload["status"]["admissionChecks"] = [{**entry, "state": state}]
    victim = states.evict(workload, "AdmissionCheck", "again", NOW - 10)
    stopping = job(workers=-1, status=RUNNING)
    assert not any(isinstance(each, Change) for each in plan(situation(stopping, victim)))
    commands = plan(situation(job(workers=-1), victim))
    if active and state == "Ready":
        assert deleted(commands)
        return
    assert not deleted(commands)
    *_, free = (each for each in commands if isinstance(each, PatchStatus))
    assert free.status["conditions"]
    assert "admission" not in free.status
    released = states.release(victim, NOW)
    assert not deleted(plan(situation(job(workers=-1), released)))
    assert not deleted(plan(situation(job(), released)))
