from __future__ import annotations

import copy

import pytest

from kueuelib.api.names import MIN_PARALLELISM, SYNC_COMPLETIONS
from kueuelib.errors import InvalidPodSetInfo
from kueuelib.jobs.batch import BatchJob, trim
from kueuelib.jobs.contract.capabilities import StopReason
from kueuelib.jobs.contract.podset_info import PodSetInfo

START = "2024-01-01T00:00:00Z"
SUSPENDED = {"type": "Suspended", "status": "True"}
STOPPING = "kueue.x-k8s.io/stopping"


def stop(job, infos=()):
    return BatchJob(job).stop(infos, StopReason.NOT_ADMITTED, "because", 0.0)


@pytest.mark.parametrize(
    ("parallelism", "completions", "count"),
    [(None, None, 1), (3, None, 3), (3, 5, 3), (5, 3, 3), (None, 4, 1), (0, None, 0)],
)
def test_the_count_is_the_smaller_of_parallelism_and_completions(
    build, parallelism, completions, count
):
    job = build.job(parallelism=parallelism, completions=completions)
    (pod_set,) = BatchJob(job).pod_sets()
    assert (pod_set.name, pod_set.count, pod_set.min_count) == ("main", count, None)


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({"active": 3, "ready": 2}, False),
        ({"active": 3, "ready": 3}, True),
        ({"active": 2, "ready": 2, "succeeded": 1}, True),
        ({"active": 2, "ready": 2, "uncountedTerminatedPods": {"succeeded": ["u"]}}, True),
        ({"active": 2, "ready": 2, "uncountedTerminatedPods": {"failed": ["u"]}}, False),
    ],
)
def test_pods_that_have_succeeded_count_as_ready(build, status, ready):
    job = build.job(parallelism=3, completions=5)
    assert BatchJob({**job, "status": status}).pods_ready() is ready


@pytest.mark.parametrize(("text", "expected"), [("2", 2), ("two", None), (" 2", 2)])
def test_the_minimal_count_comes_from_the_annotation(build, text, expected):
    (pod_set,) = BatchJob(build.job(annotations={MIN_PARALLELISM: text})).pod_sets()
    assert pod_set.min_count == expected


def test_labels_of_the_job_controller_are_no_part_of_the_pod_set(build):
    labels = {"app": "a", "job-name": "job", "batch.kubernetes.io/controller-uid": "u"}
    job = build.job(template_labels=labels)
    (pod_set,) = BatchJob(job).pod_sets()
    assert pod_set.template["metadata"] == {"labels": {"app": "a"}}
    assert job["spec"]["template"]["metadata"]["labels"] == labels


def test_restoring_keeps_the_labels_of_the_job_controller(build):
    job = BatchJob(build.job(template_labels={"app": "a", "job-name": "job", "extra": "x"}))
    assert job.restore_podsets_info((PodSetInfo("main", 3, labels={"app": "a"}),))
    assert job.object["spec"]["template"]["metadata"]["labels"] == {"app": "a", "job-name": "job"}


def test_restoring_without_knowledge_changes_nothing(build):
    assert not BatchJob(build.job(template_labels={"a": "b"})).restore_podsets_info(())


def test_a_start_needs_exactly_one_info(build):
    with pytest.raises(InvalidPodSetInfo):
        BatchJob(build.job()).run_with_podsets_info(())


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, (4, 4)),
        ({MIN_PARALLELISM: "1"}, (2, 4)),
        ({MIN_PARALLELISM: "1", SYNC_COMPLETIONS: "true"}, (2, 2)),
        ({MIN_PARALLELISM: "1", SYNC_COMPLETIONS: "false"}, (2, 4)),
        ({SYNC_COMPLETIONS: "true"}, (4, 4)),
    ],
)
def test_a_start_sets_the_admitted_parallelism_and_a_restore_takes_it_back(
    build, annotations, expected
):
    job = BatchJob(build.job(parallelism=4, completions=4, annotations=annotations))
    job.run_with_podsets_info((PodSetInfo("main", 2),))
    spec = job.object["spec"]
    assert (spec["suspend"], spec["parallelism"], spec["completions"]) == (False, *expected)
    job.restore_podsets_info((PodSetInfo("main", 4),))
    assert (spec["parallelism"], spec["completions"]) == (4, 4)


@pytest.mark.parametrize(
    ("parallelism", "completions", "succeeded", "expected"),
    [
        (2, 4, 0, {}),
        (2, 4, 2, {}),
        (2, 4, 3, {"main": 1}),
        (2, 4, 4, {"main": 2}),
        (1, 4, 3, {}),
        (4, 2, 1, {"main": 1}),
        (3, None, 1, {"main": 1}),
    ],
)
def test_pods_that_will_not_run_again_are_reclaimable(
    build, parallelism, completions, succeeded, expected
):
    job = build.job(
        parallelism=parallelism, completions=completions, status={"succeeded": succeeded}
    )
    assert BatchJob(job).reclaimable_pods() == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([{"type": "Complete", "status": "False"}], None),
        ([{"type": "Suspended", "status": "True"}], None),
        ([{"type": "Complete", "status": "True"}], True),
        ([{"type": "Failed", "status": "True", "message": "broken"}], False),
    ],
)
def test_the_end_of_a_job_is_told_by_its_conditions(build, conditions, expected):
    end = BatchJob(build.job(status={"conditions": conditions})).finished()
    assert (end and end.succeeded) == expected


