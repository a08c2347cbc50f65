"""Deployments: labels of theirs come into the pod template, and stay while pods run."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.owners import with_default_queue
from kueuelib.jobs.pods.deployment import DEPLOYMENT, queueing_errors, with_labels
from kueuelib.jobs.pods.templates import TemplateWebhook
from kueuelib.jobs.reconcile.self_wired import IntegrationParts
from kueuelib.jobs.webhooks.manifests import rbac_rules, webhook_entries
from kueuelib.machinery.selectors import from_label_selector
from kueuelib.runtime.webhook.admission import AdmissionRequest

Obj = dict[str, Any]
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"


def deployment(ready: int = 0, **labels: str) -> Obj:
    keys = {"queue": QUEUE, "priority": PRIORITY}
    found = {keys.get(key, key): text for key, text in labels.items()}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
    status = {"readyReplicas": ready} if ready else {}
    meta = {"name": "d", "labels": found}
    return {"metadata": meta, "spec": {"template": template}, "status": status}


def test_labels_about_queueing_come_into_the_template() -> None:
    obj = deployment(queue="q", priority="high", team="x")
    before = copy.deepcopy(obj)
    found = with_labels(obj)
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert labels == {"app": "a", QUEUE: "q", PRIORITY: "high"}
    assert obj == before
    assert with_labels(found) == found


def test_a_template_without_metadata_gets_some() -> None:
    obj = deployment(queue="q")
    obj["spec"]["template"]["metadata"] = None
    assert with_labels(obj)["spec"]["template"]["metadata"] == {"labels": {QUEUE: "q"}}


def test_a_deployment_that_names_no_queue_is_left_alone() -> None:
    obj = deployment(priority="high")
    assert with_labels(obj) is obj


@pytest.mark.parametrize(
    ("old", "new", "label"),
    [
        (None, {"queue": "not a name"}, QUEUE),
        ({"queue": "a"}, {}, QUEUE),
        ({"queue": "a", "ready": 1}, {"queue": "b"}, QUEUE),
        ({"queue": "a", "priority": "p"}, {"queue": "a"}, PRIORITY),
        ({"queue": "a", "ready": 1}, {"queue": "a", "priority": "p"}, PRIORITY),
    ],
)
def test_what_would_replace_pods_that_run_is_refused(old: Obj | None, new: Obj, label: str) -> None:
    before = None if old is None else deployment(**old)
    (error,) = queueing_errors(deployment(**new), before)
    assert error.path == f"metadata.labels[{label}]"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, {"queue": "a"}),
        ({}, {"queue": "a"}),
        ({"queue": "a"}, {"queue": "b"}),
        ({"queue": "not a name"}, {"queue": "not a name", "team": "x"}),
        ({"queue": "a", "priority": "p", "ready": 1}, {"queue": "a", "priority": "q"}),
    ],
)
def test_everything_else_passes(old: Obj | None, new: Obj) -> None:
    assert not queueing_errors(deployment(**new), None if old is None else deployment(**old))


@pytest.mark.parametrize(
    ("old", "queue"),
    [(None, "default"), (deployment(), "default"), (deployment(ready=1), None)],
)
def test_a_default_queue_comes_with_an_update_unless_pods_are_ready(
    old: Obj | None, queue: str | None
) -> None:
    owners = SimpleNamespace(
        is_child=lambda obj, namespace: False,
        queued_by_default=lambda obj, namespace: with_default_queue(obj),
        default_class_for=lambda obj: False,
    )
    parts = cast("IntegrationParts", SimpleNamespace(integration=DEPLOYMENT, owners=owners))
    hook = TemplateWebhook(parts, with_labels, queueing_errors)
    verb = "CREATE" if old is None else "UPDATE"
    request = AdmissionRequest("uid", verb, namespace="ns", object=deployment(), old_object=old)
    found = hook.mutate(deployment(), request)
    assert found["metadata"]["labels"].get(QUEUE) == queue
    assert found["spec"]["template"]["metadata"]["labels"].get(QUEUE) == queue


def test_it_has_webhooks_for_what_names_a_queue_and_no_permissions() -> None:
    assert rbac_rules([DEPLOYMENT]) == ()
    for each in webhook_entries([DEPLOYMENT], JobSettings()):
        selector = from_label_selector(each.entry["objectSelector"])
        spaces = from_label_selector(each.entry["namespaceSelector"])
        if "default" in each.entry["name"]:
            assert not spaces.matches({"kubernetes.io/metadata.name": "ns"})
            continue
        assert selector.matches({QUEUE: "q"})
        assert not selector.matches({"app": "a"})
        assert not spaces.matches({"kubernetes.io/metadata.name": "kube-system"})


def test_pods_are_enabled_with_deployments() -> None:
    found = builtin_registry().enabled(["deployment"])
    assert [each.name for each in found] == ["pod", "deployment"]
