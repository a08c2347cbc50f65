"""Small changes of a raw status; no function changes its argument."""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import Obj, format_time
from kueuelib.workload.phases import condition, status_of

MESSAGE_LIMIT = 32768
"""The longest message of a condition; longer ones are cut and end in ` ...`."""


def set_condition(
    wl: Obj,
    type: str,
    status: str,
    reason: str,
    message: str,
    now: float,
    *,
    renew: bool = False,
) -> Obj:
    """The workload with a condition; its transition time moves only with its status.

    Args:
        wl: the workload; it is not changed, and returned if the condition is the same.
        type: of the condition.
        status: of the condition.
        reason: of the condition.
        message: of the condition; a long one is cut.
        now: seconds since the epoch.
        renew: whether to rewrite a condition of an older generation.
    """
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 4] + " ..."
    old = condition(wl, type)
    generation = wl["metadata"].get("generation")
    current = not renew or old.get("observedGeneration") in (None, generation)
    same = (old.get("status"), old.get("reason"), old.get("message", "")) == (
        status,
        reason,
        message,
    )
    if same and current:
        return wl
    kept = old.get("lastTransitionTime") if old.get("status") == status else None
    new: Obj = {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": kept or format_time(now),
    }
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
