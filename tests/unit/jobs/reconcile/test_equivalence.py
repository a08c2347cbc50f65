from __future__ import annotations

import copy

import pytest

from kueuelib.jobs.reconcile.matching import is_equivalent

MIN = {"kueue.x-k8s.io/job-min-parallelism": "1"}


def same(build, job, workload, flavors=None):
    flavors = build.spot if flavors is None else flavors
    situation = build.situation(job, workload, flavors=flavors)
    return is_equivalent(situation, situation.job)(workload)


def container(job):
    return job["spec"]["template"]["spec"]["containers"][0]


CHANGES = {
    "parallelism": (lambda job: job["spec"].update(parallelism=2), False),
    "an image": (lambda job: container(job).update(image="other"), False),
    "a request": (lambda job: container(job)["resources"]["requests"].update(cpu="2"), False),
    "an equal request": (
        lambda job: container(job)["resources"]["requests"].update(cpu="1000m"),
        True,
    ),
    "an empty list": (lambda job: container(job).update(env=[], volumeMounts=None), True),
    "a toleration": (
        lambda job: job["spec"]["template"]["spec"].update(tolerations=[{"key": "a"}]),
        False,
    ),
    "an init container": (
        lambda job: job["spec"]["template"]["spec"].update(initContainers=[{"name": "i"}]),
        False,
    ),
    "a node selector": (
        lambda job: job["spec"]["template"]["spec"].update(nodeSelector={"a": "b"}),
        False,
    ),
    "a label": (
        lambda job: job["spec"]["template"]["metadata"].update(labels={"a": "b"}),
        False,
    ),
    "a priority class": (
        lambda job: job["spec"]["template"]["spec"].update(priorityClassName="high"),
        False,
    ),
    "a minimal parallelism": (
        lambda job: job["metadata"].update(annotations=MIN),
        False,
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_waiting_job_is_compared_with_what_was_stored(build, change, expected):
    job = build.job()
    workload = build.workload(job)
    edited = copy.deepcopy(job)
    change(edited)
    assert same(build, edited, workload) is expected


def test_a_started_job_is_compared_with_what_admission_added(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    assert same(build, build.started(job), workload)
    assert same(build, job, workload)
    assert not same(build, build.started(job), build.workload(job))


def test_a_running_job_that_lost_its_tolerations_asks_for_something_else(build):
    job = build.job()
    running = copy.deepcopy(job)
    running["spec"]["suspend"] = False
    assert not same(build, running, build.workload(job, admitted=True))


def test_a_partially_admitted_job_runs_with_the_count_of_the_admission(build):
    job = build.job(parallelism=4, annotations=MIN)
    workload = build.workload(job, admitted=True, count=2)
    running = build.started(job)
    running["spec"]["parallelism"] = 2
    assert same(build, running, workload)
    running["spec"]["parallelism"] = 3
    assert not same(build, running, workload)


def test_without_its_flavors_an_admission_is_compared_as_it_was_stored(build):
    job = build.job()
    assert same(build, job, build.workload(job, admitted=True), flavors={})
