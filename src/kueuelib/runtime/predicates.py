"""Which deltas are worth a reconciliation. All are functions of one delta.

Additions and deletions pass every predicate here; they differ in which updates pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.machinery.selectors import Selector
from kueuelib.machinery.store import Delta

Predicate = Callable[[Delta[Obj]], bool]


def resource_version_changed(delta: Delta[Obj]) -> bool:
    """Drops updates without news, such as those of a relist."""
    return _differs(delta, lambda obj: obj["metadata"].get("resourceVersion"))


def generation_changed(delta: Delta[Obj]) -> bool:
    """Passes changes of the spec only.

    Caveat: changes of status, labels and annotations are dropped, so drift there stays unrepaired.
    """
    return _differs(delta, lambda obj: obj["metadata"].get("generation"))


def labels_changed(delta: Delta[Obj]) -> bool:
    """Passes changes of labels."""
    return _differs(delta, labels_of)


def annotations_changed(delta: Delta[Obj]) -> bool:
    """Passes changes of annotations."""
    return _differs(delta, annotations_of)


def matches_labels(selector: Selector) -> Predicate:
    """Passes objects whose labels match, before or after the change."""

    def predicate(delta: Delta[Obj]) -> bool:
        return any(
            selector.matches(labels_of(obj)) for obj in (delta.old, delta.new) if obj is not None
        )

    return predicate


def all_of(*predicates: Predicate) -> Predicate:
    """Passes what every one passes."""
    return lambda delta: all(predicate(delta) for predicate in predicates)


def any_of(*predicates: Predicate) -> Predicate:
    """Passes what at least one passes."""
    return lambda delta: any(predicate(delta) for predicate in predicates)


def negate(predicate: Predicate) -> Predicate:
    """Passes what the other one drops."""
    return lambda delta: not predicate(delta)


def _differs(delta: Delta[Obj], part: Callable[[Obj], Any]) -> bool:
    if delta.old is None or delta.new is None:
        return True
    return bool(part(delta.old) != part(delta.new))
