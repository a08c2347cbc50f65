"""The rules for the spec of a new or changed Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, find_condition
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    IMMUTABLE,
    duplicate,
    immutable,
    invalid,
    not_supported,
    required,
)
from kueuelib.embedded.builtins.raw import keep, listed, meaning, section, subobject
from kueuelib.embedded.builtins.resources import CONTAINER_LISTS
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.builtins.workloads import (
    UNSELECTED,
    label_selector,
    selects,
    validate_template,
)
from kueuelib.embedded.schema.internal import internal
from kueuelib.errors import FieldError

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID = "controller-uid"
OLD_JOB_NAME = "job-name"


def generated_labels(job: Mapping[str, Any]) -> dict[str, str]:
    """The labels that distinguish the pods of a Job from all others."""
    meta = job["metadata"]
    uid, name = meta.get("uid", ""), meta.get("name", "")
    return {OLD_CONTROLLER_UID: uid, OLD_JOB_NAME: name, CONTROLLER_UID: uid, JOB_NAME: name}


def generate_selector(job: Obj) -> None:
    """Adds the selector to a new Job and the labels to its template; validation finds
    contradictions.
    """
    spec = subobject(job, "spec")
    if spec.get("manualSelector"):
        return
    labels = subobject(subobject(subobject(spec, "template"), "metadata"), "labels")
    for key, value in generated_labels(job).items():
        labels.setdefault(key, value)
    match = subobject(subobject(spec, "selector"), "matchLabels")
    match.setdefault(CONTROLLER_UID, job["metadata"].get("uid", ""))
    meta = job["metadata"]
    if not meta.get("labels"):
        meta["labels"] = dict(labels)


COMPLETION_MODES = ("NonIndexed", "Indexed")
_FIXED = (
    *("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"),
)
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def validate_job(job: Obj) -> list[FieldError]:
    """The broken rules of a Job whose selector is generated."""
    spec = section(job, "spec")
    return _validate_generated(job, spec) + _validate_spec(job, spec)


def _validate_generated(job: Obj, spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    labels = section(spec, "template", "metadata", "labels")
    path = "spec.template.metadata.labels"
    wanted = generated_labels(job)
    errors = [
        invalid(path, dict(labels), f"must be '{value}'")
        if labels.get(key)
        else required(f"{path}[{key}]", f"must be '{value}'")
        for key, value in wanted.items()
        if labels.get(key) != value
    ]
    selector = spec.get("selector")
    if selector is not None and not errors and not selects(selector, {**labels, **wanted}):
        errors.append(invalid("spec.selector", selector, "`selector` not auto-generated"))
    return errors


def _validate_spec(job: Obj, spec: Mapping[str, Any]) -> list[FieldError]:
    errors = validate_job_template(spec, "spec")
    selector = spec.get("selector")
    labels = section(spec, "template", "metadata").get("labels")
    if selector is None:
        errors.append(required("spec.selector"))
    errors += label_selector(selector, "spec.selector")
    fits = selector is not None and selects(selector, labels or {})
    if fits is None:
        return errors
    if not fits:
        errors.append(invalid("spec.template.metadata.labels", labels, UNSELECTED))
    completions = spec.get("completions")
    if completions and spec.get("completionMode") == "Indexed":
        name = f"{job['metadata'].get('name', '')}-{completions - 1}"
        if naming.label(name):
            text = f"will not able to create pod with invalid DNS label: {name}"
            errors.append(invalid("metadata.name", name, text))
    return errors


def validate_job_template(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """The broken rules of the spec of a Job or a Job template, without the selector."""
    errors = check("JobNumbers", spec, path, domain=_domain)
    mode = spec.get("completionMode")
    if mode in (None, *COMPLETION_MODES):
        errors += check(f"{mode or 'NonIndexed'}Job", spec, path, within=_within)
    if spec.get("podFailurePolicy"):
        errors += _failure_policy(spec, f"{path}.podFailurePolicy.rules")
    errors += check("JobPolicies", spec, path)
    errors += validate_template(section(spec, "template"), f"{path}.template")
    restart = section(spec, "template", "spec").get("restartPolicy")
    where = f"{path}.template.spec.restartPolicy"
    if restart in (None, "", "Always"):
        errors.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif restart not in ("OnFailure", "Never"):
        errors.append(not_supported(where, restart, ("OnFailure", "Never"), ordered=True))
    elif restart != "Never" and spec.get("podFailurePolicy"):
        text = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid(where, restart, text))
    return errors


def _failure_policy(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    pod, both = section(spec, "template", "spec"), ("onExitCodes", "onPodConditions")
    names = [each.get("name") for key in CONTAINER_LISTS[:2] for each in listed(pod, key)]
    errors = []
    for i, rule in enumerate(listed(spec["podFailurePolicy"], "rules")):
        errors += check("FailureRule", rule, where := f"{path}[{i}]", codes=_codes)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            text = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid(f"{where}.action", "FailIndex", text))
        container = section(rule, "onExitCodes").get("containerName")
        if container is not None and container not in names:
            text = "must be one of the container or initContainer names in the pod template"
            errors.append(invalid(f"{where}.onExitCodes.containerName", container, text))
        given = rule.get(both[0]) is not None, bool(rule.get(both[1]))
        if given[0] == given[1]:
            text = "specifying both OnExitCodes and OnPodConditions is not supported"
            if not given[0]:
                text = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(FieldError(where, "FieldValueInvalid", f"Invalid value: {text}"))
    return errors


def _codes(at: ValuePlace, _: str) -> BrokenRules:
    codes, errors = at.value or [], []
    if not codes:
        return [invalid(at.path, at.value, "at least one value is required")]
    for i, code in enumerate(codes):
        if code == 0 and at.outer.get("operator") == "In":
            errors.append(invalid(f"{at.path}[{i}]", 0, "must not be 0 for the In operator"))
        if code in codes[:i]:
            errors.append(duplicate(f"{at.path}[{i}]", code))
    return errors + [invalid(at.path, codes, "must be ordered")] * (codes != sorted(codes))


def _domain(at: ValuePlace, _: str) -> BrokenRules:
    text = 'must be a domain-prefixed path (such as "acme.io/foo")'
    return [] if "/" in at.value else [invalid(at.path, at.value, text)]


def _within(at: ValuePlace, _: str) -> BrokenRules:
    most, text = at.outer.get("completions"), "must be less than or equal to completions"
    return [invalid(at.path, at.value, text)] if most is not None and at.value > most else []


def validate_job_update(new: Obj, old: Obj) -> list[FieldError]:
    """The broken rules of a changed Job: those for new ones, and immutable fields."""
    spec, before = section(new, "spec"), section(old, "spec")
    if spec == before:
        return []
    errors = validate_job(new) + _validate_spec(new, spec)
    errors += _validate_completions(spec, before)
    errors += immutable("spec.selector", spec.get("selector"), before.get("selector"))
    errors += _validate_template_update(spec, before, old)
    for key in _FIXED:
        now, then = meaning(spec.get(key)), meaning(before.get(key))
        if now != then:
            told = now
            if key == "podFailurePolicy" and now is not None:
                told = internal("PodFailurePolicy", spec[key])
            errors.append(invalid(f"spec.{key}", told, IMMUTABLE))
    return errors


def _validate_completions(spec: Mapping[str, Any], before: Mapping[str, Any]) -> list[FieldError]:
    """Check that completions do not change, except with the parallelism of an Indexed Job."""
    new, old = spec.get("completions"), before.get("completions")
    path = "spec.completions"
    if spec.get("completionMode") != "Indexed":
        return immutable(path, new, old)
    if new in (None, old, spec.get("parallelism")):
        return []
    return [invalid(path, new, "can only be modified in tandem with spec.parallelism")]


def accepts_directives(job: Mapping[str, Any]) -> bool:
    """Whether the placement of the pods of a stored Job may change.

    It must be suspended without active pods, and never started or reported as suspended (1.36).
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
    if section(old, "spec").get("suspend"):
        shown = internal("PodSpec", section(template, "spec"))
        return [invalid("spec.template.spec", shown, IMMUTABLE)]
    shown = {
        **section(template, "metadata"),
        "Spec": internal("PodSpec", section(template, "spec")),
    }
    return [invalid("spec.template", shown, IMMUTABLE)]


def _take_directives(into: Obj, template: Mapping[str, Any]) -> None:
    """Accepts changes that are allowed while a Job waits: labels, annotations, placement,
    resources.
    """
    pod, new = into["spec"], section(template, "spec")
    keep(into.setdefault("metadata", {}), section(template, "metadata"), "labels", "annotations")
    if not into["metadata"] and "metadata" not in template:
        del into["metadata"]
    keep(pod, new, *_DIRECTIVES)
    affinity = dict(section(pod, "affinity"))
    keep(affinity, section(new, "affinity"), "nodeAffinity")
    if affinity or new.get("affinity") is not None:
        pod["affinity"] = affinity
    else:
        pod.pop("affinity", None)
    for key in ("containers", "initContainers"):
        for mine, theirs in zip(listed(pod, key), listed(new, key), strict=False):
            keep(mine, theirs, "resources")
