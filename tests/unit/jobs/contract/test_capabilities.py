"""Kinds of jobs other than batch Job: one patch to stop, finalizers, and many members."""

from __future__ import annotations

import copy

import attrs
import pytest

from kueuelib.api.kinds import JOBS, WORKLOADS
from kueuelib.api.meta import Resource
from kueuelib.api.names import (
    CLUSTER_QUEUE_LABEL,
    IN_USE_FINALIZER,
    LOCAL_QUEUE_LABEL,
    POD_SET_LABEL,
    WORKLOAD_ANNOTATION,
)
from kueuelib.errors import InvalidJob
from kueuelib.jobs import same_templates
from kueuelib.jobs.contract.capabilities import (
    ComposableJob,
    JobWithEquivalence,
    JobWithFinalize,
    JobWithPriorityClass,
    JobWithSkip,
    Matching,
)
from kueuelib.jobs.contract.commands import (
    Change,
    Create,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
    RequeueAfter,
)
from kueuelib.jobs.contract.generic_job import GenericJob, JobEnd, PodSet
from kueuelib.jobs.contract.podset_info import PodSetInfo, merge, restore
from kueuelib.jobs.lookups.owners import Ancestor
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.matching import is_equivalent
from kueuelib.jobs.reconcile.plan import INVALID_RETRY, plan
from kueuelib.jobs.reconcile.priority import PriorityClasses, PriorityClassNotFound, resolve
from kueuelib.jobs.reconcile.written import ADDED_AT_START, between
from kueuelib.workload import states

TRAININGS = Resource("example.com", "v1", "trainings", "Training", namespaced=True)
SINCE = {"lastTransitionTime": "2024-01-01T00:00:00Z"}
TEMPLATE = {"spec": {"containers": [{"name": "c"}]}}


class Training(GenericJob, JobWithFinalize, JobWithSkip, JobWithPriorityClass):
    """A launcher and its workers."""

    resource = TRAININGS

    @property
    def spec(self):
        return self.object["spec"]

    def is_suspended(self):
        return self.spec["suspend"]

    def suspend(self):
        self.spec["suspend"] = True

    def run_with_podsets_info(self, infos):
        self.spec["suspend"] = False
        for role, info in zip(("launcher", "workers"), infos, strict=True):
            merge(self.spec[role], info)

    def restore_podsets_info(self, infos):
        pairs = zip(("launcher", "workers"), infos, strict=True)
        return sum(restore(self.spec[role], info) for role, info in pairs) > 0

    def finished(self):
        phase = self.object.get("status", {}).get("phase")
        return JobEnd(phase == "Done", phase) if phase in ("Done", "Broken") else None

    def pod_sets(self):
        return (
            PodSet("launcher", 1, copy.deepcopy(self.spec["launcher"])),
            PodSet("workers", self.spec["count"], copy.deepcopy(self.spec["workers"])),
        )

    def is_active(self):
        return bool(self.object.get("status", {}).get("pods"))

    def pods_ready(self):
        return True

    def finalize(self):
        if "example.com/hold" not in self.object["metadata"].get("finalizers", ()):
            return ()
        return (DropFinalizer(TRAININGS, self.object, "example.com/hold"),)

    def skip(self):
        return self.object["metadata"]["labels"].get("ours") == "no"

    def priority_class(self):
        return self.spec.get("class", "")


def training(**fields):
    meta = {
        "name": "t",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "1",
        "labels": {"kueue.x-k8s.io/queue-name": "main", **fields.pop("labels", {})},
        "finalizers": ["example.com/hold"],
    }
    status = fields.pop("status", {})
    spec = {
        "suspend": True,
        "count": 2,
        "launcher": copy.deepcopy(TEMPLATE),
        "workers": copy.deepcopy(TEMPLATE),
        **fields,
    }
    return {"apiVersion": "example.com/v1", "kind": "Training", "metadata": meta, "spec": spec,
            "status": status}  # fmt: skip


FLAVORS = {"a": {"spec": {"nodeLabels": {"pool": "a"}}}, "b": {"spec": {"nodeLabels": {"x": "b"}}}}


def situation(obj, *workloads, **fields):
    return JobSnapshot(
        Training(obj), 1_700_000_000.0, workloads=workloads, flavors=FLAVORS, **fields
    )


