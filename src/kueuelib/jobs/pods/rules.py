"""The rules for our pods, and for their changes (KEP-976)."""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.api.names import (
    GROUP_LABEL,
    GROUP_ROLE_LABEL,
    GROUP_SETS,
    GROUP_TOTAL_COUNT,
    MANAGED,
    QUEUE_LABEL,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
    is_dns1123_subdomain,
)
from kueuelib.api.validation import fields
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.field_rules import (
    IMMUTABLE,
    NO_SUBDOMAIN,
    annotation_path,
    forbidden,
    invalid,
    label_path,
)
from kueuelib.jobs.contract.identifiers import where_named
from kueuelib.jobs.pods.declaration import Unreadable, parse
from kueuelib.jobs.pods.reading import (
    Stage,
    declaration_of,
    group_of,
    has_finalizer,
    is_gated,
    is_managed,
    queue_of,
    role_label_of,
    stage_of,
    total_count_of,
)
from kueuelib.jobs.pods.role_hash import likeness, role_hash


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
    except Unreadable as error:
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
    counts = has_finalizer(old) or stage_of(old) in (Stage.GATED, Stage.STARTED, Stage.LEAVING)
    if is_managed(old) and counts and MANAGED not in after:
        text = "the pod uses quota until it has ended; delete it instead"
        errors.append(forbidden(label_path(MANAGED), text))
    if queue_of(old) != queue_of(new) and stage_of(new) is Stage.STARTED:
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
