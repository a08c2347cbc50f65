"""Small changes of a raw status; every function leaves its argument alone."""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import Obj, format_time
from kueuelib.workload.phases import condition, status_of

MESSAGE_LIMIT = 32768
"""The longest message of a condition; longer ones are cut and end in ` ...`."""


def set_condition(wl: Obj, type: str, status: str, reason: str, message: str, now: float) -> Obj:
    """The workload with a condition; its transition time moves only with its status."""
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 4] + " ..."
    old = condition(wl, type)
    if (old.get("status"), old.get("reason"), old.get("message", "")) == (status, reason, message):
        return wl
    kept = old.get("lastTransitionTime") if old.get("status") == status else None
    new: Obj = {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": kept or format_time(now),
    }
    generation = wl["metadata"].get("generation")
    if generation:
        new["observedGeneration"] = generation
    conditions = list(status_of(wl).get("conditions") or ())
    for index, entry in enumerate(conditions):
        if entry["type"] == type:
            conditions[index] = new
            break
    else:
        conditions.append(new)
    return with_status(wl, conditions=conditions)


def with_status(wl: Obj, **fields: Any) -> Obj:
    """The workload with other values in fields of its status."""
    status = {**status_of(wl), **fields}
    return {**wl, "status": status}


def without_status(wl: Obj, field: str) -> Obj:
    """The workload without a field of its status."""
    status = {name: value for name, value in status_of(wl).items() if name != field}
    return {**wl, "status": status}
