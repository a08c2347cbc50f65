"""Edits of a job that has a Workload, and what a stop takes away again."""

from __future__ import annotations

import copy
import json

import pytest

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.names import MADE_FROM, MIN_PARALLELISM
from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.commands import Change, Emit, PatchStatus
from kueuelib.jobs.contract.settings import JobSettings, TakenOver
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.jobs.reconcile.written import ADDED_AT_START, remembered
from kueuelib.workload import states

KUEUE = "kueue.x-k8s.io"
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
CLASSES = PriorityClasses(
    pod={name: {"metadata": {"name": name}, "value": value} for name, value in (("a", 1), ("b", 2))}
)
FIELDS = {
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {"a": "b"}},
    "tolerations": [{"key": "a"}],
    "topologySpreadConstraints": [SPREAD],
    "schedulingGates": [{"name": "a"}],
    "resourceClaims": [{"name": "a", "resourceClaimName": "b"}],
    "runtimeClassName": "a",
    "overhead": {"cpu": "1"},
    "schedulerName": "a",
    "hostNetwork": True,
    "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "b"}}],
    "priorityClassName": "b",
}


def edited(job, **fields):
    changed = copy.deepcopy(job)
    changed["spec"]["template"]["spec"].update(copy.deepcopy(fields))
    return changed


def started(build, job, workload):
    """The job after its start, with the note about it."""
    change, _ = plan(build.situation(job, workload))
    return {**change.new, "status": {"active": 1}}


def stopped(job):
    """The job after the first write of its stop, once its controller has looked."""
    seen = {"type": "Suspended", "status": "True"}
    return {**job, "status": {"active": 0, "conditions": [seen]}}


def restored(build, job, workload, **fields):
    """The job after a stop that any manager began."""
    evicted = build.workload(job, admitted=True, evicted="Preempted")
    evicted = {**evicted, "spec": workload["spec"]}
    first, _ = plan(build.situation(job, evicted, **fields))
    (last,) = plan(build.situation(stopped(first.new), evicted, **fields))
    return last.new


@pytest.mark.parametrize("field", FIELDS)
def test_every_part_of_the_template_counts(build, field):
    job = build.job()
    situation = build.situation(
        edited(job, **{field: FIELDS[field]}), build.workload(job), classes=CLASSES
    )
    change, told = plan(situation)
    assert field in change.patch["spec"]["podSets"][0]["template"]["spec"]
    assert told.reason == "UpdatedWorkload"


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_labels_and_annotations_of_the_template_count(build, field):
    job = build.job()
    changed = copy.deepcopy(job)
    changed["spec"]["template"]["metadata"][field] = {"a": "b"}
    change, _ = plan(build.situation(changed, build.workload(job)))
    assert change.patch["spec"]["podSets"][0]["template"]["metadata"] == {field: {"a": "b"}}


@pytest.mark.parametrize("field", ["labelSelector", "namespaceSelector"])
def test_a_selector_of_everything_is_not_the_same_as_none(build, field):
    job = build.job(pod={"topologySpreadConstraints": [SPREAD]})
    changed = edited(job, topologySpreadConstraints=[{**SPREAD, field: {}}])
    assert isinstance(plan(build.situation(changed, build.workload(job)))[0], Change)


def test_host_ports_count(build):
    job = build.job()
    changed = copy.deepcopy(job)
    container = changed["spec"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    (cancel,) = plan(build.situation(changed, build.workload(job, reserved=True)))
    assert isinstance(cancel, PatchStatus)


def test_a_new_priority_does_not_cost_the_reservation(build):
    job = build.job(pod={"priorityClassName": "a"})
    ref = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "a"}
    held = build.workload(job, reserved=True, priority=1, priorityClassRef=ref)
    after = edited(job, priorityClassName="b")
    assert plan(build.situation(after, held, classes=CLASSES)) == ()
    waits = build.workload(job, priority=1, priorityClassRef=ref)
    change, told = plan(build.situation(after, waits, classes=CLASSES))
    assert change.patch["spec"]["priority"] == 2
    assert change.patch["spec"]["priorityClassRef"] == {"name": "b"}
    assert told.reason == "UpdatedWorkload"


def test_a_new_time_limit_costs_the_reservation(build):
    job, label = build.job(), f"{KUEUE}/max-exec-time-seconds"
    held = build.workload(job, reserved=True)
    changed = copy.deepcopy(job)
    changed["metadata"]["labels"][label] = "7"
    (cancel,) = plan(build.situation(changed, held))
    assert isinstance(cancel, PatchStatus)
    (change,) = plan(build.situation(changed, build.workload(job)))
    assert change.patch["spec"] == {"maximumExecutionTimeSeconds": 7}


