"""What differs between two states, as sets of fields; and what two states merge to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from kueuelib.embedded.patching.fieldsets import (
    FieldSet,
    Path,
    field,
    fields_of,
    is_granular_list,
    is_granular_map,
    items_by_element,
    without,
)
from kueuelib.embedded.schema.equality import same_json
from kueuelib.embedded.schema.node import MISSING, SchemaNode


@attrs.frozen
class Difference:
    """The fields by which a new state differs from an old one.

    Attributes:
        added: only in the new one.
        modified: leaves with another value.
        removed: only in the old one.
    """

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    @property
    def written(self) -> FieldSet:
        """Added or modified."""
        return self.added | self.modified

    def without(self, prefixes: Iterable[Path]) -> Difference:
        """The difference outside of some prefixes."""
        cut = tuple(prefixes)
        return Difference(
            without(self.added, cut), without(self.modified, cut), without(self.removed, cut)
        )


def compare(node: SchemaNode, old: Any, new: Any) -> Difference:
    """What a change from `old` to `new` adds, modifies and removes."""
    found = _Walk()
    found.walk(node, old, new, ())
    return Difference(frozenset(found.added), frozenset(found.modified), frozenset(found.removed))


class _Walk:
    def __init__(self) -> None:
        self.added: set[Path] = set()
        self.modified: set[Path] = set()
        self.removed: set[Path] = set()

    def walk(self, node: SchemaNode, old: Any, new: Any, path: Path) -> None:
        if old is MISSING:
            self.added.add(path)
        elif new is MISSING:
            self.removed.add(path)
        elif same_json(old, new):
            return  # whole parts are compared first: most writes change few
        if _walkable(is_granular_map, node, old, new):
            before, after = _or_empty(old, {}), _or_empty(new, {})
            for name in {**before, **after}:
                inner = (*path, field(name))
                child = node.child(name)
                self.walk(child, before.get(name, MISSING), after.get(name, MISSING), inner)
        elif _walkable(is_granular_list, node, old, new):
            before = items_by_element(node, _or_empty(old, []), path)
            after = items_by_element(node, _or_empty(new, []), path)
            for name in {**before, **after}:
                inner = (*path, name)
                self.walk(node.item, before.get(name, MISSING), after.get(name, MISSING), inner)
        elif old is not MISSING and new is not MISSING:
            self._replaced(node, old, new, path)

    def _replaced(self, node: SchemaNode, old: Any, new: Any, path: Path) -> None:
        """A leaf got another value, or a value another shape."""
        before = {(*path, *below) for below in fields_of(node, old)}
        after = {(*path, *below) for below in fields_of(node, new)}
        self.removed |= before - after - {path}
        self.added |= after - before - {path}
        self.modified.add(path)


def _walkable(
    is_granular: Callable[[SchemaNode, Any], bool], node: SchemaNode, old: Any, new: Any
) -> bool:
    """Whether every side that exists is owned part by part."""
    return all(each is MISSING or is_granular(node, each) for each in (old, new))


def _or_empty(value: Any, empty: Any) -> Any:
    return empty if value is MISSING else value


def merge(node: SchemaNode, old: Any, new: Any, path: Path = ()) -> Any:
    """What an applied value makes of the present one; neither is changed.

    Maps and granular lists keep what the applied value does not mention; everything else is
    replaced. Null drops a field.

    Raises:
        BadRequest: a granular list of `new` has equal items, or items without a key.
    """
    if is_granular_map(node, new):
        merged = dict(old) if is_granular_map(node, old) else {}
        for name, value in new.items():
            inner = (*path, field(name))
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = merge(node.child(name), merged.get(name, MISSING), value, inner)
        return merged
    if is_granular_list(node, new):
        given = items_by_element(node, new, path, strict=True)
        present = items_by_element(node, old if is_granular_list(node, old) else [], path)
        items = {
            name: merge(node.item, present.get(name, MISSING), item, (*path, name))
            for name, item in given.items()
        }
        return [
            items[name] if name in items else present[name]
            for name in interleave(list(present), list(given))
        ]
    return new


def interleave(old: list[str], new: list[str]) -> list[str]:
    """Both orders in one: that of `new`, and old names stay before the same later neighbour."""
    wanted, placed = set(new), set()
    result: list[str] = []
    at = iter(new)
    for name in old:
        if name in placed:
            continue
        if name in wanted:
            for each in at:
                result.append(each)
                placed.add(each)
                if each == name:
                    break
        else:
            result.append(name)
            placed.add(name)
    result.extend(each for each in at if each not in placed)
    return result
