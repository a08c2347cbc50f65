from __future__ import annotations

import copy

import pytest

from kueuelib.api.names import MIN_PARALLELISM
from kueuelib.jobs.batch import BatchJob
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.reconcile.matching import is_equivalent
from kueuelib.jobs.reconcile.written import with_memory

DIGEST = "0" * 64
MIN = {MIN_PARALLELISM: "1"}
WITHOUT_PARTIAL = JobSettings(partial_admission=False)


def same(build, job, workload, flavors=None, **fields):
    flavors = build.spot if flavors is None else flavors
    situation = build.situation(job, workload, flavors=flavors, **fields)
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


@pytest.mark.parametrize(
    ("image", "policy", "equal"),
    [
        ("i", "Always", True),
        ("r:5000/i", "Always", True),
        ("r/i:latest", "Always", True),
        ("i", "IfNotPresent", False),
        ("r/i:1", "IfNotPresent", True),
        ("r/i:1", "Always", False),
        (f"i@sha256:{DIGEST}", "IfNotPresent", True),
        (f"i:latest@sha256:{DIGEST}", "Always", True),
    ],
)
def test_a_prebuilt_workload_may_lack_what_the_api_server_adds(build, image, policy, equal):
    """It adds defaults to a Job, but not to a Workload."""
    job = build.job(labels={"kueue.x-k8s.io/prebuilt-workload-name": "made"})
    probe, port = {"httpGet": {"port": 80}}, {"containerPort": 80}
    variable = {"name": "v", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    container(job).update(image=image, livenessProbe=probe, ports=[port], env=[variable])
    made = build.workload(job, name="made")
    assert same(build, job, made)
    stored = copy.deepcopy(job)
    container(stored).update(
        imagePullPolicy=policy,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        ports=[{**port, "protocol": "TCP"}],
        livenessProbe={
            "httpGet": {"port": 80, "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
    )
    container(stored)["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    assert same(build, stored, made) is equal
    container(stored)["livenessProbe"]["periodSeconds"] = 11
    assert not same(build, stored, made)


def test_a_started_job_is_compared_with_what_admission_added(build):
    job = build.job()
    workload = build.workload(job, admitted=True)
    assert same(build, build.started(job), workload)
    assert same(build, job, workload)


def test_a_running_job_that_lost_its_own_toleration_asks_for_something_else(build):
    job = build.job(pod={"tolerations": [{"key": "own"}, {"key": "other"}]})
    workload = build.workload(job, admitted=True)
    running = build.started(job)
    assert same(build, running, workload)
    running["spec"]["template"]["spec"]["tolerations"].remove({"key": "own"})
    assert not same(build, running, workload)


@pytest.mark.parametrize("noted", [True, False], ids=["by us", "by another manager"])
@pytest.mark.parametrize(
    "change",
    ["parallelism", "an image", "a request", "an init container", "fewer tolerations"],
)
def test_a_running_job_has_the_pods_of_its_workload(build, change, noted):
    change = {**CHANGES, "fewer tolerations": (without_tolerations, False)}[change][0]
    job = build.job(pod={"tolerations": [{"key": "own"}]})
    workload = build.workload(job, admitted=True)
    running = build.started(job)
    if noted:
        running["metadata"]["annotations"] = with_memory(
            BatchJob(running), BatchJob(job), "2024-01-01T00:00:00Z"
        )["metadata"]["annotations"]
    assert same(build, running, workload)
    change(running)
    assert not same(build, running, workload)


def without_tolerations(job):
    del job["spec"]["template"]["spec"]["tolerations"]


def test_a_partially_admitted_job_runs_with_the_count_of_the_admission(build):
    job = build.job(parallelism=4, annotations=MIN)
    workload = build.workload(job, admitted=True, count=2)
    running = build.started(job)
    running["spec"]["parallelism"] = 2
    assert same(build, running, workload)
    running["spec"]["parallelism"] = 3
    assert not same(build, running, workload)


@pytest.mark.parametrize("noted", [True, False], ids=["by us", "by another manager"])
@pytest.mark.parametrize("prebuilt", [True, False], ids=["prebuilt", "made for it"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("least", [None, "1", "3"])
def test_the_smallest_count_of_a_running_job_concerns_no_pod(build, least, count, prebuilt, noted):
    """Whether its user edits it or the manager was restarted without partial admission."""
    labels = {"kueue.x-k8s.io/prebuilt-workload-name": "made"} if prebuilt else {}
    job = build.job(parallelism=4, annotations={MIN_PARALLELISM: "2"}, labels=labels)
    workload = build.workload(job, admitted=True, count=count)
    running = build.started(job)
    running["spec"]["parallelism"] = count
    if noted:
        running = with_memory(BatchJob(running), BatchJob(job), "2024-01-01T00:00:00Z")
    del running["metadata"]["annotations"][MIN_PARALLELISM]
    if least is not None:
        running["metadata"]["annotations"][MIN_PARALLELISM] = least
    for settings in (JobSettings(), WITHOUT_PARTIAL):
        assert same(build, running, workload, settings=settings)


def test_a_prebuilt_workload_permits_what_its_job_permits(build):
    """The scheduler ignores a smallest count if partial admission is turned off."""
    labels = {"kueue.x-k8s.io/prebuilt-workload-name": "made"}
    job = build.job(labels=labels, annotations={MIN_PARALLELISM: "1"})
    for settings in (JobSettings(), WITHOUT_PARTIAL):
        assert same(build, job, build.workload(job, name="made"), settings=settings)
        made = build.workload(build.job(), name="made")
        assert not same(build, job, made, settings=settings)
        assert not same(build, build.job(labels=labels), build.workload(job), settings=settings)


def test_a_waiting_workload_has_no_smallest_count_without_partial_admission(build):
    job = build.job(annotations={MIN_PARALLELISM: "1"})
    assert same(build, job, build.workload(job))
    assert not same(build, job, build.workload(job), settings=WITHOUT_PARTIAL)
    assert same(build, job, build.workload(build.job()), settings=WITHOUT_PARTIAL)


@pytest.mark.parametrize("flavors", [{}, "changed"], ids=["without", "changed"])
def test_a_job_that_another_manager_started_may_have_any_further_tolerations(build, flavors):
    """Nobody knows what was added: its flavor may have changed since, or be gone."""
    flavors = flavors and {"spot": build.flavor({"pool": "spot"}, {"key": "new"})}
    job = build.job(pod={"tolerations": [{"key": "own", "value": ""}]})
    assert same(build, build.started(job), build.workload(job, admitted=True), flavors=flavors)
