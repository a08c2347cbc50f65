"""The rules of a Job's spec: of a new one, and of a changed one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, find_condition
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    IMMUTABLE,
    immutable,
    invalid,
    listed,
    meaning,
    non_negative,
    not_supported,
    required,
    section,
)
from kueuelib.embedded.builtins.job_defaults import generated_labels
from kueuelib.embedded.builtins.metadata import validate_annotations, validate_labels
from kueuelib.embedded.builtins.pod_spec import validate_pod_spec
from kueuelib.errors import FieldError, InvalidSelector
from kueuelib.machinery.selectors import from_label_selector

COMPLETION_MODES = ("NonIndexed", "Indexed")
REPLACEMENT_POLICIES = ("TerminatingOrFailed", "Failed")
MAX_INDEXED_PARALLELISM = 100_000
_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def validate_job(job: Obj) -> list[FieldError]:
    """The broken rules of a Job whose selector is generated."""
    spec = section(job, "spec")
    return _validate_generated(job, spec) + _validate_spec(job, spec)


def _validate_generated(job: Obj, spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("manualSelector"):
        return []
    labels = section(spec, "template", "metadata", "labels")
    path = "spec.template.metadata.labels"
    wanted = generated_labels(job)
    errors = [
        invalid(path, dict(labels), f"must be '{value}'")
        for key, value in wanted.items()
        if labels.get(key) != value
    ]
    selector = spec.get("selector")
    if selector is not None and not errors and not _selects(selector, {**labels, **wanted}):
        errors.append(invalid("spec.selector", selector, "`selector` not auto-generated"))
    return errors


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    try:
        return from_label_selector(selector).matches(labels)
    except InvalidSelector:
        return False


def _validate_spec(job: Obj, spec: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    for key in _NUMBERS:
        errors += non_negative(f"spec.{key}", spec.get(key))
    mode = spec.get("completionMode")
    if mode not in COMPLETION_MODES:
        errors.append(not_supported("spec.completionMode", mode, COMPLETION_MODES))
    elif mode == "Indexed":
        errors += _validate_indexed(job, spec)
    elif spec.get("backoffLimitPerIndex") is not None:
        text = "requires indexed completion mode"
        errors.append(invalid("spec.backoffLimitPerIndex", spec["backoffLimitPerIndex"], text))
    policy = spec.get("podReplacementPolicy")
    if policy not in REPLACEMENT_POLICIES:
        errors.append(not_supported("spec.podReplacementPolicy", policy, REPLACEMENT_POLICIES))
    elif spec.get("podFailurePolicy") and policy != "Failed":
        errors.append(not_supported("spec.podReplacementPolicy", policy, ["Failed"]))
    manager = spec.get("managedBy")
    if manager is not None:
        texts = naming.qualified_name(manager)
        errors += [invalid("spec.managedBy", manager, text) for text in texts]
        if not texts and "/" not in manager:
            text = 'must be a domain-prefixed path (such as "acme.io/foo")'
            errors.append(invalid("spec.managedBy", manager, text))
    errors += _validate_template(spec)
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
    else:
        errors += _validate_selector(selector, section(spec, "template", "metadata", "labels"))
    return errors


def _validate_indexed(job: Obj, spec: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    if completions is None:
        errors.append(required("spec.completions", "when completion mode is Indexed"))
    if parallelism > MAX_INDEXED_PARALLELISM:
        text = (
            f"must be less than or equal to {MAX_INDEXED_PARALLELISM} "
            "when completion mode is Indexed"
        )
        errors.append(invalid("spec.parallelism", parallelism, text))
    if completions:
        name = f"{job['metadata'].get('name', '')}-{completions - 1}"
        texts = naming.label(name)
        errors += [
            invalid(
                "metadata.name", name, f"will not able to create pod with invalid DNS label: {name}"
            )
            for _ in texts[:1]
        ]
    return errors


def _validate_template(spec: Mapping[str, Any]) -> list[FieldError]:
    template = section(spec, "template")
    meta, path = section(template, "metadata"), "spec.template"
    errors = validate_labels(meta.get("labels"), f"{path}.metadata.labels")
    errors += validate_annotations(meta.get("annotations"), f"{path}.metadata.annotations")
    pod = section(template, "spec")
    errors += validate_pod_spec(pod, f"{path}.spec")
    restart, where = pod.get("restartPolicy"), f"{path}.spec.restartPolicy"
    if restart in (None, "", "Always"):
        errors.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif restart not in ("OnFailure", "Never"):
        errors.append(not_supported(where, restart, ("OnFailure", "Never"), ordered=True))
    elif restart != "Never" and spec.get("podFailurePolicy"):
        text = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid(where, restart, text))
    return errors


def _validate_selector(selector: Mapping[str, Any], labels: Mapping[str, str]) -> list[FieldError]:
    try:
        found = from_label_selector(selector)
    except InvalidSelector as error:
        return [invalid("spec.selector", dict(selector), str(error))]
    if found.matches(labels):
        return []
    text = "`selector` does not match template `labels`"
    return [invalid("spec.template.metadata.labels", dict(labels), text)]


def validate_job_update(new: Obj, old: Obj) -> list[FieldError]:
    """The broken rules of a changed Job: those of a new one, and what may not change."""
    spec, before = section(new, "spec"), section(old, "spec")
    if spec == before:
        return []
    errors = _validate_spec(new, spec)
    errors += _validate_completions(spec, before)
    for key in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"):
        errors += immutable(f"spec.{key}", meaning(spec.get(key)), meaning(before.get(key)))
    errors += _validate_template_update(spec, before, old)
    for key in ("managedBy", "successPolicy"):
        errors += immutable(f"spec.{key}", spec.get(key), before.get(key))
    return errors


def _validate_completions(spec: Mapping[str, Any], before: Mapping[str, Any]) -> list[FieldError]:
    """Completions are fixed, but for Indexed Jobs whose parallelism changes along."""
    new, old = spec.get("completions"), before.get("completions")
    path = "spec.completions"
    if new == old:
        return []
    if spec.get("completionMode") != "Indexed" or before.get("completionMode") != "Indexed":
        return immutable(path, new, old)
    if new is None or new != spec.get("parallelism"):
        text = "can only be modified in tandem with spec.parallelism"
        return [invalid(path, new, text)]
    if before.get("completions") != before.get("parallelism"):
        return [invalid(path, new, "can only be modified in tandem with spec.parallelism")]
    return []


def accepts_directives(job: Mapping[str, Any]) -> bool:
    """Whether the placement of the pods of a stored Job may change.

    It is suspended, no pods are active, and it never started or is known to be suspended (1.36).
    """
    status = section(job, "status")
    if not section(job, "spec").get("suspend") or status.get("active"):
        return False
    known = find_condition(status.get("conditions"), "Suspended").get("status") == "True"
    return known or status.get("startTime") is None


def _validate_template_update(
    spec: Mapping[str, Any], before: Mapping[str, Any], old: Obj
) -> list[FieldError]:
    template = meaning(dict(section(spec, "template")))
    allowed: Obj = meaning(dict(section(before, "template")))
    if allowed == template:
        return []
    if accepts_directives(old):
        _take_directives(allowed, template)
    if allowed == template:
        return []
    return [invalid("spec.template", template, IMMUTABLE)]


def _take_directives(into: Obj, template: Mapping[str, Any]) -> None:
    """What may change while a Job waits: labels, annotations, placement, container resources."""
    pod, new = into["spec"], section(template, "spec")
    _take(into.setdefault("metadata", {}), section(template, "metadata"), ("labels", "annotations"))
    if not into["metadata"] and "metadata" not in template:
        del into["metadata"]
    _take(pod, new, _DIRECTIVES)
    affinity = dict(section(pod, "affinity"))
    _take(affinity, section(new, "affinity"), ("nodeAffinity",))
    if affinity or new.get("affinity") is not None:
        pod["affinity"] = affinity
    else:
        pod.pop("affinity", None)
    for key in ("containers", "initContainers"):
        for mine, theirs in zip(listed(pod, key), listed(new, key), strict=False):
            _take(mine, theirs, ("resources",))


def _take(into: Obj, source: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in source:
            into[key] = source[key]
        else:
            into.pop(key, None)
