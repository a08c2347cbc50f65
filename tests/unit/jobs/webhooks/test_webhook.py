from __future__ import annotations

import copy

import pytest

from kueuelib.api.names import (
    MIN_PARALLELISM,
    PARENT_WORKLOAD,
    PREBUILT_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    SYNC_COMPLETIONS,
)
from kueuelib.errors import ConfigError
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings, system_excluded
from kueuelib.jobs.pods.deployment import DEPLOYMENT
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.webhooks.manifests import rbac_rules, webhook_entries
from kueuelib.jobs.webhooks.rules import default_job, validate_job
from kueuelib.machinery.selectors import from_label_selector

DEFAULT = JobSettings()
ALL = JobSettings(manage_jobs_without_queue_name=True)
NAMESPACE = {"kubernetes.io/metadata.name": "ns"}
OWNER = {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}]}


def suspended(job, settings=DEFAULT, has_ancestor=False):
    found = default_job(
        BATCH_JOB, job, settings, namespace_labels=NAMESPACE, has_ancestor=has_ancestor
    )
    return found["spec"].get("suspend", False)


def paths(new, old=None):
    return [error.path for error in validate_job(BATCH_JOB, new, old)]


def test_a_queued_job_is_suspended_and_the_request_left_as_it_was(build):
    job = build.job(suspend=False)
    assert suspended(job)
    assert job["spec"]["suspend"] is False


def test_a_job_without_a_queue_runs_unless_all_jobs_are_managed(build):
    job = build.job(queue=None, suspend=False)
    assert not suspended(job)
    assert suspended(job, ALL)


def test_a_job_that_somebody_else_is_queued_for_runs(build):
    assert not suspended(build.job(suspend=False), has_ancestor=True)


def test_a_suspended_job_is_stored_as_it_is(build):
    job = build.job()
    found = default_job(
        BATCH_JOB, job, JobSettings(), namespace_labels=NAMESPACE, has_ancestor=False
    )
    assert found is job


THERE = {"matchLabels": {"team": "a"}}
MANAGED = {
    "a queue in a selected namespace": ("q", False, {"team": "a"}, True),
    "a queue in another namespace": ("q", False, {"team": "b"}, False),
    "a queue in a namespace that is not known yet": ("q", False, None, True),
    "no queue": ("", False, {"team": "a"}, False),
    "no queue in a namespace that is not known yet": ("", False, None, False),
    "every job of a selected namespace": ("", True, {"team": "a"}, True),
    "every job, but of another namespace": ("", True, {"team": "b"}, False),
    "a queue in another namespace, with every job": ("q", True, {"team": "b"}, False),
}


@pytest.mark.parametrize(("queue", "every", "labels", "expected"), MANAGED.values(), ids=[*MANAGED])
def test_jobs_are_managed_only_in_selected_namespaces(build, queue, every, labels, expected):
    settings = JobSettings(namespace_selector=THERE, manage_jobs_without_queue_name=every)
    assert settings.manages(queue, labels) is expected
    job = build.job(queue=queue or None, suspend=False)
    stored = default_job(BATCH_JOB, job, settings, namespace_labels=labels, has_ancestor=False)
    assert stored["spec"]["suspend"] is expected


def test_pods_are_queued_only_where_both_selectors_match():
    settings = JobSettings(namespace_selector=THERE)
    team = {"key": "team", "operator": "In", "values": ["a"]}
    (named,) = system_excluded()["matchExpressions"]
    assert settings.pods_namespace_selector == {"matchExpressions": [named, team]}
    assert JobSettings().pods_namespace_selector == system_excluded()


def test_by_default_only_the_system_and_the_manager_are_left_alone():
    (expression,) = system_excluded("queueing")["matchExpressions"]
    assert expression == {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "queueing"],
    }


CLASS_CASES = {
    "none": ({}, True, False, "default"),
    "none, suspended": ({}, True, True, "default"),
    "one of its own": ({"labels": {PRIORITY_CLASS_LABEL: "high"}}, True, False, "high"),
    "empty": ({"labels": {PRIORITY_CLASS_LABEL: ""}}, True, False, "default"),
    "not wanted": ({}, False, False, None),
    "no queue": ({"queue": None}, True, False, None),
}


@pytest.mark.parametrize(
    ("fields", "wanted", "waits", "name"), CLASS_CASES.values(), ids=[*CLASS_CASES]
)
def test_a_queued_job_without_a_class_gets_the_default(build, fields, wanted, waits, name):
    job = build.job(suspend=waits, **fields)
    before = copy.deepcopy(job)
    stored = default_job(
        BATCH_JOB,
        job,
        JobSettings(),
        namespace_labels=NAMESPACE,
        has_ancestor=False,
        default_class=wanted,
    )
    assert stored["metadata"].get("labels", {}).get(PRIORITY_CLASS_LABEL) == name
    assert stored["spec"]["suspend"] is (fields.get("queue", "") is not None or waits)
    assert job == before