def admitted(obj, **status):
    create = plan(situation(obj))[0]
    wl = copy.deepcopy(create.obj)
    wl["metadata"].update(uid="wl", resourceVersion="1")
    wl["status"] = {
        "conditions": [
            {**SINCE, "type": name, "status": "True", "reason": name, "message": "m"}
            for name in ("QuotaReserved", "Admitted")
        ],
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {"name": "workers", "flavors": {"cpu": "b"}, "count": 2},
                {"name": "launcher", "flavors": {"cpu": "a"}, "count": 1},
            ],
        },
        **status,
    }
    return wl


def notes(obj):
    return obj["metadata"]["annotations"][ADDED_AT_START]


def origin(name, pod_set):
    queues = {CLUSTER_QUEUE_LABEL: "cq", LOCAL_QUEUE_LABEL: "main"}
    return {
        "labels": {POD_SET_LABEL: pod_set, **queues},
        "annotations": {WORKLOAD_ANNOTATION: name},
    }


def test_pod_sets_are_assigned_by_name_not_by_position():
    obj = training()
    workload, change, event = plan(situation(obj, admitted(obj)))
    assert workload.patch["metadata"] == {"annotations": {ADDED_AT_START: notes(change.new)}}
    name = workload.new["metadata"]["name"]
    assert change.patch["spec"] == {
        "suspend": False,
        "launcher": {"spec": {"nodeSelector": {"pool": "a"}}, "metadata": origin(name, "launcher")},
        "workers": {"spec": {"nodeSelector": {"x": "b"}}, "metadata": origin(name, "workers")},
    }
    assert event.reason == "Started"


def test_a_plain_kind_is_stopped_and_restored_with_one_patch():
    obj = training()
    wl = evicted(admitted(obj))
    running = plan(situation(obj, admitted(obj)))[1].new
    change, event = plan(situation(running, wl))
    assert change.new["spec"] == obj["spec"]
    assert (event.reason, event.message) == ("Stopped", "room")


def evicted(workload):
    reason = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "room"}
    workload["status"]["conditions"].append(reason)
    return workload


def test_a_note_that_was_removed_is_on_the_workload_as_well():
    obj = training()
    workload, change, _ = plan(situation(obj, admitted(obj)))
    started = copy.deepcopy(change.new)
    del started["metadata"]["annotations"]
    started["spec"]["launcher"]["spec"]["nodeSelector"]["own"] = "edit"
    flavors = {name: {"spec": {"nodeLabels": {"changed": "since"}}} for name in FLAVORS}
    left = JobSnapshot(Training(started), 1_700_000_000.0, workloads=(evicted(workload.new),))
    stopping, _ = plan(attrs.evolve(left, flavors=flavors))
    assert stopping.new["spec"]["launcher"]["spec"].pop("nodeSelector") == {"own": "edit"}
    assert stopping.new["spec"] == obj["spec"]


def test_a_count_of_the_file_that_replaced_a_job_stays():
    """Everything that the start added is there, because it added nothing; but not its count."""
    before, after = PodSetInfo("workers", 3), PodSetInfo("workers", 1)
    added = between(before, after)
    assert added.are_untouched_in(after)
    assert not added.are_untouched_in(before)
    assert between(before, before).are_untouched_in(after), "the start did not change it"


def test_a_job_with_another_origin_has_not_been_replaced():
    """The note is ours; another manager, which writes less about the origin, started the job."""
    before = PodSetInfo("workers", 3)
    after = PodSetInfo(
        "workers",
        3,
        labels={POD_SET_LABEL: "workers"},
        annotations={WORKLOAD_ANNOTATION: "w"},
        node_selector={"pool": "spot"},
    )
    added = between(before, after)
    less = attrs.evolve(after, labels={}, annotations={WORKLOAD_ANNOTATION: "w"})
    assert added.are_untouched_in(less)
    assert added.taken_from(less) == before
    assert not added.are_untouched_in(attrs.evolve(after, node_selector={}))


def test_finalizers_of_the_kind_go_when_it_has_ended():
    obj = training(status={"phase": "Done"})
    wl = admitted(training())
    finalizers = [
        found.finalizer for found in plan(situation(obj, wl)) if hasattr(found, "finalizer")
    ]
    assert finalizers == ["example.com/hold", "kueue.x-k8s.io/resource-in-use"]


