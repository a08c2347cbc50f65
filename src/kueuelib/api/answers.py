"""Whether a write that the API server accepted took effect.

A mutating webhook or policy may change a field back before the server stores the object; the answer
is a success then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.errors import Invalid

CHANGED_BACK: Final = "a mutating webhook or policy changes it back"
"""How messages about such a write end."""


def expect_change(old: Obj, new: Obj, answer: Obj) -> None:
    """Compare the answer to a write with what was written.

    A field of the spec that was removed or replaced must not have its old value, and a condition
    that was written must not have its old status. What was added may be missing: the server drops
    fields that a CRD does not have.

    Args:
        old: the object before.
        new: the object that was sent, or the part of it that matters.
        answer: the object that came back.

    Raises:
        Invalid: a field is as it was before the write; `details` names it as the only cause.
    """
    kept = next(_kept(old.get("spec"), new.get("spec"), answer.get("spec"), "spec"), None)
    kept = kept or next(_kept_conditions(old, new, answer), None)
    if kept is not None:
        path, value = kept
        text = f"{path} is still {json.dumps(value)} in the answer: {CHANGED_BACK}"
        raise Invalid(text, details={"causes": [{"field": path, "message": CHANGED_BACK}]})


def is_changed_back(error: Exception) -> bool:
    """Whether an error says that a write was accepted and had no effect."""
    return isinstance(error, Invalid) and error.message.endswith(CHANGED_BACK)


def _kept(old: Any, new: Any, answer: Any, path: str) -> Iterator[tuple[str, Any]]:
    if new is old:
        return
    if isinstance(old, dict) and isinstance(new, dict) and isinstance(answer, dict):
        for key in {**new, **old}:
            yield from _kept(old.get(key), new.get(key), answer.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list | None) and isinstance(answer, list):
        for entry in old:
            if entry not in (new or ()) and entry in answer:
                yield path, answer
                return
        if new and new != old and answer == old:
            yield path, answer
    elif isinstance(new, bool) or isinstance(old, bool):
        if bool(new) != bool(old) == bool(answer):
            yield path, bool(answer)
    elif isinstance(old, str | int) and new is not None and new != old == answer:
        yield path, answer


def _kept_conditions(old: Obj, new: Obj, answer: Obj) -> Iterator[tuple[str, str]]:
    before, after = _conditions(old), _conditions(answer)
    for kind, wanted in _conditions(new).items():
        known = before.get(kind, "")
        if wanted != known and after.get(kind, "") == known:
            yield f"status.conditions[{kind}]", known or "missing"


def _conditions(obj: Mapping[str, Any]) -> dict[str, str]:
    status = obj.get("status") or {}
    return {one["type"]: one["status"] for one in status.get("conditions") or () if "status" in one}
