"""The webhooks of pods (spec/jobs 4.1, 4.2)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import attrs

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, labels_of
from kueuelib.api.missing_features import asked_by_template
from kueuelib.api.names import SUSPENDING_PARENT
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET
from kueuelib.jobs.pods.facts import stands_for_group
from kueuelib.jobs.pods.marks import gated
from kueuelib.jobs.pods.metrics import PodMetrics
from kueuelib.jobs.pods.reading import group_of, is_managed
from kueuelib.jobs.pods.rules import validate_pod
from kueuelib.jobs.pods.selection import is_selected
from kueuelib.jobs.reconcile.self_wired import Parts
from kueuelib.jobs.webhooks.manifests import webhook_path
from kueuelib.jobs.webhooks.rules import validate_job, with_default_class
from kueuelib.jobs.webhooks.serving import admit_knowing_owners, warnings_about
from kueuelib.runtime.webhook.admission import AdmissionRequest, ValidationResult
from kueuelib.runtime.webhook.server import WebhookServer


class PodWebhook:
    """Gates new pods, and refuses invalid ones.

    Args:
        parts: the surroundings of the integration.
        metrics: counts.
    """

    mutate_path = webhook_path(PODS, mutating=True)
    validate_path = webhook_path(PODS, mutating=False)

    def __init__(self, parts: Parts, metrics: PodMetrics) -> None:
        self._parts = parts
        self._metrics = metrics

    def register(self, server: WebhookServer) -> None:
        """Serve both paths."""
        shapes = self._parts.integration.shapes
        owners = self._parts.owners
        admit_knowing_owners(server, self.mutate_path, owners, self.mutate, shapes, self.warn)
        server.validate(self.validate_path, self.judge, shapes)

    def mutate(self, obj: Obj, request: AdmissionRequest) -> Obj:
        """The pod as it will be stored; the same object if it is not ours."""
        namespace = request.namespace
        labels = self.namespace_labels(namespace)
        if self.is_managed_by_owner(obj, namespace):
            return obj
        settings = self._parts.settings
        named = self._parts.owners.queued_by_default(obj, namespace)
        if named is not obj:  # wherever pods without a queue name may be queued at all
            settings = attrs.evolve(settings, manage_jobs_without_queue_name=True)
        if not is_selected(obj, settings, namespace, labels):
            return obj
        if not request.dry_run:
            self._metrics.gated(namespace)
        return gated(with_default_class(named) if self._defaults_class(obj) else named)

    def warn(self, made: Obj, _: AdmissionRequest) -> Iterator[str]:
        """A warning if a new pod is queued and asks for missing features."""
        if is_managed(made):
            admits_claims = self._parts.settings.admits_claims
            asked = asked_by_template(DEFAULT_POD_SET, made, admits_claims=admits_claims)
            yield from warnings_about(asked)

    def judge(
        self, new: Obj | None, old: Obj | None, request: AdmissionRequest
    ) -> ValidationResult:
        """Every broken rule, and warnings about probable mistakes."""
        if new is None:
            return ValidationResult()
        rules = functools.partial(validate_pod, group_exists=self._group_exists(new, request))
        integration = attrs.evolve(self._parts.integration, validate=rules)
        defaults = self._parts.owners.has_default_queue(request.namespace)
        errors = validate_job(integration, new, old, has_default_queue=defaults)
        warnings = []
        if is_managed(new) and self.is_managed_by_owner(new, request.namespace):
            text = "the pod is marked as managed, but its owner is managed; the pod is left alone"
            warnings.append(text)
        return ValidationResult(errors, warnings)

    def _defaults_class(self, pod: Obj) -> bool:
        """Whether a queued pod gets the default class; one of a marked template takes what its
        parent has.
        """
        if SUSPENDING_PARENT in annotations_of(pod):
            return False
        return self._parts.owners.default_class_for(pod)

    def is_managed_by_owner(self, pod: Obj, namespace: str) -> bool:
        """Whether an ancestor is queued on behalf of the pod."""
        return is_child(self._parts, pod, namespace)

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace; None when it is not known yet."""
        return namespace_labels(self._parts, namespace)

    def _group_exists(self, pod: Obj, request: AdmissionRequest) -> bool:
        group = group_of(pod)
        if not group:
            return False
        workload = self._parts.stores.workload(ObjectKey(request.namespace, group))
        return workload is not None and stands_for_group(workload)


def is_child(parts: Parts, pod: Obj, namespace: str) -> bool:
    """Whether the kind of a pod's controller is queued, or an ancestor above it is."""
    if any(
        ref.get("controller") and integration.is_owner(ref)
        for ref in pod["metadata"].get("ownerReferences") or ()
        for integration in parts.parents
    ):
        return True
    return parts.owners.is_child(pod, namespace)


def namespace_labels(parts: Parts, namespace: str) -> Mapping[str, str] | None:
    """The labels of a namespace; None when it is not known yet."""
    obj = parts.namespaces.store.get(ObjectKey("", namespace))
    return None if obj is None else labels_of(obj)
