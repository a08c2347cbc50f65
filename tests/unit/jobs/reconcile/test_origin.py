"""What pods say about their origin: written by a start, removed by a stop, never compared."""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.names import ORIGIN_KEYS
from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.settings import JobSettings, Origin
from kueuelib.jobs.reconcile.matching import is_equivalent
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.written import ADDED_AT_START

KUEUE = "kueue.x-k8s.io"


def labelled(job, **more):
    """The job with labels of its template."""
    changed = copy.deepcopy(job)
    changed["spec"]["template"]["metadata"]["labels"].update(more)
    return changed


def origin_after_start(build, job, workload, **settings):
    start = plan(build.situation(job, workload, settings=JobSettings(**settings)))[0]
    meta = start.new["spec"]["template"]["metadata"]
    parts = {name: meta.get(name) or {} for name in ("labels", "annotations")}
    return {
        name: {key: text for key, text in part.items() if key in ORIGIN_KEYS}
        for name, part in parts.items()
    }


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("workload", [True, False])
def test_a_start_writes_what_the_gates_permit(build, queues, workload):
    job = build.job()
    admitted = build.workload(job, admitted=True)
    origin = Origin(queues=queues, workload=workload)
    found = origin_after_start(build, job, admitted, origin=origin)
    pod_set = {f"{KUEUE}/podset": "main"}
    assert found["labels"] == (build.origin["labels"] if queues else pod_set)
    assert found["annotations"] == (build.origin["annotations"] if workload else {})


@pytest.mark.parametrize("name", ["a.b", "a" * 64])
def test_a_cluster_queue_whose_name_is_no_word_has_no_label(build, name):
    job = build.job()
    admitted = build.workload(job, admitted=True)
    admitted["status"]["admission"]["clusterQueue"] = name
    found = origin_after_start(build, job, admitted)
    assert f"{KUEUE}/cluster-queue-name" not in found["labels"]
    assert found["labels"][f"{KUEUE}/local-queue-name"] == "main"


def test_a_local_queue_whose_name_is_no_value_of_a_label_has_no_label(build):
    job = build.job()
    for name, kept in (("a.b", True), ("a" * 64, False), ("", False)):
        admitted = build.workload(job, admitted=True, queueName=name)
        labels = Origin().infos_for_start(admitted, build.spot)[0].labels
        assert (labels.get(f"{KUEUE}/local-queue-name") == name) is kept


def test_a_copy_of_a_started_job_starts_with_its_own_origin(build):
    """What another job's start has written says nothing about this one."""
    other = dict.fromkeys(build.origin["labels"], "other")
    job = labelled(build.job(), **other)
    workload = build.workload(build.job(), admitted=True)
    assert origin_after_start(build, job, workload) == build.origin


def test_an_origin_is_never_compared(build):
    """Another manager may be replaced before its stop has restored the template."""
    job = build.job()
    workload = build.workload(job, reserved=True)
    left = labelled(job, **build.origin["labels"])
    assert is_equivalent(build.situation(left), BatchJob(left))(workload)
    assert not is_equivalent(build.situation(left), BatchJob(labelled(left, own="1")))(workload)


def test_labels_of_the_job_controller_are_not_compared(build):
    """The Go manager keeps the one with the Job's name in its Workloads."""
    job = build.job()
    workload = copy.deepcopy(build.workload(job, reserved=True))
    template = workload["spec"]["podSets"][0]["template"]
    template.setdefault("metadata", {}).setdefault("labels", {})["batch.kubernetes.io/job-name"] = (
        "j"
    )
    assert is_equivalent(build.situation(job), BatchJob(job))(workload)
    assert plan(build.situation(job, workload)) == ()


@pytest.mark.parametrize(
    "written", [(), ("podset",), ("podset", "cluster-queue-name", "local-queue-name")]
)
def test_a_stop_takes_away_what_another_manager_or_version_wrote(build, written):
    """Whichever part that is, the job continues, and its user's edits stay."""
    job = build.job()
    workload = build.workload(job, admitted=True)
    origin = {f"{KUEUE}/{name}": build.origin["labels"][f"{KUEUE}/{name}"] for name in written}
    running = labelled(build.started(job, active=1), own="edit", **origin)
    assert ADDED_AT_START not in running["metadata"].get("annotations", {})
    assert plan(build.situation(running, workload)) == ()
    evicted = build.workload(job, admitted=True, evicted="Preempted")
    stop = plan(build.situation(running, evicted))[0].new
    gone = {
        **stop,
        "status": {"active": 0, "conditions": [{"type": "Suspended", "status": "True"}]},
    }
    restored = plan(build.situation(gone, evicted))[0].new
    assert restored["spec"]["template"]["metadata"]["labels"] == {"own": "edit"}
