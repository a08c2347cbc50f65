"""The owners of names in a group: a definition is served if no other one has its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.raw import listed
from kueuelib.embedded.registry.kind import Kind

_ORDER = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)


@attrs.frozen
class Verdict:
    """The names that a definition gets.

    Attributes:
        names: its `acceptedNames`.
        reason: of the last conflict; empty if there is none.
        message: the same for people.
    """

    names: Obj
    reason: str = ""
    message: str = ""


def accepted(wanted: Mapping[str, Any], held: Mapping[str, Any], others: Iterable[Kind]) -> Verdict:
    """Decide which of its requested names a definition gets.

    Args:
        wanted: `spec.names`.
        held: the `acceptedNames` so far, which stay if a requested name is taken.
        others: the other kinds that are served in the group.
    """
    resources: set[str] = set()
    kinds: set[str] = set()
    for kind in others:
        resources |= {kind.plural, kind.singular, *kind.short_names}
        kinds |= {kind.kind, kind.list_kind}
    names = dict(held)
    reason = message = ""
    for key, conflict in _ORDER:
        used = kinds if key in ("kind", "listKind") else resources
        if key == "shortNames":
            own = set(listed(held, key))
            taken = [name for name in listed(wanted, key) if name in used and name not in own]
        else:
            taken = [wanted[key]] if wanted.get(key) in used - {held.get(key)} else []
        if taken:
            texts = [f'"{name}" is already in use' for name in taken]
            reason, message = conflict, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif wanted.get(key):
            names[key] = wanted[key]
        else:
            names.pop(key, None)
    if wanted.get("categories"):
        names["categories"] = wanted["categories"]
    else:
        names.pop("categories", None)
    return Verdict(names, reason, message)
