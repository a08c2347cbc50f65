"""The webhooks of pods (KEP-976)."""

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
from kueuelib.jobs.pods.reading import group_of, has_finalizer, is_managed
from kueuelib.jobs.pods.rules import validate_pod
from kueuelib.jobs.pods.selection import is_excluded, is_selected
from kueuelib.jobs.reconcile.self_wired import Parts
from kueuelib.jobs.webhooks.manifests import webhook_path
from kueuelib.jobs.webhooks.rules import validate_job, with_default_class
from kueuelib.jobs.webhooks.serving import admit_knowing_owners, warnings_about
from kueuelib.runtime.webhook.admission import (
    AdmissionRequest,
    ValidationResult,
    mutating,
    validating,
)
from kueuelib.runtime.webhook.server import WebhookServer


class PodWebhook:
    """Gates new pods, and refuses invalid ones.

    Args:
        parts: the surroundings of the integration.
    """

    mutate_path = webhook_path(PODS, mutating=True)
    validate_path = webhook_path(PODS, mutating=False)

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def register(self, server: WebhookServer) -> None:
        """Serve both paths."""
        shapes = self._parts.integration.shapes
        owners = self._parts.owners
        mutate = mutating(self.mutate, with_request=True, pure=True, warn=self.warn)
        admit_knowing_owners(server, self.mutate_path, owners, mutate, shapes)
        admit_knowing_owners(server, self.validate_path, owners, validating(self.judge), shapes)

    def mutate(self, obj: Obj, request: AdmissionRequest) -> Obj:
        """The pod as it will be stored; the same object if it is not ours."""
        namespace = request.namespace
        labels = self.namespace_labels(namespace)
        if is_child(self._parts, obj, namespace):
            return obj
        settings = self._parts.settings
        named = self._parts.owners.queued_by_default(obj, namespace)
        if named is not obj:  # wherever pods without a queue name may be queued at all
            settings = attrs.evolve(settings, manage_jobs_without_queue_name=True)
        if not is_selected(obj, settings, namespace, labels):
            return obj
        return gated(with_default_class(named) if self._defaults_class(obj) else named)

    def warn(self, made: Obj, _: AdmissionRequest) -> Iterator[str]:
        """A warning if a new pod is queued and asks for missing features."""
        if has_finalizer(made):
            admits_claims = self._parts.settings.admits_claims
            asked = asked_by_template(DEFAULT_POD_SET, made, admits_claims=admits_claims)
            yield from warnings_about(asked)

    def judge(
        self, new: Obj | None, old: Obj | None, request: AdmissionRequest
    ) -> ValidationResult:
        """Every broken rule, or for a pod that is left alone, a warning if it is marked."""
        if new is None:
            return ValidationResult()
        if (old is None or not has_finalizer(old)) and (
            why := left_alone_because(self._parts, new, request.namespace)
        ):
            text = f"the pod is marked as managed, but {why}; the pod is left alone"
            return ValidationResult(warnings=[text] if is_managed(new) else ())
        rules = functools.partial(validate_pod, group_exists=self._group_exists(new, request))
        integration = attrs.evolve(self._parts.integration, validate=rules)
        defaults = self._parts.owners.has_default_queue(request.namespace)
        return ValidationResult(validate_job(integration, new, old, has_default_queue=defaults))

    def _defaults_class(self, pod: Obj) -> bool:
        """Whether a queued pod gets the default class; one of a marked template takes what its
        parent has.
        """
        if SUSPENDING_PARENT in annotations_of(pod):
            return False
        return self._parts.owners.default_class_for(pod)

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace; None when it is not known yet."""
        return namespace_labels(self._parts, namespace)

    def _group_exists(self, pod: Obj, request: AdmissionRequest) -> bool:
        group = group_of(pod)
        if not group:
            return False
        workload = self._parts.stores.workload(ObjectKey(request.namespace, group))
        return workload is not None and stands_for_group(workload)


def left_alone_because(parts: Parts, pod: Obj, namespace: str) -> str:
    """Why a pod is not queued, whatever its labels say; empty if it may be. It may be ours all the
    same: our finalizer shows that it was queued before this was so.

    Raises:
        Unavailable: the namespace is not known yet, and it matters.
    """
    if is_child(parts, pod, namespace):
        return "its owner is managed"
    labels = namespace_labels(parts, namespace)
    if is_excluded(pod, parts.settings.pods, namespace, labels):
        return "podOptions excludes it"
    return ""


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
