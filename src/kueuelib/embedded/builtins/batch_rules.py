"""The server's strategies for Jobs and CronJobs."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.meta import Obj, find_condition, parse_time
from kueuelib.embedded.admission.plugin import AdmissionAttributes, KindRules
from kueuelib.embedded.builtins.fields import (
    IMMUTABLE,
    duplicate,
    holds,
    immutable,
    invalid,
    keep,
    listed,
    meaning,
    not_supported,
    required,
    section,
    subobject,
)
from kueuelib.embedded.builtins.metadata import label
from kueuelib.embedded.builtins.pod_spec import name_warnings, spec_warnings
from kueuelib.embedded.builtins.resources import CONTAINER_LISTS
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.builtins.workloads import (
    UNSELECTED,
    label_selector,
    selects,
    validate_template,
)
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.times import parse_duration
from kueuelib.embedded.schema.written import internal
from kueuelib.errors import FieldError

# ---- the rules for the spec of a new or changed Job ----------------------------------------------

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
        if label(name):
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
            value = now
            if key == "podFailurePolicy" and now is not None:
                value = internal("PodFailurePolicy", spec[key])
            errors.append(invalid(f"spec.{key}", value, IMMUTABLE))
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


# ---- the rules for a Job's status ----------------------------------------------------------------

_LASTING = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
_REASONS = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
_CONTRADICTIONS = (
    ("Complete", "Failed"),
    ("Complete", "FailureTarget"),
    ("Failed", "SuccessCriteriaMet"),
)


def validate_job_status(new: Obj, old: Obj) -> list[FieldError]:
    """The broken rules of a changed status."""
    status, before = section(new, "status"), section(old, "status")
    errors = check("JobCounts", status, "status")
    if status == before:
        return errors
    suspended = bool(section(old, "spec").get("suspend"))
    errors += _validate_start(status, before, suspended=suspended)
    errors += _validate_completion(status, before)
    for name in _LASTING:
        if holds(before, name) and not holds(status, name):
            terminal = "terminal " if name in ("Complete", "Failed") else ""
            text = f"cannot disable the {terminal}{name}=True condition"
            errors.append(invalid("status.conditions", status.get("conditions"), text))
    idle = suspended and section(old, "spec").get("completions") == 0
    return errors + _validate_end(status, before, never_started=idle)


def _validate_start(
    status: Mapping[str, Any], before: Mapping[str, Any], *, suspended: bool
) -> list[FieldError]:
    """Check that the start time is removed only while a Job is suspended, and set again only when
    it resumes.
    """
    path = "status.startTime"
    new, old = status.get("startTime"), before.get("startTime")
    if old is None or new == old or suspended:
        return []
    if new is not None and holds(before, "Suspended"):
        return []
    what = "removed" if new is None else "modified"
    return [required(path, f"startTime cannot be {what} for unsuspended job")]


def _validate_completion(status: Mapping[str, Any], before: Mapping[str, Any]) -> list[FieldError]:
    path = "status.completionTime"
    end, was, start = (
        status.get("completionTime"),
        before.get("completionTime"),
        status.get("startTime"),
    )
    errors = []
    if was is not None and end != was:
        errors.append(invalid(path, end, "field is immutable"))
    if end is not None:
        if not holds(status, "Complete"):
            text = "cannot set completionTime when there is no Complete=True condition"
            errors.append(invalid(path, end, text))
        if start is not None and parse_time(end) < parse_time(start):
            text = "completionTime cannot be set before startTime"
            errors.append(invalid(path, end, text))
    return errors


def _validate_end(
    status: Mapping[str, Any], before: Mapping[str, Any], *, never_started: bool
) -> list[FieldError]:
    held = {name for name in _LASTING if holds(status, name)}
    path, conditions = "status.conditions", status.get("conditions")
    errors = [
        invalid(path, conditions, f"cannot set {one}=True and {other}=true conditions")
        for one, other in _CONTRADICTIONS
        if held >= {one, other}
    ]
    was_done = holds(before, "Complete") or holds(before, "Failed")
    if was_done or held.isdisjoint(_REASONS):
        return errors
    errors += [
        invalid(
            path, conditions, f"cannot set {end}=True condition without the {why}=true condition"
        )
        for end, why in _REASONS.items()
        if end in held and why not in held
    ]
    if status.get("startTime") is None and not never_started:
        errors.append(required("status.startTime", "startTime is required for finished job"))
    if "Complete" in held and status.get("completionTime") is None:
        text = "completionTime is required for Complete jobs"
        errors.append(required("status.completionTime", text))
    errors += [
        invalid(f"status.{key}", status[key], f"{key}>0 is invalid for finished job")
        for key in ("active", "terminating")
        if status.get(key)
    ]
    if (status.get("ready") or 0) > (status.get("active") or 0):
        text = "cannot set more ready pods than active"
        errors.append(invalid("status.ready", status["ready"], text))
    return errors


# ---- schedules and time zones of CronJobs, in the words of what Kubernetes reads them with -------

_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: Final[tuple[tuple[int, int, Mapping[str, int]], ...]] = (
    *((0, 59, {}), (0, 23, {}), (1, 31, {})),
    (1, 12, {name: i for i, name in enumerate(_MONTHS, 1)}),
    (0, 6, {name: i for i, name in enumerate(_DAYS)}),
)
"""Lowest and highest number, and names: of minutes, hours, days, months and weekdays."""
_NAMED: Final = (
    *("@yearly", "@annually", "@monthly", "@weekly"),
    *("@daily", "@midnight", "@hourly"),
)
_EVERY: Final = "@every "
_NO_ZONE: Final = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
_EXPLICIT: Final = (
    "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
)
_ZONE_PART: Final = re.compile(r"(?!\.{1,2}$|-)[A-Za-z.\-_0-9+]{1,14}", re.ASCII)


def schedule(at: ValuePlace, _: str) -> BrokenRules:
    """The rule of `schedule`."""
    whys = [next(_problems(at.value), ""), _NO_ZONE if "TZ" in at.value else ""]
    return [invalid(at.path, at.value, why) for why in whys if why]


def time_zone(at: ValuePlace, _: str) -> BrokenRules:
    """The rule of `timeZone`."""
    name = at.value
    if name is None:
        return []
    if not name:
        return [invalid(at.path, name, "timeZone must be nil or non-empty string")]
    if not all(map(_ZONE_PART.fullmatch, name.split("/"))):
        return [invalid(at.path, name, f"unknown time zone {name}")]
    whys = [_EXPLICIT if name.lower() == "local" else "", _zone_problem(name)]
    return [invalid(at.path, name, why) for why in whys if why]


def _zone_problem(name: str) -> str:
    """Why there is no such zone; empty if there is one, or if this machine knows of none."""
    try:
        if name not in ("", "Local"):
            zoneinfo.ZoneInfo(name)
    except zoneinfo.ZoneInfoNotFoundError:
        zones = zoneinfo.available_timezones()
        if any(zone.startswith(f"{name}/") for zone in zones):
            return "is a directory"  # Python says so itself before 3.14
        return f"unknown time zone {name}" if zones else ""
    except ValueError:
        return "malformed time zone information"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _problems(text: str) -> Iterator[str]:
    """What is wrong with a schedule; Kubernetes names the first."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, space, text = text.partition("=")[2].partition(" ")
        if not space:
            yield "invalid schedule format: runtime error: slice bounds out of range [:-1]"
        if why := _zone_problem(zone):
            yield f"provided bad location {zone}: {why}"
    fields = text.split()
    if text.startswith(_EVERY):
        try:
            parse_duration(text.removeprefix(_EVERY))
        except EvalError as error:
            yield f"failed to parse duration {text}: {error}"
    elif text.strip().startswith("@"):
        if text.strip() not in _NAMED:
            yield f"unrecognized descriptor: {text}"
    elif len(fields) != len(_FIELDS):
        given = f"found {len(fields)}: [{' '.join(fields)}]"
        yield f"expected exactly {len(_FIELDS)} fields, {given}"
    else:
        for field, limits in zip(fields, _FIELDS, strict=True):
            for each in filter(None, field.split(",")):
                yield from _range_problems(each, *limits)