def test_a_suspended_job_has_nothing_left_to_stop(build):
    assert stop(build.job()) == stop(build.job(status={"active": 0}))
    assert stop(build.job()).commands == ()


def test_a_start_time_that_was_left_behind_is_forgotten(build):
    job = build.job(status={"startTime": "2024-01-01T00:00:00Z"})
    found = stop(job)
    assert BatchJob(job).is_stopping()
    assert not BatchJob(job).is_suspended()
    assert not found.stops_now
    assert [command.patch for command in found.commands] == [{"status": {"startTime": None}}]


def test_a_template_is_restored_only_when_no_pod_is_active_any_more(build):
    status = {"active": 1, "conditions": [SUSPENDED]}
    job = build.job(annotations={STOPPING: "true"}, pod={"nodeSelector": {"x": "y"}}, status=status)
    assert stop(job, (PodSetInfo("main", 3),)).commands == ()
    assert BatchJob(job).is_stopping()
    job["status"]["active"] = 0
    (restored,) = stop(job, (PodSetInfo("main", 3),)).commands
    assert restored.patch["spec"] == {"template": {"spec": {"nodeSelector": None}}}


def test_a_marked_job_is_restored_and_the_mark_taken_away(build):
    job = build.job(
        annotations={STOPPING: "true", "a": "b"},
        pod={"nodeSelector": {"x": "y"}},
        status={"conditions": [SUSPENDED]},
    )
    found = stop(job, (PodSetInfo("main", 3),))
    assert [command.patch for command in found.commands] == [
        {
            "metadata": {"annotations": {STOPPING: None}},
            "spec": {"template": {"spec": {"nodeSelector": None}}},
        }
    ]


def test_a_stop_without_knowledge_only_takes_the_mark_away(build):
    job = build.job(
        annotations={STOPPING: "true"},
        pod={"nodeSelector": {"x": "y"}},
        status={"conditions": [SUSPENDED]},
    )
    assert [command.patch for command in stop(job).commands] == [
        {"metadata": {"annotations": {STOPPING: None}}}
    ]


# ---- a Job controller that lags


def test_a_stop_is_complete_only_when_the_job_controller_has_seen_it(build):
    job = build.job(annotations={STOPPING: "true"}, pod={"nodeSelector": {"x": "y"}})
    for conditions in ([], [{**SUSPENDED, "status": "False"}]):
        job["status"] = {"startTime": START, "conditions": conditions}
        assert BatchJob(job).is_active(), "it may be creating pods"
        assert stop(job, (PodSetInfo("main", 3),)).commands == ()
    job["status"]["conditions"] = [SUSPENDED]
    assert not BatchJob(job).is_active()
    assert len(stop(job, (PodSetInfo("main", 3),)).commands) == 2


def test_the_suspension_before_a_start_is_forgotten_before_the_next_one(build):
    other = {"type": "Other", "status": "True"}
    job = build.job(suspend=False, status={"conditions": [SUSPENDED, other]})
    found = stop(job)
    forget, suspend = found.commands
    assert (forget.subresource, forget.versioned) == ("status", True)
    assert forget.patch == {"status": {"conditions": [other]}}
    assert suspend.versioned
    assert suspend.patch["spec"] == {"suspend": True}
    assert not BatchJob(forget.new).is_suspended(), "a crash in between changes nothing"
    assert BatchJob(suspend.new).is_active()


def test_a_job_that_was_never_started_waits_for_no_controller(build):
    assert not BatchJob(build.job()).is_active()


# ---- a Job that has done its work

ENDING = (
    {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]},
    {"conditions": [{"type": "FailureTarget", "status": "True"}]},
    {"succeeded": 2},
)


@pytest.mark.parametrize("status", ENDING)
def test_a_job_that_is_about_to_end_is_not_stopped(build, status):
    job = build.job(suspend=False, completions=2, status={"startTime": START, **status})
    assert BatchJob(job).is_ending()
    assert stop(job).commands == ()


def test_a_job_with_completions_to_come_is_stopped(build):
    for completions, succeeded in ((None, 5), (2, 1), (2, 0), (0, 0)):
        job = build.job(completions=completions, status={"succeeded": succeeded})
        assert not BatchJob(job).is_ending()
        job["spec"]["suspend"] = False
        assert stop(job).stops_now


@pytest.mark.parametrize("status", ENDING)
def test_pods_that_end_while_they_are_stopped_end_a_job_that_has_lost_its_start_time(build, status):
    conditions = [{**SUSPENDED, "lastTransitionTime": START}, *status.get("conditions", ())]
    job = build.job(completions=2, status={**status, "conditions": conditions})
    assert BatchJob(job).is_stopping(), "it is not started again"
    (repair,) = stop(job).commands
    assert (repair.subresource, repair.patch) == ("status", {"status": {"startTime": START}})
    assert stop(repair.new).commands == ()
    assert BatchJob(repair.new).is_stopping()
    ended = {**repair.new["status"]}
    ended["conditions"] = [*ended["conditions"], {"type": "Complete", "status": "True"}]
    assert stop({**job, "status": {**ended, "startTime": None}}).commands == ()


def test_jobs_that_are_alike_share_the_specs_of_their_pods(build):
    one, two = (build.job(template_labels={"controller-uid": uid}) for uid in "ab")
    other = build.job(pod={"priorityClassName": "high"})
    before = copy.deepcopy([one, two, other])
    assert [trim(one), trim(two), trim(other)] == before
    templates = [each["spec"]["template"] for each in (one, two, other)]
    assert templates[0]["spec"] is templates[1]["spec"] is not templates[2]["spec"]
