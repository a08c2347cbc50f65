"""The integration `deployment`: the pods of a Deployment are queued one by one, as plain pods.

A Deployment has no Workload of its own. The webhook copies its labels that are about queueing into
its pod template; everything else is up to the integration `pod`.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from kueuelib.api.kinds import DEPLOYMENTS
from kueuelib.api.meta import Obj, Resource, labels_of
from kueuelib.api.names import PRIORITY_CLASS_LABEL, QUEUE_LABEL, is_dns1123_subdomain
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.field_rules import IMMUTABLE, NO_SUBDOMAIN, invalid, label_path
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import WebhookEntry
from kueuelib.jobs.contract.paths import value
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.pods.integration import POD
from kueuelib.jobs.reconcile.self_wired import Parts, SelfWired, Wired
from kueuelib.jobs.webhooks.manifests import JUDGED_METADATA, webhook_path
from kueuelib.jobs.webhooks.serving import knowing_owners
from kueuelib.runtime.webhook.admission import AdmissionRequest
from kueuelib.runtime.webhook.conditions import new_or_changed
from kueuelib.runtime.webhook.server import WebhookServer

_COPIED = (QUEUE_LABEL, PRIORITY_CLASS_LABEL)


class Deployment(GenericJob):
    """Names the kind; none of its objects is ever treated as a job."""

    resource: ClassVar[Resource] = DEPLOYMENTS


class DeploymentWebhook:
    """Writes labels into pod templates, and keeps queue and priority of pods that run.

    Args:
        parts: what the integration is wired to.
    """

    mutate_path = webhook_path(DEPLOYMENTS, mutating=True)
    validate_path = webhook_path(DEPLOYMENTS, mutating=False)

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def register(self, server: WebhookServer) -> None:
        """Serve both paths."""
        server.admit(self.mutate_path, knowing_owners(self._parts.owners, self.mutate))
        server.validate(self.validate_path, lambda new, old, _: validate_deployment(new, old))

    def mutate(self, obj: Obj, request: AdmissionRequest) -> Obj:
        """The Deployment as it is stored; the same one when somebody above it is queued."""
        if self._parts.owners.is_child(obj, request.namespace):
            return obj
        return with_labels(obj)


def with_labels(obj: Obj) -> Obj:
    """The Deployment with its labels about queueing in its pod template; the same without one."""
    found = labels_of(obj)
    if not found.get(QUEUE_LABEL):
        return obj
    changed = copy.deepcopy(obj)
    template = changed["spec"]["template"]
    meta = template["metadata"] = template.get("metadata") or {}
    copied = {key: found[key] for key in _COPIED if found.get(key)}
    meta["labels"] = {**(meta.get("labels") or {}), **copied}
    return changed


def validate_deployment(new: Obj | None, old: Obj | None) -> tuple[FieldError, ...]:
    """Every broken rule; a queue or priority class that changes replaces the pods."""
    if new is None:
        return ()
    labels, before = labels_of(new), {} if old is None else labels_of(old)
    queue, path = labels.get(QUEUE_LABEL, ""), label_path(QUEUE_LABEL)
    errors = []
    if queue != before.get(QUEUE_LABEL, "") and queue and not is_dns1123_subdomain(queue):
        errors.append(invalid(path, queue, NO_SUBDOMAIN))
    if old is None:
        return tuple(errors)
    running = bool(value(old, "status.readyReplicas"))
    moved = QUEUE_LABEL in before and queue != before[QUEUE_LABEL]
    if moved and (running or not queue):
        errors.append(invalid(path, queue, IMMUTABLE))
    classes = (before.get(PRIORITY_CLASS_LABEL), labels.get(PRIORITY_CLASS_LABEL))
    removed, added = classes[0] and not classes[1], classes[1] and not classes[0]
    if removed or (added and running):
        errors.append(invalid(label_path(PRIORITY_CLASS_LABEL), classes[1], IMMUTABLE))
    return tuple(errors)


def entries(settings: JobSettings) -> tuple[WebhookEntry, ...]:
    """The entries: Deployments with a queue name where pods are queued."""
    return tuple(_entry(settings, mutating=mutating) for mutating in (True, False))


def _entry(settings: JobSettings, *, mutating: bool) -> WebhookEntry:
    expression = {"key": QUEUE_LABEL, "operator": "Exists"}
    entry: Obj = {
        "name": f"{'m' if mutating else 'v'}deployment.kb.io",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "namespaceSelector": copy.deepcopy(dict(settings.pods.namespace_selector)),
        "objectSelector": {"matchExpressions": [expression]},
        "rules": [
            {
                "apiGroups": [DEPLOYMENTS.group],
                "apiVersions": [DEPLOYMENTS.version],
                "operations": ["CREATE", "UPDATE"],
                "resources": [DEPLOYMENTS.plural],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [new_or_changed(*JUDGED_METADATA, "spec.template")],
    }
    return WebhookEntry(mutating, webhook_path(DEPLOYMENTS, mutating=mutating), entry)


DEPLOYMENT = SelfWired(
    "deployment",
    Deployment,  # type: ignore[type-abstract]  # none is made
    makes_pods=False,
    watches=False,
    implies=(POD.name,),
    wire=lambda parts: Wired((), DeploymentWebhook(parts)),
    entries=entries,
)