def _range_problems(text: str, low: int, high: int, names: Mapping[str, int]) -> Iterator[str]:
    ends, *steps = text.split("/")
    first, *others = ends.split("-")
    start, end, step = low, high, 1
    try:
        if first not in ("*", "?"):
            start = end = _number(first, names)
            if len(others) > 1:
                yield f"too many hyphens: {text}"
            end = _number(others[0], names) if others else high if steps else start
        if len(steps) > 1:
            yield f"too many slashes: {text}"
        step = _number(steps[0], {}) if steps else 1
    except ValueError as error:
        yield str(error)
    for wrong, why in (
        (start < low, f"beginning of range ({start}) below minimum ({low})"),
        (end > high, f"end of range ({end}) above maximum ({high})"),
        (start > end, f"beginning of range ({start}) beyond end of range ({end})"),
        (not step, "step of range should be a positive number"),
    ):
        if wrong:
            yield f"{why}: {text}"


def _number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    fits = re.fullmatch(r"[+-]?[0-9]{1,1000}", text, re.ASCII)
    if not fits or abs(int(text)) >= 2**63:
        why = "value out of range" if fits else "invalid syntax"
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {why}')
    if int(text) < 0:
        raise ValueError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)


# --------------------------------------------------------------------------------------------------

MANY_COMPLETIONS = 100_000
MANY_PODS = 10_000


class JobRules(KindRules):
    """The strategy of Jobs."""

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Remove the status of a new Job, and generate its selector."""
        del request
        obj["status"] = {}
        generate_selector(obj)

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The rules of the spec."""
        return validate_job(obj)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The broken rules of a changed Job."""
        if subresource == "status":
            return validate_job_status(obj, old)
        return validate_job_update(obj, old)

    def warnings(self, obj: Obj, old: Obj | None) -> Sequence[str]:
        """Warnings about the template of a new or changed Job, and about counts that are too
        large.
        """
        meta, spec = section(obj, "metadata"), section(obj, "spec")
        if old is not None and meta.get("generation") == section(old, "metadata").get("generation"):
            return ()
        warnings: list[str] = []
        if old is None:
            warnings += name_warnings(meta.get("name") or "", "Pod names and hostnames")
        completions, parallelism = spec.get("completions") or 0, spec.get("parallelism") or 0
        many = completions > MANY_COMPLETIONS and parallelism > MANY_PODS
        if spec.get("completionMode") == "Indexed" and many:
            warnings.append(
                "spec: In Indexed Jobs with a number of completions higher than 10^5 and a "
                "parallelism higher than 10^4, Kubernetes might not be able to track "
                "completedIndexes when a big number of indexes fail"
            )
        return [*warnings, *spec_warnings(section(spec, "template", "spec"), "spec.template.spec")]