LABELS = f"metadata.labels[{QUEUE_LABEL}]"
MIN = f"metadata.annotations[{MIN_PARALLELISM}]"
SYNC = f"metadata.annotations[{SYNC_COMPLETIONS}]"
PARENT = f"metadata.annotations[{PARENT_WORKLOAD}]"
CREATED = {
    "a sound job": ({}, []),
    "queue name": ({"labels": {QUEUE_LABEL: "Bad_Name"}}, [LABELS]),
    "empty queue name": ({"labels": {QUEUE_LABEL: ""}}, [LABELS]),
    "queue annotation": (
        {"annotations": {QUEUE_LABEL: "Bad_Name"}},
        [f"metadata.annotations[{QUEUE_LABEL}]"],
    ),
    "prebuilt name": (
        {"labels": {PREBUILT_LABEL: "Bad_Name"}},
        [f"metadata.labels[{PREBUILT_LABEL}]"],
    ),
    "annotation with a prebuilt name": (
        {
            "labels": {PREBUILT_LABEL: "Bad_Name"},
            "annotations": {PREBUILT_LABEL: "long." * 40 + "a"},
        },
        [],
    ),
    "annotation with a bad prebuilt name": (
        {"labels": {PREBUILT_LABEL: "made"}, "annotations": {PREBUILT_LABEL: "Bad_Name"}},
        [f"metadata.annotations[{PREBUILT_LABEL}]"],
    ),
    "empty annotation with a prebuilt name": ({"annotations": {PREBUILT_LABEL: ""}}, []),
    "parent without an owner": ({"annotations": {PARENT_WORKLOAD: "parent"}}, [PARENT]),
    "parent with an owner": ({"annotations": {PARENT_WORKLOAD: "parent"}, "meta": OWNER}, []),
    "parent name": ({"annotations": {PARENT_WORKLOAD: "_"}, "meta": OWNER}, [PARENT]),
    "minimum is not a number": ({"annotations": {MIN_PARALLELISM: "two"}}, [MIN]),
    "minimum is zero": ({"annotations": {MIN_PARALLELISM: "0"}}, [MIN]),
    "minimum is all": ({"annotations": {MIN_PARALLELISM: "3"}}, [MIN]),
    "minimum is one less": ({"annotations": {MIN_PARALLELISM: "2"}}, []),
    "minimum above the completions": (
        {"annotations": {MIN_PARALLELISM: "2"}, "completions": 2},
        [MIN],
    ),
    "sync is no boolean": ({"annotations": {SYNC_COMPLETIONS: "yes"}}, [SYNC]),
    "sync is false": ({"annotations": {SYNC_COMPLETIONS: "F"}}, []),
    "sync of an unindexed job": (
        {"annotations": {SYNC_COMPLETIONS: "true"}, "completions": 3},
        [SYNC],
    ),
    "sync of an indexed job": (
        {
            "annotations": {SYNC_COMPLETIONS: "true"},
            "completions": 3,
            "completionMode": "Indexed",
        },
        [],
    ),
    "sync of other completions": (
        {
            "annotations": {SYNC_COMPLETIONS: "true"},
            "completions": 4,
            "completionMode": "Indexed",
        },
        ["spec.completions"],
    ),
}


@pytest.mark.parametrize(("fields", "expected"), CREATED.values(), ids=CREATED)
def test_a_job_that_breaks_a_rule_is_refused_with_the_field(build, fields, expected):
    assert paths(build.job(**fields)) == expected


def test_prebuilt_workloads_are_for_kinds_that_allow_them(build):
    strict = Integration("strict", BATCH_JOB.job_type)
    for where in ("labels", "annotations"):
        (error,) = validate_job(strict, build.job(**{where: {PREBUILT_LABEL: "made"}}), None)
        assert error.reason == "FieldValueForbidden"
        assert error.path.startswith(f"metadata.{where}")
        open_to_them = Integration.of(BATCH_JOB.job_type, allows_prebuilt=True)
        assert not validate_job(open_to_them, build.job(**{where: {PREBUILT_LABEL: "made"}}), None)


@pytest.mark.parametrize(
    ("suspended", "default", "texts"),
    [
        (True, True, ["LocalQueue default"]),
        (True, False, []),
        (False, True, ["immutable"]),
    ],
)
def test_a_queue_name_stays_where_new_jobs_get_one(build, suspended, default, texts):
    old, new = build.job(suspend=suspended), build.job(suspend=suspended, queue=None)
    errors = validate_job(BATCH_JOB, new, old, has_default_queue=default)
    assert [error.path for error in errors] == [LABELS for _ in texts]
    assert all(text in str(error) for text, error in zip(texts, errors, strict=True))