def test_an_object_that_is_none_of_our_business_is_skipped():
    assert plan(situation(training(labels={"ours": "no"}, suspend=False))) == ()


@pytest.mark.parametrize("status", [{}, {"conditions": []}], ids=["admitted", "waiting"])
def test_a_job_that_is_skipped_while_it_waits_loses_its_workload(status):
    workload = admitted(training(), **status)
    commands = plan(situation(training(labels={"ours": "no"}), workload))
    assert Delete(WORKLOADS, workload) in commands


def test_a_job_that_is_skipped_while_it_runs_is_stopped_when_it_is_evicted():
    start = situation(training(), admitted(training()))
    running = plan(start)[1].new
    running["metadata"]["labels"]["ours"] = "no"
    assert plan(situation(running, start.workloads[0])) == ()
    assert plan(situation(running)) == ()
    child = situation(running, *start.workloads, ancestor=Ancestor("owner", admitted=False))
    assert plan(child) == ()
    stopping, _ = plan(situation(running, evicted(start.workloads[0])))
    assert stopping.new["spec"]["suspend"]


class Picky(Training, JobWithEquivalence):
    """Only matches Workloads with a label."""

    def is_equivalent(self, workload):
        return "example.com/mine" in workload["metadata"]["labels"]


@pytest.mark.parametrize("suspend", [True, False], ids=["waiting", "running"])
def test_a_kind_that_compares_more_still_compares_its_pod_sets(suspend):
    workload = admitted(training())
    del workload["status"]
    other = situation(training(suspend=suspend), workload)
    matches = is_equivalent(other, Picky(other.job.object))
    assert not matches(workload)
    workload["metadata"]["labels"]["example.com/mine"] = "yes"
    assert matches(workload)
    workload["spec"]["podSets"][1]["count"] = 7
    assert not matches(workload)


class Never(Training, JobWithEquivalence):
    def is_equivalent(self, workload):
        return False


def test_a_kind_that_accepts_no_workload_gets_none_and_is_told_so():
    told = "Nothing can be queued: Never.is_equivalent(): is False for the Workload that is made"
    made = situation(training())
    warning, again = plan(attrs.evolve(made, job=Never(training())))
    assert (warning.reason, warning.type) == ("ErrWorkloadCompose", "Warning")
    assert warning.message.startswith(told)
    assert again.seconds == INVALID_RETRY

    wl = admitted(training())
    del wl["status"]
    *left, warning, again = plan(attrs.evolve(situation(training(), wl), job=Never(training())))
    assert [type(one) for one in left] == [DropFinalizer, Delete, Emit]
    assert warning.message.startswith(told)
    assert again.seconds == INVALID_RETRY


class Unstored(Training, JobWithEquivalence):
    """Rejects what the API server has stored."""

    def is_equivalent(self, workload):
        return any("tolerations" in one["template"]["spec"] for one in workload["spec"]["podSets"])


