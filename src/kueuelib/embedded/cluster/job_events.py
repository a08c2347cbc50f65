"""The events about a new status of a Job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kueuelib.api.meta import find_condition


class Said(NamedTuple):
    """One event: `Normal` or `Warning`, its reason and its message."""

    type: str
    reason: str
    message: str


def told_by(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Said]:
    """The events for the change from one status to the next."""
    events = []

    def became(type_: str, value: str = "True") -> Mapping[str, Any] | None:
        condition = find_condition(new.get("conditions"), type_)
        before = find_condition(old.get("conditions"), type_)
        changed = condition.get("status") == value != before.get("status")
        return condition if changed else None

    if became("Suspended"):
        events.append(Said("Normal", "Suspended", "Job suspended"))
    if became("Suspended", "False"):
        events.append(Said("Normal", "Resumed", "Job resumed"))
    if became("Complete"):
        events.append(Said("Normal", "Completed", "Job completed"))
    failed = became("FailureTarget")
    if failed is not None:
        events.append(Said("Warning", failed.get("reason", ""), failed.get("message", "")))
    return events