RUNNING = {"suspend": False}
STOPPING = {"kueue.x-k8s.io/stopping": "true"}
PRIORITY = f"metadata.labels[{PRIORITY_CLASS_LABEL}]"
UPDATED = {
    "queue of a suspended job": ({}, {"queue": "other"}, []),
    "queue of a running job": (RUNNING, {**RUNNING, "queue": "other"}, [LABELS]),
    "queue while suspending": (RUNNING, {"queue": "other"}, []),
    "queue while starting": ({}, {**RUNNING, "queue": "other"}, [LABELS]),
    "queue of a job that has never waited": (
        {**RUNNING, "queue": None},
        {**RUNNING, "queue": "main"},
        [LABELS],
    ),
    "prebuilt name": (
        {"labels": {PREBUILT_LABEL: "a"}},
        {"labels": {PREBUILT_LABEL: "b"}},
        [f"metadata.labels[{PREBUILT_LABEL}]"],
    ),
    "prebuilt name in another place": (
        {"labels": {PREBUILT_LABEL: "a"}},
        {"annotations": {PREBUILT_LABEL: "a"}},
        [],
    ),
    "prebuilt name over another one": (
        {"labels": {PREBUILT_LABEL: "a"}},
        {"labels": {PREBUILT_LABEL: "a"}, "annotations": {PREBUILT_LABEL: "b"}},
        [f"metadata.annotations[{PREBUILT_LABEL}]"],
    ),
    "parent": (
        {"annotations": {PARENT_WORKLOAD: "a"}, "meta": OWNER},
        {"annotations": {PARENT_WORKLOAD: "b"}, "meta": OWNER},
        [PARENT],
    ),
    "priority class": (
        {"labels": {PRIORITY_CLASS_LABEL: "a"}},
        {"labels": {PRIORITY_CLASS_LABEL: "b"}},
        [],
    ),
    "priority class of a running job": (
        {**RUNNING, "labels": {PRIORITY_CLASS_LABEL: "a"}},
        {**RUNNING, "labels": {PRIORITY_CLASS_LABEL: "b"}},
        [],
    ),
    "priority class taken away": ({"labels": {PRIORITY_CLASS_LABEL: "a"}}, {}, [PRIORITY]),
    "priority class added to a running job": (
        RUNNING,
        {**RUNNING, "labels": {PRIORITY_CLASS_LABEL: "a"}},
        [PRIORITY],
    ),
    "priority class added to a waiting job": ({}, {"labels": {PRIORITY_CLASS_LABEL: "a"}}, []),
    "parallelism of a running job with a minimum": (
        {**RUNNING, "annotations": {MIN_PARALLELISM: "1"}},
        {**RUNNING, "annotations": {MIN_PARALLELISM: "1"}, "parallelism": 2},
        ["spec.parallelism"],
    ),
    "parallelism while starting": (
        {"annotations": {MIN_PARALLELISM: "1"}},
        {**RUNNING, "annotations": {MIN_PARALLELISM: "1"}, "parallelism": 1},
        [],
    ),
    "stop of a job that runs with its minimum": (
        {**RUNNING, "annotations": {MIN_PARALLELISM: "2"}, "parallelism": 2},
        {"annotations": {MIN_PARALLELISM: "2", **STOPPING}, "parallelism": 2},
        [],
    ),
    "restored parallelism": (
        {"annotations": {MIN_PARALLELISM: "2", **STOPPING}, "parallelism": 2},
        {"annotations": {MIN_PARALLELISM: "2"}, "parallelism": 4},
        [],
    ),
    "parallelism below the minimum": (
        {"annotations": {MIN_PARALLELISM: "2"}},
        {"annotations": {MIN_PARALLELISM: "2"}, "parallelism": 2},
        [MIN],
    ),
    "sync of a running job": (
        {**RUNNING, "completions": 3, "completionMode": "Indexed"},
        {
            **RUNNING,
            "completions": 3,
            "completionMode": "Indexed",
            "annotations": {SYNC_COMPLETIONS: "true"},
        },
        [SYNC],
    ),
    "what was broken before": (
        {**RUNNING, "annotations": {MIN_PARALLELISM: "9"}},
        {"annotations": {MIN_PARALLELISM: "9", **STOPPING}},
        [],
    ),
    "what is broken now": ({}, {"annotations": {MIN_PARALLELISM: "x"}}, [MIN]),
}