def test_a_workload_whose_fields_the_server_drops_is_updated_once(build):
    """The CRD may be older than the cluster."""
    job = build.job(pod={"aFieldOfTheFuture": "a"})
    workload = build.workload(build.job())
    change, _ = plan(build.situation(job, workload))
    after = copy.deepcopy(change.new)
    del after["spec"]["podSets"][0]["template"]["spec"]["aFieldOfTheFuture"]
    assert plan(build.situation(job, after)) == ()
    again = edited(job, nodeSelector={"a": "b"})
    assert isinstance(plan(build.situation(again, after))[0], Change)


def with_container(obj, **fields):
    changed = copy.deepcopy(obj)
    changed["spec"]["template"]["spec"]["containers"][0].update(fields)
    return changed


def as_stored_by_an_old_server(workload):
    """The CRD may be older than the cluster, and lack a field of containers."""
    stored = copy.deepcopy(workload)
    for entry in stored["spec"]["podSets"]:
        entry["template"]["spec"]["containers"][0].pop("aFieldOfTheFuture", None)
    return stored


def test_a_container_whose_field_the_server_drops_costs_one_update(build):
    job = with_container(build.job(), aFieldOfTheFuture="a")
    change, _ = plan(build.situation(job, as_stored_by_an_old_server(build.workload(job))))
    stored = as_stored_by_an_old_server(change.new)
    assert set(stored["metadata"]["annotations"]) == {MADE_FROM}
    assert plan(build.situation(job, stored)) == ()
    for changed in (
        {**job, "spec": {**job["spec"], "parallelism": 2}},
        with_container(job, aFieldOfTheFuture="b"),
        with_container(job, image="other"),
    ):
        assert isinstance(plan(build.situation(changed, stored))[0], Change)


def test_a_running_container_whose_field_the_server_drops_continues(build):
    job = with_container(build.job(), aFieldOfTheFuture="a")
    change, _ = plan(build.situation(job, as_stored_by_an_old_server(build.workload(job))))
    admitted = build.workload(job, admitted=True, meta=change.new["metadata"])
    admitted = as_stored_by_an_old_server(admitted)
    running = started(build, job, admitted)
    assert plan(build.situation(running, admitted)) == ()
    stop, _ = plan(build.situation(with_container(running, image="other"), admitted))
    assert stop.patch["spec"] == {"suspend": True}


def written(old, new):
    """What an old server stores of an update; only a change of the spec counts as one."""
    stored = as_stored_by_an_old_server(new)
    changed = stored["spec"] != old["spec"]
    stored["metadata"]["generation"] = old["metadata"]["generation"] + changed
    return stored


def updated(build, job, workload):
    """The Workload when no update is left, and how many there were."""
    updates = 0
    while commands := plan(build.situation(job, workload)):
        workload, updates = written(workload, commands[0].new), updates + 1
        assert updates < 5, "there is no end of it"
    return workload, updates


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("edit", ["other", "before"])
def test_a_workload_that_was_edited_by_hand_is_updated_again(build, drops, edit):
    """Also if the edit restores what an update has replaced, again and again."""
    job = with_container(build.job(), **({"aFieldOfTheFuture": "a"} if drops else {}))
    before = build.workload(build.job(parallelism=1), meta={"generation": 1})
    stored, updates = updated(build, job, before)
    assert updates == 1 + drops
    wanted, spec = stored["spec"], copy.deepcopy(before["spec"])
    if edit == "other":
        container = spec["podSets"][0]["template"]["spec"]["containers"][0]
        container["resources"]["requests"]["cpu"] = "1m"
    for _ in range(3):
        (cancel,) = plan(build.situation(job, {**held_by(build, job), "spec": spec}))
        assert "admission" not in cancel.status
        stored, updates = updated(build, job, written(stored, {**stored, "spec": spec}))
        assert stored["spec"] == wanted
        assert updates == 1 + drops


def test_a_reservation_outlives_edits_of_what_it_does_not_fix(build):
    """The server drops a field of the pod sets, and the priority is changed in the Workload."""
    job = with_container(build.job(), aFieldOfTheFuture="a")
    waits, _ = updated(build, job, build.workload(build.job(parallelism=1), meta={"generation": 1}))
    admission = held_by(build, job)["status"]["admission"]
    held = states.reserve(waits, admission, (), 0)
    raised = written(held, {**held, "spec": {**held["spec"], "priority": 7}})
    assert raised["metadata"]["generation"] > waits["metadata"]["generation"]
    running = started(build, job, raised)
    assert running["spec"]["suspend"] is False
    assert plan(build.situation(running, raised)) == ()


