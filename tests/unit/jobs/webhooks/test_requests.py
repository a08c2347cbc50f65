"""Requests for missing features, wherever a job or a parent of pods makes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kueuelib.api.missing_features import MANAGED_BY, OF_JOBS
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.settings import JobSettings, TakenOver
from kueuelib.jobs.pods.deployment import DEPLOYMENT, with_labels
from kueuelib.jobs.pods.leaderworkerset import LEADERWORKERSET, with_roles
from kueuelib.jobs.pods.statefulset import STATEFULSET, with_group
from kueuelib.jobs.pods.templates import TemplateWebhook
from kueuelib.jobs.reconcile.self_wired import IntegrationParts
from kueuelib.jobs.webhooks.serving import JobWebhook, asked_by_job, ignored_by_job
from kueuelib.runtime.webhook.admission import AdmissionRequest

sys.path.insert(0, str(Path(__file__).parents[3] / "kinds"))

from samples import samples

Obj = dict[str, Any]
ELASTIC = "kueue.x-k8s.io/elastic-job"
SAMPLES = samples()
TRAIN_JOB = "trainer.kubeflow.org/trainjob"
SPARK = "sparkoperator.k8s.io/sparkapplication"
ELSEWHERE = {TRAIN_JOB, SPARK}
"""Kinds whose pod templates are in other objects, or that have none."""


def templates(value: Any) -> Iterator[Obj]:
    """The pod templates in an object."""
    if isinstance(value, dict):
        if "containers" in (value.get("spec") or ()):
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def asked(kind: Any, obj: Obj) -> list[tuple[str, str]]:
    return [(one.subject, one.by) for one in asked_by_job(kind.job_type(obj), JobSettings())]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_asks_by_its_metadata_and_its_workload_takes_it_over(name: str) -> None:
    sample = SAMPLES[name]
    job = sample.complete(sample.job(annotations={ELASTIC: "true"}))
    assert asked(sample.integration, job) == [(f"the {sample.resource.kind}", ELASTIC)]
    assert TakenOver().annotations_of([job]) == {ELASTIC: "true"}


@pytest.mark.parametrize("name", [each for each in SAMPLES if each not in ELSEWHERE])
def test_every_kind_asks_by_its_pod_templates(name: str) -> None:
    sample = SAMPLES[name]
    job = sample.complete(sample.job())
    for template in [*templates(job)]:
        template.setdefault("metadata", {}).setdefault("annotations", {})[ELASTIC] = "true"
    pod_sets = sample.integration.job_type(job).pod_sets()
    assert asked(sample.integration, job) == [(f"pod set {one.name}", ELASTIC) for one in pod_sets]


def test_a_spark_application_asks_by_its_roles() -> None:
    sample = SAMPLES[SPARK]
    job = sample.complete(sample.job())
    for role in ("driver", "executor"):
        job["spec"][role]["annotations"] = {ELASTIC: "true"}
    assert asked(sample.integration, job) == [
        (f"pod set {name}", ELASTIC) for name in ("driver", "executor")
    ]


@pytest.mark.parametrize(
    ("manager", "wanted"),
    [("kueue.x-k8s.io/multikueue", True), ("example.com/other", False), (None, False)],
)
@pytest.mark.parametrize("block", ["spec", "runPolicy"])
def test_a_job_that_is_managed_by_multikueue_asks_for_it(
    build: Any, block: str, manager: str | None, wanted: bool
) -> None:
    job = build.job()
    place = job["spec"] if block == "spec" else job["spec"].setdefault(block, {})
    place["managedBy"] = manager
    assert asked(BATCH_JOB, job) == ([("the Job", "managedBy")] if wanted else [])
    taken = TakenOver().annotations_of([job])
    assert taken == ({MANAGED_BY: manager} if wanted else {})
    assert TakenOver().annotations_of([{"metadata": {"annotations": taken}}]) == taken


def test_a_request_for_a_topology_waits_if_topologies_are_turned_off(build: Any) -> None:
    job = build.job()
    notes = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    job["spec"]["template"]["metadata"] = {"annotations": notes}
    assert asked(BATCH_JOB, job) == []
    (one,) = asked_by_job(BATCH_JOB.job_type(job), JobSettings(places_pods=False))
    assert (one.subject, one.by) == ("pod set main", "topologyRequest.required")


def template() -> Obj:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}


PARENTS = {
    "deployment": (DEPLOYMENT, with_labels, lambda: {"template": template()}),
    "statefulset": (STATEFULSET, with_group, lambda: {"template": template()}),
    "leaderworkerset": (
        LEADERWORKERSET,
        with_roles,
        lambda: {
            "leaderWorkerTemplate": {"leaderTemplate": template(), "workerTemplate": template()}
        },
    ),
}


def parent(spec: Obj, **annotations: str) -> Obj:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    meta = {"name": "p", "uid": "u", "labels": labels, "annotations": annotations}
    return {"metadata": meta, "spec": spec}


@pytest.mark.parametrize("name", PARENTS)
@pytest.mark.parametrize("key", OF_JOBS)
def test_the_pods_of_a_parent_ask_for_what_it_asks_for(name: str, key: str) -> None:
    _, write, spec = PARENTS[name]
    old = write(parent(spec(), **{key: "x"}), None)
    for each in templates(old):
        assert each["metadata"]["annotations"][key] == "x"
    new = parent(old["spec"])
    for each in templates(write(new, old)):
        assert key not in each["metadata"]["annotations"]
    for each in templates(write(new, new)):
        assert each["metadata"]["annotations"][key] == "x", "the template asks by itself"


@pytest.mark.parametrize("name", PARENTS)
@pytest.mark.parametrize("place", ["metadata", "template"])
def test_whoever_creates_a_parent_of_pods_is_warned(name: str, place: str) -> None:
    kind, write, spec = PARENTS[name]
    obj = parent(spec())
    places = [obj] if place == "metadata" else [*templates(obj)]
    for each in places:
        each["metadata"]["annotations"] = {ELASTIC: "true"}
    parts = cast(
        "IntegrationParts", SimpleNamespace(integration=kind, owners=None, settings=JobSettings())
    )
    hook = TemplateWebhook(parts, write, lambda new, old: ())
    request = AdmissionRequest("uid", "CREATE", namespace="ns", object=obj)
    (warning,) = hook.warn(write(obj, None), request)
    subject = f"the {kind.resource.kind}" if place == "metadata" else "pod set"
    assert "it will wait: this version has no elastic jobs by workload slices" in warning
    assert f"{ELASTIC} of {subject}" in warning
    update = AdmissionRequest("uid", "UPDATE", namespace="ns", object=obj, old_object=obj)
    assert not [*hook.warn(obj, update)]


MISPLACED = "kueue.x-k8s.io/podset-required-topology"
MISSPELLED = "kueue.x-k8s.io/podset-required-toplogy"


@pytest.mark.parametrize("name", [each for each in SAMPLES if each not in ELSEWHERE])
def test_every_kind_names_requests_for_a_topology_without_effect(name: str) -> None:
    sample = SAMPLES[name]
    job = sample.complete(sample.job(annotations={MISPLACED: "rack"}))
    (text,) = ignored_by_job(sample.integration.job_type(job))
    assert text == (
        f"metadata.annotations[{MISPLACED}] has no effect: "
        "it belongs in the annotations of the pod template"
    )
    job = sample.complete(sample.job())
    for template in [*templates(job)]:
        template.setdefault("metadata", {}).setdefault("annotations", {})[MISSPELLED] = "rack"
    typed = sample.integration.job_type(job)
    assert [*ignored_by_job(typed)] == [
        f"{one.path}.metadata.annotations[{MISSPELLED}] has no effect: "
        f"this version does not know it; did you mean {MISPLACED}?"
        for one in typed.pod_sets()
    ]


@pytest.mark.parametrize("queued", [True, False])
def test_who_creates_a_queued_job_is_warned_of_requests_without_effect(*, queued: bool) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "lq"} if queued else {}
    meta = {"name": "j", "namespace": "ns", "labels": labels, "annotations": {MISPLACED: "rack"}}
    job = {"metadata": meta, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    owners = SimpleNamespace(is_child=lambda obj, namespace: False)
    stores = SimpleNamespace(namespace_labels=lambda namespace: {})
    hook = JobWebhook(
        BATCH_JOB, JobSettings(), cast("Any", stores), cast("Any", owners), cast("Any", None)
    )
    request = AdmissionRequest("uid", "CREATE", namespace="ns", object=job)
    assert [MISPLACED in text for text in hook.warn(job, request)] == ([True] if queued else [])


@pytest.mark.parametrize("name", PARENTS)
def test_who_creates_a_parent_of_pods_is_warned_of_requests_without_effect(name: str) -> None:
    kind, write, spec = PARENTS[name]
    obj = parent(spec())
    obj["metadata"]["annotations"] = {MISPLACED: "rack"}
    made = [*templates(obj)]
    for each in made:
        each["metadata"]["annotations"] = {MISSPELLED: "rack"}
    parts = cast(
        "IntegrationParts", SimpleNamespace(integration=kind, owners=None, settings=JobSettings())
    )
    hook = TemplateWebhook(parts, write, lambda new, old: ())
    request = AdmissionRequest("uid", "CREATE", namespace="ns", object=obj)
    first, *others = hook.warn(write(obj, None), request)
    assert first.startswith(f"metadata.annotations[{MISPLACED}] has no effect: it belongs in")
    assert len(others) == len(made)
    assert all("template.metadata.annotations" in text.lower() for text in others)