@pytest.mark.parametrize(("old", "new", "expected"), UPDATED.values(), ids=UPDATED)
def test_an_update_that_breaks_a_rule_is_refused_with_the_field(build, old, new, expected):
    assert paths(build.job(**new), build.job(**old)) == expected


# ---- what is installed


def test_webhooks_match_only_jobs_that_carry_our_label():
    mutating, validating, _ = webhook_entries([BATCH_JOB], JobSettings())
    assert (mutating.path, validating.path) == ("/mutate-batch-v1-job", "/validate-batch-v1-job")
    assert (mutating.entry["name"], validating.entry["name"]) == ("mjob.kb.io", "vjob.kb.io")
    for found in (mutating, validating):
        assert found.entry["objectSelector"] == {
            "matchExpressions": [{"key": QUEUE_LABEL, "operator": "Exists"}]
        }
        assert found.entry["namespaceSelector"] == system_excluded()
        assert found.entry["failurePolicy"] == "Fail"
    assert mutating.entry["rules"][0]["operations"] == ["CREATE"]
    assert validating.entry["rules"][0]["operations"] == ["CREATE", "UPDATE"]


def test_webhooks_match_every_job_outside_the_system_when_all_are_managed():
    settings = JobSettings(
        manage_jobs_without_queue_name=True, namespace_selector=system_excluded("queueing")
    )
    found = {entry.entry["name"]: entry.entry for entry in webhook_entries([BATCH_JOB], settings)}
    assert found.keys() == {
        "mjob.kb.io",
        "mjob-unnamed.kb.io",
        "vjob.kb.io",
        "vjob-unnamed.kb.io",
    }
    for name, entry in found.items():
        (label,) = entry["objectSelector"]["matchExpressions"]
        if "unnamed" not in name:
            assert label["operator"] == "Exists"
            assert entry["namespaceSelector"] == system_excluded("queueing")
            continue
        assert label["operator"] == "DoesNotExist"
        (expression,) = entry["namespaceSelector"]["matchExpressions"]
        assert expression["values"] == ["kube-system", "queueing"]


TEAM = {"matchLabels": {"team": "x"}}
NAMED_NS = {"kubernetes.io/metadata.name": "ns"}
ENTRIES = {
    "no default queue": (JobSettings(), (), NAMED_NS, {}, False),
    "another namespace": (JobSettings(), ("other",), NAMED_NS, {}, False),
    "here": (JobSettings(), ("other", "ns"), NAMED_NS, {}, True),
    "a queue is named": (JobSettings(), ("ns",), NAMED_NS, {QUEUE_LABEL: "q"}, False),
    "not selected": (JobSettings(namespace_selector=TEAM), ("ns",), NAMED_NS, {}, False),
    "selected": (
        JobSettings(namespace_selector=TEAM),
        ("ns",),
        {**NAMED_NS, "team": "x"},
        {},
        True,
    ),
    "the system": (
        JobSettings(),
        ("kube-system",),
        {"kubernetes.io/metadata.name": "kube-system"},
        {},
        False,
    ),
}


@pytest.mark.parametrize(
    ("settings", "namespaces", "namespace", "labels", "expected"), ENTRIES.values(), ids=ENTRIES
)
@pytest.mark.parametrize("kind", [BATCH_JOB, POD, DEPLOYMENT], ids=lambda kind: kind.name)
def test_jobs_without_a_queue_name_are_sent_where_a_default_queue_is(
    kind, settings, namespaces, namespace, labels, expected
):
    entries = webhook_entries([kind], settings, namespaces)
    (found,) = [each.entry for each in entries if "-default." in each.entry["name"]]
    updates = ["CREATE", "UPDATE"] if kind is DEPLOYMENT else ["CREATE"]
    assert found["rules"][0]["operations"] == updates
    matches = from_label_selector(found["namespaceSelector"]).matches(namespace)
    matches = matches and from_label_selector(found["objectSelector"]).matches(labels)
    assert matches is expected


def test_permissions_cover_the_kind_its_status_and_its_finalizers():
    found = {rule["resources"][0]: rule["verbs"] for rule in rbac_rules([BATCH_JOB])}
    assert found.keys() == {"jobs", "jobs/status", "jobs/finalizers"}
    assert "patch" in found["jobs/status"]


def test_names_are_unique_and_unknown_ones_are_refused():
    registry = builtin_registry()
    with pytest.raises(ConfigError, match="registered already"):
        registry.register(BATCH_JOB)
    with pytest.raises(ConfigError, match="batch/job"):
        registry.register(Integration("other", BATCH_JOB.job_type))
    with pytest.raises(ConfigError, match="unknown names: b, c"):
        registry.enabled(["c", "batch/job", "b"])
    assert registry.enabled(["batch/job"]) == (BATCH_JOB,)
    assert registry.enabled([]) == ()