def test_a_workload_that_its_kind_rejects_is_not_updated_twice():
    def stored(workload):
        """What a server with an older CRD keeps."""
        for one in workload["spec"]["podSets"]:
            one["template"]["spec"].pop("tolerations", None)
        return workload

    obj = training()
    obj["spec"]["workers"]["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]
    wl = admitted(obj)
    del wl["status"]
    seen = attrs.evolve(situation(obj, stored(wl)), job=Unstored(obj))
    change, event = plan(seen)
    assert event.reason == "UpdatedWorkload"
    again = attrs.evolve(seen, workloads=(stored(copy.deepcopy(change.new)),))
    *left, warning, _ = plan(again)
    assert [type(one) for one in left] == [DropFinalizer, Delete, Emit]
    assert "Unstored.is_equivalent(): rejects the Workload training-t-" in warning.message


def test_the_kind_may_know_its_priority_class_elsewhere():
    classes = PriorityClasses(pod={"high": {"metadata": {"name": "high"}, "value": 9}})
    job = Training(training(**{"class": "high"}))
    assert resolve(job, job.pod_sets(), classes).value == 9
    with pytest.raises(PriorityClassNotFound, match="high"):
        resolve(job, job.pod_sets(), PriorityClasses())


def test_a_priority_class_that_the_kind_no_longer_names_is_not_kept():
    classes = PriorityClasses(pod={"high": {"metadata": {"name": "high"}, "value": 9}})
    default = {"metadata": {"name": "low"}, "value": 2, "globalDefault": True}
    before = attrs.evolve(situation(training(**{"class": "high"})), classes=classes)
    made = plan(before)[0].obj
    assert made["spec"]["priority"] == 9
    for known, priority, name in ((classes.pod, 0, None), ({"low": default}, 2, "low")):
        seen = situation(training(), made)
        (change, event) = plan(attrs.evolve(seen, classes=PriorityClasses(pod=known)))
        ref = change.new["spec"].get("priorityClassRef") or {}
        assert (change.new["spec"]["priority"], ref.get("name")) == (priority, name)
        assert event.reason == "UpdatedWorkload"
        again = situation(training(), change.new)
        assert plan(attrs.evolve(again, classes=PriorityClasses(pod=known))) == ()
    held = admitted(training())
    held["spec"] |= {key: made["spec"][key] for key in ("priority", "priorityClassRef")}
    running = training()
    running["spec"]["suspend"] = False
    assert plan(attrs.evolve(situation(running, held), classes=classes)) == ()


def test_the_lowest_of_several_global_defaults_counts():
    classes = PriorityClasses(
        pod={
            name: {"metadata": {"name": name}, "value": value, "globalDefault": default}
            for name, value, default in (("a", 5, True), ("b", 3, True), ("c", 1, False))
        }
    )
    job = Training(training())
    found = resolve(job, job.pod_sets(), classes)
    assert (found.name, found.value) == ("b", 3)


# ---- a job of many objects


class Flock(Training, ComposableJob):
    def match_workloads(self, workloads, flavors):
        return Matching(workloads[0] if workloads else None)

    def compose_workload(self):
        if self.spec["count"] < 2:
            return (Emit(self.object, "ErrWorkloadCompose", "too few", "Warning"),)
        pod_sets = [entry.raw() for entry in self.pod_sets()]
        meta = {"name": "flock", "namespace": "ns", **self.spec.get("meta", {})}
        return {"metadata": meta, "spec": {"podSets": pod_sets, **self.spec.get("fixed", {})}}

    def run_members(self, infos, message):
        return tuple(Emit(self.object, "Started", f"{info.name}: {message}") for info in infos)

    def stop_members(self, infos, reason, message, now):
        if self.is_suspended():
            return ()
        return (Emit(self.object, "Stopped", f"{len(infos)} {reason}"),)

    def remove_members(self):
        return (Emit(self.object, "Removed", ""),)


def flock(obj, *workloads):
    return JobSnapshot(Flock(obj), 1_700_000_000.0, workloads=workloads, flavors=FLAVORS)


def test_a_flock_composes_its_workload_or_says_why_it_cannot():
    create, event = plan(flock(training()))
    assert isinstance(create, Create)
    assert create.obj["metadata"]["name"] == "flock"
    assert event.reason == "CreatedWorkload"
    (refused,) = plan(flock(training(count=1)))
    assert refused.message == "too few"


def test_a_flock_has_the_priority_of_its_job_unless_it_says_another():
    classes = PriorityClasses(pod={"high": {"metadata": {"name": "high"}, "value": 9}})
    for fixed, priority in (({}, 9), ({"priority": 4}, 4)):
        made = flock(training(**{"class": "high"}, fixed=fixed))
        assert plan(attrs.evolve(made, classes=classes))[0].obj["spec"]["priority"] == priority
    missing, again = plan(flock(training(**{"class": "high"})))
    assert (missing.reason, type(again)) == ("ErrWorkloadCompose", RequeueAfter)


@pytest.mark.parametrize("owned", [True, False], ids=["owned", "unowned"])
def test_a_composed_workload_gets_what_shows_that_it_is_that_of_its_job(owned):
    """Else nobody could find it by its job, and it would outlive it."""
    owner = {"apiVersion": "example.com/v1", "kind": "Training", "name": "t", "uid": "u"}
    owner = {**owner, "controller": True, "blockOwnerDeletion": True}
    meta = {"ownerReferences": [owner]} if owned else {}
    create, _ = plan(flock(training(meta={**meta, "labels": {"a": "b"}, "finalizers": ["c/d"]})))
    assert create.obj["metadata"] == {
        "name": "flock",
        "namespace": "ns",
        "labels": {"a": "b", "kueue.x-k8s.io/job-uid": "u"},
        "finalizers": ["c/d", "kueue.x-k8s.io/resource-in-use"],
        "ownerReferences": [owner],
    }


def test_a_composed_workload_may_have_more_owners_but_no_other_controller():
    plain = {"apiVersion": "example.com/v1", "kind": "Training", "name": "t", "uid": "u"}
    member = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}
    create, _ = plan(flock(training(meta={"ownerReferences": [plain, member]})))
    controller = {**plain, "controller": True, "blockOwnerDeletion": True}
    assert create.obj["metadata"]["ownerReferences"] == [member, controller]
    left = flock(training(labels={"ours": "no"}), create.obj)
    assert Delete(WORKLOADS, create.obj) in plan(left)
    told, again = plan(flock(training(meta={"ownerReferences": [{**member, "controller": True}]})))
    assert "compose_workload(): makes the Pod p the controller" in told.message
    assert again.seconds == INVALID_RETRY


