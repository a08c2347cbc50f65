"""The webhooks of pods, and the rules for pods and their changes (KEP-976)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import attrs

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, labels_of
from kueuelib.api.names import (
    GROUP_LABEL,
    GROUP_ROLE_LABEL,
    GROUP_SETS,
    GROUP_TOTAL_COUNT,
    MANAGED,
    QUEUE_LABEL,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
    SUSPENDING_PARENT,
    is_dns1123_subdomain,
)
from kueuelib.api.topology_keys import ignored_topology_keys
from kueuelib.api.validation import fields
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.field_rules import (
    IMMUTABLE,
    NO_SUBDOMAIN,
    annotation_path,
    forbidden,
    invalid,
    label_path,
    where_named,
)
from kueuelib.jobs.contract.generic_job import DEFAULT_POD_SET
from kueuelib.jobs.contract.topology import asking_annotations, topology_errors
from kueuelib.jobs.pods.declaration import InvalidDeclaration, parse
from kueuelib.jobs.pods.facts import stands_for_group
from kueuelib.jobs.pods.marks import gated
from kueuelib.jobs.pods.reading import (
    PodStage,
    declaration_of,
    group_of,
    has_finalizer,
    is_excluded,
    is_gated,
    is_managed,
    is_selected,
    queue_of,
    role_label_of,
    stage_of,
    total_count_of,
)
from kueuelib.jobs.pods.shapes import likeness, role_hash
from kueuelib.jobs.reconcile.self_wired import IntegrationParts
from kueuelib.jobs.webhooks.manifests import webhook_path
from kueuelib.jobs.webhooks.rules import validate_job, with_default_class
from kueuelib.jobs.webhooks.serving import (
    admit_knowing_owners,
    asked_by_pods,
    warnings_about,
)
from kueuelib.runtime.webhook.admission import (
    AdmissionRequest,
    ValidationResult,
    mutating,
    validating,
)
from kueuelib.runtime.webhook.server import WebhookServer

# ---- the rules for our pods, and for their changes (KEP-976) -------------------------------------


def validate_pod(new: Obj, old: Obj | None, *, group_exists: bool = False) -> Sequence[FieldError]:
    """The rules of pods beyond those of every kind of job.

    Args:
        new: the raw pod.
        old: the one that it replaces, if any.
        group_exists: whether its group has a Workload already.
    """
    errors = _always(new)
    return errors if old is None else [*errors, *_changes(new, old, group_exists=group_exists)]


def _always(pod: Obj) -> list[FieldError]:
    labels, annotations = labels_of(pod), annotations_of(pod)
    errors: list[FieldError] = []
    if labels.get(MANAGED, "true") != "true":
        errors.append(forbidden(label_path(MANAGED), "the only value is true"))
    group = annotations.get(GROUP_LABEL) or labels.get(GROUP_LABEL)
    if group is not None and not is_dns1123_subdomain(group):
        errors.append(invalid(where_named(pod, GROUP_LABEL), group, NO_SUBDOMAIN))
    if group is None:
        errors += _without_group(pod)
    elif not {GROUP_TOTAL_COUNT, GROUP_SETS} & annotations.keys() and not role_label_of(pod):
        text = f"a pod of a group names their number, or has the label {GROUP_ROLE_LABEL}"
        errors.append(fields.required(annotation_path(GROUP_TOTAL_COUNT), text))
    if GROUP_TOTAL_COUNT in annotations and total_count_of(pod) is None:
        text = "must be a whole number of at least 1"
        path = annotation_path(GROUP_TOTAL_COUNT)
        errors.append(invalid(path, annotations[GROUP_TOTAL_COUNT], text))
    errors += topology_errors("metadata.annotations", asking_annotations(pod))
    return [*errors, *_declaration(pod)]


def _without_group(pod: Obj) -> list[FieldError]:
    annotations = annotations_of(pod)
    errors = [
        fields.required(label_path(GROUP_LABEL), f"the annotation {key} is for pods of groups")
        for key in (GROUP_TOTAL_COUNT, GROUP_SETS)
        if key in annotations
    ][:1]
    if GROUP_ROLE_LABEL in labels_of(pod):
        text = f"only pods with the label {GROUP_LABEL} have roles"
        errors.append(forbidden(label_path(GROUP_ROLE_LABEL), text))
    return errors


def _declaration(pod: Obj) -> list[FieldError]:
    text, role = declaration_of(pod), role_label_of(pod)
    if text is None:
        return []
    try:
        declared = parse(text)
    except InvalidDeclaration as error:
        return list(error.errors)
    path = label_path(GROUP_ROLE_LABEL)
    errors: list[FieldError] = []
    if not role and len(declared.empty) != 1:
        which = "no template is empty" if not declared.empty else "several templates are empty"
        errors.append(fields.required(path, f"{which}, so the pod has to name its own role"))
    elif role and role not in declared.names:
        errors.append(fields.not_supported(path, role, declared.names))
    total = annotations_of(pod).get(GROUP_TOTAL_COUNT)
    if total is not None and total_count_of(pod) not in (None, declared.total):
        detail = f"the declared pod sets have {declared.total} pods"
        errors.append(invalid(annotation_path(GROUP_TOTAL_COUNT), total, detail))
    return errors


def _changes(new: Obj, old: Obj, *, group_exists: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    before, after = labels_of(old), labels_of(new)
    groups = group_of(old), group_of(new)
    counts = has_finalizer(old) or stage_of(old) in (
        PodStage.GATED,
        PodStage.STARTED,
        PodStage.LEAVING,
    )
    if is_managed(old) and counts and MANAGED not in after:
        text = "the pod uses quota until it has ended; delete it instead"
        errors.append(forbidden(label_path(MANAGED), text))
    if queue_of(old) != queue_of(new) and stage_of(new) is PodStage.STARTED:
        errors.append(invalid(label_path(QUEUE_LABEL), queue_of(new), IMMUTABLE))
    if groups[0] != groups[1]:
        errors.append(invalid(where_named(new, GROUP_LABEL), groups[1], IMMUTABLE))
    if before.get(GROUP_ROLE_LABEL) != after.get(GROUP_ROLE_LABEL):
        errors.append(forbidden(label_path(GROUP_ROLE_LABEL), IMMUTABLE))
    notes, now = annotations_of(old), annotations_of(new)
    frozen = [GROUP_SETS]
    shapes = (role_hash(old["spec"]), likeness(old["spec"]))
    named = is_gated(old) and now.get(ROLE_HASH) in shapes
    if is_managed(old) and ROLE_HASH in notes and not named:
        frozen.append(ROLE_HASH)
    if group_exists:
        frozen.append(GROUP_TOTAL_COUNT)
    errors += [
        forbidden(annotation_path(key), IMMUTABLE)
        for key in frozen
        if notes.get(key) != now.get(key)
    ]
    given_up = notes.get(RETRIABLE_IN_GROUP) == "false"
    if group_of(new) and given_up and now.get(RETRIABLE_IN_GROUP) != "false":
        text = "a group that was given up cannot be revived"
        errors.append(forbidden(annotation_path(RETRIABLE_IN_GROUP), text))
    return errors


# --------------------------------------------------------------------------------------------------


class PodWebhook:
    """Gates new pods, and refuses invalid ones.

    Args:
        parts: the surroundings of the integration.
    """

    mutate_path = webhook_path(PODS, mutating=True)
    validate_path = webhook_path(PODS, mutating=False)

    def __init__(self, parts: IntegrationParts) -> None:
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
        made = with_default_class(named) if self._defaults_class(obj) else named
        return gated(made, places=settings.places_pods)

    def warn(self, made: Obj, _: AdmissionRequest) -> Iterator[str]:
        """Warnings if a new pod is queued and asks for missing features, or has labels or
        annotations for a topology that have no effect.
        """
        if has_finalizer(made):
            yield from warnings_about(asked_by_pods(DEFAULT_POD_SET, made, self._parts.settings))
            for one in ignored_topology_keys(made["metadata"], of_pods=True):
                yield one.text("metadata")

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


def left_alone_because(parts: IntegrationParts, pod: Obj, namespace: str) -> str:
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


def is_child(parts: IntegrationParts, pod: Obj, namespace: str) -> bool:
    """Whether the kind of a pod's controller is queued, or an ancestor above it is."""
    if any(
        ref.get("controller") and integration.is_owner(ref)
        for ref in pod["metadata"].get("ownerReferences") or ()
        for integration in parts.parents
    ):
        return True
    return parts.owners.is_child(pod, namespace)


def namespace_labels(parts: IntegrationParts, namespace: str) -> Mapping[str, str] | None:
    """The labels of a namespace; None when it is not known yet."""
    obj = parts.namespaces.store.get(ObjectKey("", namespace))
    return None if obj is None else labels_of(obj)