def held_by(build, job):
    return build.workload(job, reserved=True)


def test_what_the_status_says_about_other_pods_is_taken_back_before_they_change(build):
    job = build.job(parallelism=2)
    checks = [
        {"name": name, "state": state, "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        for name, state in (("asked", "Pending"), ("early", "Ready"), ("later", "Retry"))
    ]
    workload = build.workload(build.job(parallelism=4), checks=checks)
    workload["status"]["reclaimablePods"] = [{"name": "main", "count": 3}]
    answers, reclaimed, change, _ = plan(build.situation(job, workload))
    states_after = [each["state"] for each in answers.status["admissionChecks"]]
    assert states_after == ["Pending", "Pending", "Retry"]
    assert (reclaimed.status, reclaimed.versioned) == ({"reclaimablePods": None}, True)
    assert change.patch["spec"]["podSets"][0]["count"] == 2


def test_a_workload_stays_out_of_its_queue_until_it_matches_its_job(build):
    """If the server refuses its update, it must not get quota again and again."""
    job, other = build.job(parallelism=2), build.job()
    (cancel,) = plan(build.situation(job, build.workload(other, reserved=True)))
    held = {**build.workload(other), "status": cancel.status}
    assert states.is_held_back(held)
    update, _ = plan(build.situation(job, held))
    (again,) = plan(build.situation(job, update.new))
    assert not states.is_held_back({**update.new, "status": again.status})
    assert plan(build.situation(job, {**update.new, "status": again.status})) == ()


def test_a_note_in_a_copy_of_a_job_is_about_another_job(build):
    job = build.job()
    running = started(build, job, build.workload(job, admitted=True))
    assert remembered(BatchJob(running)) is not None
    running["metadata"]["uid"] = "of the copy"
    assert remembered(BatchJob(running)) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"job": "job-uid", "podSets": [1]}'])
def test_a_note_that_was_edited_by_hand_does_not_count(build, text):
    assert remembered(BatchJob(build.job(annotations={ADDED_AT_START: text}))) is None


def test_the_note_has_only_what_was_added(build):
    toleration = build.spot["spot"]["spec"]["tolerations"][0]
    job = build.job(pod={"nodeSelector": {"pool": "spot"}, "tolerations": [toleration]})
    running = started(build, job, build.workload(job, admitted=True))
    note = json.loads(running["metadata"]["annotations"][ADDED_AT_START])
    assert note["podSets"] == [{"name": "main", **build.origin}]
    kept = restored(build, running, build.workload(job))["spec"]["template"]["spec"]
    assert kept["nodeSelector"] == {"pool": "spot"}
    assert kept["tolerations"] == [toleration]


def test_a_tool_that_takes_its_fields_back_neither_stops_the_job_nor_loses_them(build):
    """A server-side apply owns the selector and the list of tolerations as a whole."""
    job = build.job(pod={"nodeSelector": {"a": "b"}, "tolerations": [{"key": "own"}]})
    workload = build.workload(job, admitted=True)
    running = started(build, job, workload)
    applied = edited(running, nodeSelector={"a": "b"}, tolerations=[{"key": "own"}])
    assert plan(build.situation(applied, workload)) == ()
    kept = restored(build, applied, workload)["spec"]["template"]["spec"]
    assert kept == job["spec"]["template"]["spec"]


