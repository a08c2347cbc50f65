"""The rules for a Job's status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, parse_time
from kueuelib.embedded.builtins.fields import invalid, required
from kueuelib.embedded.builtins.raw import holds, section
from kueuelib.embedded.builtins.rule_table import check
from kueuelib.errors import FieldError

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
