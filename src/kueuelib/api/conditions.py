"""Pure helpers on tuples of conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Condition, Obj, format_time
from kueuelib.errors import ConfigError

CONDITION_MESSAGE_LIMIT = 32 * 1024
"""Bytes of a condition's message."""


_CUT = " ..."


def find(conditions: Iterable[Condition], type: str) -> Condition | None:
    """The condition of that type, or None."""
    for condition in conditions:
        if condition.type == type:
            return condition
    return None


def with_condition(
    conditions: tuple[Condition, ...], new: Condition, now: float
) -> tuple[Condition, ...]:
    """The conditions with one set; the same tuple when nothing changes.

    The transition time becomes `now` (seconds since the epoch) only when the status changes,
    whatever `new` says; a long message is cut. The order of the conditions stays; a new one comes
    last.
    """
    new = attrs.evolve(new, message=truncate_message(new.message))
    old = find(conditions, new.type)
    if old is None:
        return (*conditions, attrs.evolve(new, last_transition_time=now))
    changed = old.status != new.status
    new = attrs.evolve(new, last_transition_time=now if changed else old.last_transition_time)
    if new == old:
        return conditions
    return tuple(new if condition is old else condition for condition in conditions)


def with_raw_condition(
    conditions: Iterable[Mapping[str, Any]],
    type: str,
    status: bool | None,
    reason: str,
    message: str = "",
    *,
    now: float,
    generation: int | None = None,
) -> list[Obj]:
    """The raw conditions with one set; none of the arguments is changed.

    The transition time becomes `now` only when the status changes; a long message is cut.

    Args:
        conditions: the raw conditions of an object.
        type: what is observed, for example `Ready`.
        status: None stands for Unknown.
        reason: a word in CamelCase for programs.
        message: a sentence for people.
        now: seconds since the epoch.
        generation: of the observed object.
    """
    new: Obj = {
        "type": type,
        "status": "Unknown" if status is None else str(status),
        "reason": reason,
        "message": truncate_message(message),
        "lastTransitionTime": format_time(now),
    }
    if generation is not None:
        new["observedGeneration"] = generation
    updated = [dict(each) for each in conditions]
    for index, old in enumerate(updated):
        if old.get("type") == type:
            if old.get("status") == new["status"] and "lastTransitionTime" in old:
                new["lastTransitionTime"] = old["lastTransitionTime"]
            updated[index] = new
            return updated
    return [*updated, new]


def truncate_message(message: str, limit: int = CONDITION_MESSAGE_LIMIT) -> str:
    """The message, cut to `limit` bytes of UTF-8 and then ending in ` ...`."""
    if len(message) * 4 <= limit:
        return message
    raw = message.encode()
    if len(raw) <= limit:
        return message
    return raw[: limit - len(_CUT)].decode(errors="ignore") + _CUT


def since(conditions: Iterable[Condition], type: str) -> float | None:
    """Since when a condition is True, in seconds since the epoch; None if it is not True."""
    condition = find(conditions, type)
    return condition.last_transition_time if condition is not None and condition.is_true else None


def check_condition(type: str, status: Any, reason: str) -> None:
    """Check what an author gives for a condition, before a server refuses it.

    Raises:
        ConfigError: the server would not accept one of them; the message names it.
    """
    subject = f"condition({type!r}, {status!r}, {reason!r})"
    if status is not None and not isinstance(status, bool):
        problem = f"the status {status!r} is not valid"
        raise ConfigError(subject, problem, "give True, False, or None for Unknown")
    _check_word(subject, "type", type, "Ready")
    check_reason(subject, reason)


def check_reason(subject: str, reason: str) -> None:
    """Check the reason of a condition or an event.

    Raises:
        ConfigError: it is not a word; the message names it.
    """
    _check_word(subject, "reason", reason, "PodsRunning")


def _check_word(subject: str, name: str, value: Any, example: str) -> None:
    schema = attrs.fields_dict(Condition)[name].metadata["wire"].schema
    if (
        not isinstance(value, str)
        or not re.fullmatch(schema["pattern"], value)
        or len(value) > schema["maxLength"]
    ):
        problem = f"the {name} {value!r} is not valid"
        raise ConfigError(subject, problem, f"give a word in CamelCase, such as {example}")
