"""The rules of the webhooks of all kinds of jobs, on raw objects (KEP-369)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from kueuelib.api.meta import Obj, annotations_of, labels_of, with_label
from kueuelib.api.names import (
    DEFAULT_PRIORITY_CLASS,
    MAX_EXECUTION_LABEL,
    PARENT_WORKLOAD,
    PREBUILT_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    admission_gates,
    is_dns1123_subdomain,
)
from kueuelib.api.validation.fields import GATES_PATH, gate_errors
from kueuelib.errors import FieldError, InvalidJob
from kueuelib.jobs.contract.capabilities import is_skipped
from kueuelib.jobs.contract.field_rules import (
    IMMUTABLE,
    NO_SUBDOMAIN,
    annotation_path,
    forbidden,
    identifier,
    invalid,
    label_path,
    where_named,
)
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.contract.topology import errors_of_pod_sets

_STAYS = "must not be removed where a LocalQueue default is"


def default_job(
    integration: Integration,
    obj: Obj,
    settings: JobSettings,
    *,
    namespace_labels: Mapping[str, str] | None,
    has_ancestor: bool,
    default_class: bool = False,
) -> Obj:
    """The object as it will be stored: if it is queued, suspended and with a priority class; the
    same object if nothing changes.

    Args:
        integration: the kind.
        obj: the object that is created.
        settings: the configuration.
        namespace_labels: of its namespace; None while it is not known.
        has_ancestor: whether an owner, at any distance, is queued on its behalf.
        default_class: whether it gets the priority class `default` if it names none.
    """
    job = integration.job_type(obj)
    if has_ancestor or not settings.manages(job.queue_name, namespace_labels):
        return obj
    if is_skipped(job):
        return obj
    if default_class:
        obj = with_default_class(obj)
    if job.is_suspended():
        return obj
    return integration.job_type(obj).suspended_copy().raw


def with_default_class(obj: Obj) -> Obj:
    """The object with the priority class `default`; the same object if it names a class."""
    if labels_of(obj).get(PRIORITY_CLASS_LABEL):
        return obj
    return with_label(obj, PRIORITY_CLASS_LABEL, DEFAULT_PRIORITY_CLASS)


def validate_job(
    integration: Integration, new: Obj, old: Obj | None, *, has_default_queue: bool = False
) -> tuple[FieldError, ...]:
    """Every broken rule of an object that is created, or that replaces `old`.

    Rules that were broken before do not prevent a change, otherwise a Job that was created without
    the webhook could not even be suspended.

    Args:
        integration: the kind.
        new: the object.
        old: the one that it replaces.
        has_default_queue: whether its namespace has a default queue.
    """
    errors = [*_always(integration, new), *integration.validate(new, old)]
    gates = tuple(gate_errors(new, old))
    if old is None:
        return (*errors, *gates)
    known = {error.path for error in (*_always(integration, old), *integration.validate(old, None))}
    ratcheted = [error for error in errors if error.path not in known]
    changes = _changes(integration, new, old, has_default_queue=has_default_queue)
    return (*ratcheted, *changes, *gates)


def _always(integration: Integration, obj: Obj) -> list[FieldError]:
    labels, annotations = labels_of(obj), annotations_of(obj)
    named_at = where_named(obj, PREBUILT_LABEL)
    errors = [
        *_subdomain(labels, QUEUE_LABEL, label_path(QUEUE_LABEL)),
        *_subdomain(annotations, QUEUE_LABEL, annotation_path(QUEUE_LABEL)),
        *_subdomain(
            annotations if annotations.get(PREBUILT_LABEL) else labels, PREBUILT_LABEL, named_at
        ),
        *_subdomain(annotations, PARENT_WORKLOAD, annotation_path(PARENT_WORKLOAD)),
    ]
    errors += _limit(labels, label_path) + _limit(annotations, annotation_path)
    if identifier(obj, PREBUILT_LABEL) and not integration.allows_prebuilt:
        detail = f"{integration.resource.kind} cannot use a prebuilt Workload"
        errors.append(forbidden(named_at, detail))
    if identifier(obj, PREBUILT_LABEL) and admission_gates(annotations):
        detail = "a prebuilt Workload has gates of its own: write them there"
        errors.append(forbidden(GATES_PATH, detail))
    if PARENT_WORKLOAD in annotations and not obj["metadata"].get("ownerReferences"):
        detail = "only an object with an owner has a parent"
        errors.append(forbidden(annotation_path(PARENT_WORKLOAD), detail))
    with contextlib.suppress(InvalidJob):
        errors += errors_of_pod_sets(
            [(one.path, one.template, one.count) for one in integration.job_type(obj).pod_sets()]
        )
    return errors


def _limit(values: Mapping[str, str], path: Callable[[str], str]) -> list[FieldError]:
    text = values.get(MAX_EXECUTION_LABEL)
    if text is None or (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        return []
    return [invalid(path(MAX_EXECUTION_LABEL), text, "must be a number of seconds, at least 1")]


def _subdomain(values: Mapping[str, str], key: str, path: str) -> Sequence[FieldError]:
    if key not in values or is_dns1123_subdomain(values[key]):
        return ()
    return (invalid(path, values[key], NO_SUBDOMAIN),)


def _changes(
    integration: Integration, new: Obj, old: Obj, *, has_default_queue: bool
) -> list[FieldError]:
    before, after = integration.job_type(old), integration.job_type(new)
    errors = []
    limits = (before.maximum_execution_seconds, after.maximum_execution_seconds)
    classes = (before.workload_priority_class, after.workload_priority_class)
    removed, added = classes[0] and not classes[1], classes[1] and not classes[0]
    moved = before.queue_name != after.queue_name
    suspended = bool(moved or limits[0] != limits[1] or added) and is_suspended(integration, new)
    if moved and not suspended:
        errors.append(invalid(label_path(QUEUE_LABEL), after.queue_name, IMMUTABLE))
    elif moved and not after.queue_name and has_default_queue:
        errors.append(invalid(label_path(QUEUE_LABEL), "", _STAYS))
    if before.prebuilt_workload != after.prebuilt_workload:
        path = where_named(new, PREBUILT_LABEL)
        errors.append(invalid(path, after.prebuilt_workload, IMMUTABLE))
    if limits[0] != limits[1] and not suspended:
        errors.append(invalid(label_path(MAX_EXECUTION_LABEL), limits[1], IMMUTABLE))
    parents = [annotations_of(obj).get(PARENT_WORKLOAD) for obj in (old, new)]
    if parents[0] != parents[1]:
        errors.append(invalid(annotation_path(PARENT_WORKLOAD), parents[1], IMMUTABLE))
    if removed or (added and not suspended):
        errors.append(invalid(label_path(PRIORITY_CLASS_LABEL), classes[1], IMMUTABLE))
    return errors


def is_suspended(integration: Integration, obj: Obj) -> bool:
    """Whether the spec of an object suspends it, also while its last stop is being completed."""
    return integration.job_type(obj).suspended_copy().raw == obj
