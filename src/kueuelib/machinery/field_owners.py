"""The owners of fields in `metadata.managedFields`, when a program takes over from another.

An applied field vanishes when its manager no longer names it, and a field that was written by a
create, an update or a patch does not. So what an earlier program wrote has to become what this one
applied, as `csaupgrade` of client-go does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kueuelib.api.meta import Obj


def taken_over(obj: Mapping[str, Any], managers: Collection[str], by: str) -> list[Obj] | None:
    """The `managedFields` of an object in which one manager has applied what others wrote.

    Args:
        obj: the object as the server returned it.
        managers: those whose fields are taken over. Fields that they applied, wrote in another
            version of the API or through a subresource remain theirs.
        by: the manager that takes over.

    Returns:
        None if none of them owns such a field.
    """
    version = obj.get("apiVersion")
    entries: list[Obj] = obj["metadata"].get("managedFields") or []
    taken = [
        each for each in entries if each.get("manager") in managers and _is(each, "Update", version)
    ]
    if not taken:
        return None
    rest = [each for each in entries if each not in taken]
    own = next(
        (each for each in rest if each.get("manager") == by and _is(each, "Apply", version)), None
    )
    fields: Obj = {}
    for each in [own, *taken] if own else taken:
        fields = _union(fields, each.get("fieldsV1") or {})
    made = {**(own or taken[-1]), "manager": by, "operation": "Apply", "fieldsV1": fields}
    return [*(each for each in rest if each is not own), made]


def _is(entry: Obj, operation: str, version: object) -> bool:
    """Whether an entry is of such writes of the object itself, in this version of the API."""
    whose = (entry.get("operation"), entry.get("apiVersion"), entry.get("subresource", ""))
    return whose == (operation, version, "")


def _union(one: Obj, other: Obj) -> Obj:
    """The union of two sets of fields: each key names a field, an item of a list, or a value."""
    made = dict(one)
    for name, inner in other.items():
        made[name] = _union(made.get(name) or {}, inner or {})
    return made
