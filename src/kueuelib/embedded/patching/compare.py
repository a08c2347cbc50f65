"""Compares two states as sets of fields, and merges them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from kueuelib.embedded.patching.fieldsets import (
    FieldSet,
    Path,
    field,
    fields_of,
    is_granular,
    is_granular_list,
    is_granular_map,
    items_by_element,
    without,
)
from kueuelib.embedded.schema.equality import same_json
from kueuelib.embedded.schema.node import MISSING, ListType, SchemaNode


@attrs.frozen
class Difference:
    """The fields by which a new state differs from an old one.

    Attributes:
        added: those only in the new one.
        modified: leaves with another value.
        removed: those only in the old one.
    """

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    @property
    def written(self) -> FieldSet:
        """Added or modified."""
        return self.added | self.modified

    def without(self, prefixes: Iterable[Path]) -> Difference:
        """The difference outside some prefixes."""
        cut = tuple(prefixes)
        return Difference(
            without(self.added, cut), without(self.modified, cut), without(self.removed, cut)
        )


def compare(node: SchemaNode, old: Any, new: Any) -> Difference:
    """The fields that a change from `old` to `new` adds, modifies and removes."""
    walk = _Walk()
    walk.walk(node, old, new, ())
    return Difference(frozenset(walk.added), frozenset(walk.modified), frozenset(walk.removed))


class _Walk:
    def __init__(self) -> None:
        self.added: set[Path] = set()
        self.modified: set[Path] = set()
        self.removed: set[Path] = set()

    def walk(self, node: SchemaNode, old: Any, new: Any, path: Path) -> None:
        if same_json(old, new):
            return  # whole parts are compared first: most writes change few
        if is_granular_map(node, old) and is_granular_map(node, new):
            for name, before in old.items():
                after = new.get(name, MISSING)
                if after is MISSING:
                    self._alone(node.child(name), before, (*path, field(name)), self.removed)
                elif after is not before:
                    self.walk(node.child(name), before, after, (*path, field(name)))
            for name in new.keys() - old.keys():
                self._alone(node.child(name), new[name], (*path, field(name)), self.added)
        elif is_granular_list(node, old) and is_granular_list(node, new):
            olds = items_by_element(node, old, path)
            news = items_by_element(node, new, path)
            for name, before in olds.items():
                if name in news:
                    self.walk(node.item, before, news[name], (*path, name))
                else:
                    self._alone(node.item, before, (*path, name), self.removed)
            for name in news.keys() - olds.keys():
                self._alone(node.item, news[name], (*path, name), self.added)
        else:
            self._replaced(node, old, new, path)

    def _alone(self, node: SchemaNode, value: Any, path: Path, paths: set[Path]) -> None:
        """A value that exists only on one side, with everything in it."""
        paths.add(path)
        if is_granular_map(node, value):
            for name, each in value.items():
                if isinstance(each, dict | list):
                    self._alone(node.child(name), each, (*path, field(name)), paths)
                else:
                    paths.add((*path, field(name)))
        elif is_granular_list(node, value):
            for name, item in items_by_element(node, value, path).items():
                self._alone(node.item, item, (*path, name), paths)

    def _replaced(self, node: SchemaNode, old: Any, new: Any, path: Path) -> None:
        """A leaf with another value, or a value with another shape."""
        self.modified.add(path)
        if not isinstance(old, dict | list) and not isinstance(new, dict | list):
            return
        before = {(*path, *below) for below in fields_of(node, old)}
        after = {(*path, *below) for below in fields_of(node, new)}
        self.removed |= before - after - {path}
        self.added |= after - before - {path}


def merge(node: SchemaNode, old: Any, new: Any, path: Path = ()) -> Any:
    """The result of applying a value to the present one; neither is changed.

    Maps and granular lists keep what the applied value does not mention; everything else is
    replaced. Null does not change granular maps and lists; elsewhere it is stored.

    Raises:
        Ambiguous: a granular list of `new` has equal items, or items without a key.
    """
    if is_granular_map(node, new):
        merged = dict(old) if is_granular_map(node, old) else {}
        for name, value in new.items():
            if value is None:
                child, present = node.child(name), merged.get(name)
                if not present or not is_granular(child, present):
                    merged[name] = None
            elif isinstance(value, dict | list):
                present = merged.get(name, MISSING)
                merged[name] = merge(node.child(name), present, value, (*path, field(name)))
            else:
                merged[name] = value
        return merged
    if isinstance(new, list) and node.list_type is not ListType.ATOMIC:
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
    """A combined order: that of `new`, with old names before their next common neighbour."""
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