def test_a_value_that_was_changed_since_the_start_stays(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    changed = edited(started(build, job, workload), nodeSelector={"pool": "own"})
    kept = restored(build, changed, workload)["spec"]["template"]["spec"]
    assert kept["nodeSelector"] == {"pool": "own"}


def test_a_note_about_a_start_that_another_manager_has_undone_does_not_count(build):
    job = build.job()
    first = started(build, job, build.workload(job, admitted=True))
    again = edited(first, nodeSelector={"zone": "a"}, tolerations=[])
    evicted = build.workload(
        job,
        admitted=True,
        evicted="Preempted",
        created="2024-01-02T00:00:00Z",
        flavors={"cpu": "other"},
    )
    flavors = {**build.spot, "other": build.flavor({"zone": "a"})}
    begun, _ = plan(build.situation(again, evicted, flavors=flavors))
    (last,) = plan(build.situation(stopped(begun.new), evicted, flavors=flavors))
    assert not last.new["spec"]["template"]["spec"].get("nodeSelector")


def test_an_edit_while_the_job_stops_is_kept(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    evicted = build.workload(job, admitted=True, evicted="Preempted")
    first, _ = plan(build.situation(started(build, job, workload), evicted))
    changed = stopped(first.new)
    changed["spec"]["template"]["spec"]["nodeSelector"]["own"] = "a"
    (last,) = plan(build.situation(changed, evicted))
    assert last.new["spec"]["template"]["spec"]["nodeSelector"] == {"own": "a"}
    assert last.versioned, "it fails if there is an edit that it does not know"
    assert ADDED_AT_START not in last.new["metadata"]["annotations"]


def test_an_edit_between_an_admission_and_the_deletion_of_its_workload_is_kept(build):
    """The job was never started: nothing of it has to be restored."""
    job = build.job()
    gone = {"deletionTimestamp": "2024-01-01T00:00:00Z"}
    deleted = build.workload(job, admitted=True, meta=gone)
    commands = plan(build.situation(edited(job, nodeSelector={"c": "d"}), deleted))
    assert commands
    assert all(command.resource == WORKLOADS for command in commands)


def test_fewer_pods_reclaimable_ones_and_an_edit_go_together(build):
    job = build.job(parallelism=4, annotations={MIN_PARALLELISM: "1"})
    workload = build.workload(job, admitted=True, count=2)
    running = started(build, job, workload)
    assert running["spec"]["parallelism"] == 2
    running["status"] = {"active": 1, "succeeded": 1}
    (report,) = plan(build.situation(running, workload))
    assert report.status == {"reclaimablePods": [{"name": "main", "count": 3}]}
    last = restored(build, {**running, "status": {"active": 1}}, workload)
    assert last["spec"]["parallelism"] == 4
    waiting = build.workload(job)
    change, _ = plan(build.situation(edited(last, nodeSelector={"own": "a"}), waiting))
    (pod_set,) = change.new["spec"]["podSets"]
    assert (pod_set["count"], pod_set["minCount"]) == (4, 1)
    assert pod_set["template"]["spec"]["nodeSelector"] == {"own": "a"}


ELASTIC = "kueue.x-k8s.io/elastic-job"


def test_a_request_for_a_missing_feature_comes_and_goes_with_the_job(build):
    asking, plain = build.job(annotations={ELASTIC: "true"}), build.job()
    change, *_ = plan(build.situation(asking, build.workload(plain)))
    assert change.new["metadata"]["annotations"] == {ELASTIC: "true"}
    change, *_ = plan(build.situation(plain, change.new))
    assert not change.new["metadata"].get("annotations")


def test_a_request_for_a_missing_feature_costs_nobody_a_reservation(build):
    """A manager that did not know it may have reserved quota just before an update."""
    asking = build.job(annotations={ELASTIC: "true"})
    held = build.workload(build.job(), reserved=True)
    commands = plan(build.situation(asking, held))
    assert not any(isinstance(each, PatchStatus) for each in commands)


def test_what_runs_without_what_its_job_asks_for_has_it_on_record(build):
    """Older versions, and the Go manager, may have started it."""
    job = build.job(annotations={ELASTIC: "true"})
    running = build.started(job, active=3)
    for state, seen in ((running, "admitted"), (job, "admitted")):
        workload = build.workload(build.job(), **{seen: True})
        change, told = plan(build.situation(state, workload))
        assert change.patch["metadata"]["annotations"] == {ELASTIC: "true"}
        assert told.reason == "UpdatedWorkload"
    assert plan(build.situation(running, change.new)) == ()


@pytest.mark.parametrize("where", ["job", "template"])
def test_a_prebuilt_workload_asks_for_what_its_job_asks_for(build, where):
    job = build.job(labels={f"{KUEUE}/prebuilt-workload-name": "made"})
    made = build.workload(job, name="made")
    assert plan(build.situation(job, made, prebuilt=made)) == ()
    asker = job if where == "job" else job["spec"]["template"]
    asker.setdefault("metadata", {})["annotations"] = {ELASTIC: "true"}
    change, _ = plan(build.situation(job, made, prebuilt=made))
    assert change.patch["metadata"]["annotations"] == {ELASTIC: "true"}
    commands = plan(build.situation(job, change.new, prebuilt=change.new))
    assert not any(isinstance(each, Change) for each in commands)


def test_quota_from_before_a_prebuilt_workload_had_its_job_is_no_way_around(build):
    job = build.job(labels={f"{KUEUE}/prebuilt-workload-name": "made"})
    held = build.workload(job, name="made", reserved=True)
    del held["metadata"]["ownerReferences"]
    (change,) = plan(build.situation(job, prebuilt=held))
    assert "annotations" not in change.patch["metadata"]
    job["metadata"]["annotations"] = {ELASTIC: "true"}
    (change,) = plan(build.situation(job, prebuilt=held))
    assert change.patch["metadata"] == {"annotations": {ELASTIC: "true"}}
    (free,) = plan(build.situation(job, prebuilt=change.new))
    assert "admission" not in free.status
    assert change.new["metadata"]["annotations"] == {ELASTIC: "true"}
    job["metadata"]["annotations"] = {ELASTIC: "false"}
    (change,) = plan(build.situation(job, prebuilt=held))
    (change,) = plan(build.situation(job, prebuilt=change.new))
    assert change.patch["metadata"]["ownerReferences"]


PARAMETER = "provreq.kueue.x-k8s.io/limit"


def test_an_edit_of_a_parameter_of_requests_for_nodes_is_an_edit_of_the_job(build):
    job = build.job(annotations={PARAMETER: "2"})
    old = {"annotations": {PARAMETER: "1", f"{PARAMETER}-gone": "1", "other": "stays"}}
    change, told = plan(build.situation(job, build.workload(job, meta=old)))
    made_from = change.new["metadata"]["annotations"].pop(MADE_FROM)
    assert change.new["metadata"]["annotations"] == {PARAMETER: "2", "other": "stays"}
    assert made_from
    assert told.reason == "UpdatedWorkload"
    (cancel,) = plan(build.situation(job, build.workload(job, reserved=True, meta=old)))
    assert "admission" not in cancel.status
    running = build.started(job, active=3)
    assert plan(build.situation(running, build.workload(job, admitted=True, meta=old))) == ()


@pytest.mark.parametrize("reserved", [False, True])
def test_the_workload_follows_labels_that_it_takes_over_and_keeps_its_reservation(build, reserved):
    settings = JobSettings(taken_over=TakenOver(("team",), ("note",)))
    job = build.job(labels={"team": "b"}, annotations={"note": "new", "own": "x"})
    workload = build.workload(job, reserved=reserved)
    workload["metadata"]["labels"]["team"] = "a"
    change, told = plan(build.situation(job, workload, settings=settings))
    wanted = {"labels": {"team": "b"}, "annotations": {"note": "new"}}
    assert change.patch == {"metadata": wanted}
    assert told.reason == "UpdatedWorkload"
    assert plan(build.situation(job, change.new, settings=settings)) == ()


def prebuilt(build, job, **spec):
    ref = {"group": KUEUE, "kind": "WorkloadPriorityClass", "name": "chosen"}
    fields = {"maximumExecutionTimeSeconds": 60, "priority": 5, "priorityClassRef": ref, **spec}
    return build.workload(job, name="made", **fields)


def test_what_a_prebuilt_workload_says_stays_as_long_as_its_job_says_nothing(build):
    settings = JobSettings(manage_jobs_without_queue_name=True, taken_over=TakenOver(("team",)))
    job = build.job(queue=None, labels={f"{KUEUE}/prebuilt-workload-name": "made", "team": "a"})
    made = prebuilt(build, job, queueName="its own")
    assert plan(build.situation(job, made, prebuilt=made, settings=settings)) == ()


@pytest.mark.parametrize(
    ("label", "value", "field"),
    [
        ("queue-name", "other", "queueName"),
        ("max-exec-time-seconds", "7", "maximumExecutionTimeSeconds"),
        ("priority-class", "a", "priority"),
    ],
)
def test_a_prebuilt_workload_follows_the_labels_that_its_job_has(build, label, value, field):
    job = build.job(labels={f"{KUEUE}/prebuilt-workload-name": "made"})
    made = prebuilt(build, job)
    job["metadata"]["labels"][f"{KUEUE}/{label}"] = value
    classes = PriorityClasses(workload=CLASSES.pod)
    change, *_ = plan(build.situation(job, made, prebuilt=made, classes=classes))
    assert field in change.patch["spec"]


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_prebuilt_workload_with_other_templates_is_reported_and_stays(build, where):
    job = build.job(**{where: {f"{KUEUE}/prebuilt-workload-name": "made"}})
    made = build.workload(job, name="made")
    assert plan(build.situation(job, made, prebuilt=made)) == ()
    (told,) = plan(build.situation(edited(job, nodeSelector={"a": "b"}), made, prebuilt=made))
    assert isinstance(told, Emit)
    assert (told.reason, told.type) == ("OutOfSync", "Warning")