def test_a_flock_that_leaves_its_queue_loses_its_workload():
    """Also one that was composed before the framework gave it its label."""
    made = plan(flock(training()))[0].obj
    without = {**made, "metadata": {**made["metadata"], "labels": {}}}
    for workload in (made, without):
        gone = flock(training(labels={"ours": "no"}), workload)
        assert Delete(WORKLOADS, workload) in plan(gone)


class Herd(Flock):
    """Compares its Workloads, and polls."""

    def match_workloads(self, workloads, flavors):
        fits = [each for each in workloads if same_templates(self.pod_sets(), each)]
        return Matching(
            fits[0] if fits else None,
            tuple(each for each in workloads if each not in fits),
            (RequeueAfter("poll", 30.0),),
        )


def test_a_composable_job_that_compares_has_its_edits_followed():
    wl = admitted(training())
    del wl["status"]
    edited = training()
    edited["spec"]["workers"]["spec"]["nodeSelector"] = {"a": "b"}
    poll, change, event = plan(attrs.evolve(flock(edited, wl), job=Herd(edited)))
    assert poll == RequeueAfter("poll", 30.0)
    assert change.new["spec"]["podSets"] == [each.raw() for each in Herd(edited).pod_sets()]
    assert event.reason == "UpdatedWorkload"


class Lost(Flock):
    def match_workloads(self, workloads, flavors):
        raise InvalidJob("spec.members", "must be a list")


def test_a_finished_flock_that_cannot_read_itself_releases_its_quota():
    obj, wl = training(suspend=False, status={"phase": "Done"}), admitted(training())
    seen = attrs.evolve(flock(obj, wl), job=Lost(obj))
    (finish, *_) = (one for one in plan(seen) if isinstance(one, PatchStatus))
    assert [one["type"] for one in finish.status["conditions"]] == ["Finished"]
    ended = states.finish(wl, "Succeeded", "done", 0.0)
    released = plan(attrs.evolve(seen, workloads=(ended,)))
    dropped = [one.finalizer for one in released if isinstance(one, DropFinalizer)]
    assert dropped == ["example.com/hold", IN_USE_FINALIZER]


def test_a_flock_that_finds_none_of_its_workloads_is_told_so():
    obj = training()
    wl = admitted(obj)
    del wl["status"]

    class Rejects(Flock):
        def match_workloads(self, workloads, flavors):
            return Matching(None, tuple(workloads))

    seen = attrs.evolve(flock(obj, wl), job=Rejects(obj))
    change, _ = plan(seen)
    *_, warning, _ = plan(attrs.evolve(seen, workloads=(change.new,)))
    assert "Rejects.match_workloads(): rejects the Workload training-t-" in warning.message


def test_a_flock_starts_and_stops_its_members_itself():
    obj = training()
    messages = [found.message for found in plan(flock(obj, admitted(obj)))]
    assert messages == [
        "launcher: Admitted by clusterQueue cq",
        "workers: Admitted by clusterQueue cq",
    ]
    wl = admitted(obj)
    del wl["status"]
    (stopped,) = plan(flock(training(suspend=False), wl))
    assert stopped.message == "2 NotAdmitted"


def test_commands_are_values():
    assert Change(JOBS, {"a": 1}, {"a": 2}).patch == {"a": 2}
    assert RequeueAfter("why", 1.0) == RequeueAfter("why", 1.0)
