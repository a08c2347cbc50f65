"""Sets of fields with owners: paths, their JSON form (FieldsV1) and their algebra.

A path is a tuple of elements, a set a frozenset of paths. An element is written as in FieldsV1:
`f:name` a field, `k:{"name":"a"}` the item of a map list with that key, `v:"a"` a value of a set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.embedded.schema.node import MISSING, ListType, SchemaNode, canonical, same_json
from kueuelib.errors import KueuelibError

Path = tuple[str, ...]
FieldSet = frozenset[Path]

NO_FIELDS: Final[FieldSet] = frozenset()
Tree = dict[str, "Tree"]


class Ambiguous(KueuelibError):
    """A granular list has duplicate items, or an item without its key."""


class Unkeyed(Ambiguous):
    """An item of a stored list has none of its keys."""


_SELF: Final = "."
NO_KEY: Final = "k:{}"
_KNOWN: Final = 512
"""The number of cached JSON forms, because objects of a kind mostly have the same owners."""


def field(name: str) -> str:
    """The element of a field."""
    return f"f:{name}"


def element(node: SchemaNode, item: Any) -> str:
    """The element of an item of a set or map list."""
    if node.list_type is ListType.SET:
        return f"v:{canonical(item)}"
    return f"k:{canonical(_key(node, item))}"


def _key(node: SchemaNode, item: Obj) -> Obj:
    """The identity of an item: its keys, with defaults for missing ones."""
    values = {name: item.get(name, node.item.child(name).default) for name in node.list_map_keys}
    return {name: value for name, value in values.items() if value is not MISSING}


def is_granular_map(node: SchemaNode, value: Any) -> bool:
    """Whether the fields of a value are owned separately."""
    return isinstance(value, dict) and not node.atomic_map


def is_granular_list(node: SchemaNode, value: Any) -> bool:
    """Whether the items of a value are owned separately."""
    if not isinstance(value, list):
        return False
    if node.list_type is ListType.SET:
        return True
    return node.list_type is ListType.MAP and all(isinstance(item, dict) for item in value)


def is_granular(node: SchemaNode, value: Any) -> bool:
    """Whether a value has parts that are owned separately."""
    return is_granular_map(node, value) or is_granular_list(node, value)


def items_by_element(
    node: SchemaNode,
    value: list[Any] | None,
    path: Path,
    *,
    strict: bool = False,
    keyed: bool = True,
) -> dict[str, Any]:
    """The items of a granular list by element; of duplicates the first.

    Raises:
        Ambiguous: with `strict`, if there are duplicates or an item lacks its key.
        Unkeyed: with `keyed`, if an item lacks its key.
    """
    by_element: dict[str, Any] = {}
    for index, item in enumerate(value or ()):
        if strict and node.list_type is ListType.MAP:
            _check_key(node, item, path, index)
        name = element(node, item)
        if name == NO_KEY and keyed and not strict:
            raise Unkeyed(_no_key(node, path, index))
        if name not in by_element:
            by_element[name] = item
        elif strict:
            raise Ambiguous(f"{show(path)}: duplicate entries for key {show_element(name)}")
    return by_element


def _check_key(node: SchemaNode, item: Any, path: Path, index: int) -> None:
    """Check that an item has at least one of its keys, or a default for one."""
    where = f"{show(path)}: element {index}: associative list with keys"
    if item is None:
        raise Ambiguous(f"{where} may not have a null element")
    if not isinstance(item, dict):
        raise Ambiguous(f"{where} may not have non-map elements")
    if not _key(node, item):
        raise Ambiguous(_no_key(node, path, index))


def _no_key(node: SchemaNode, path: Path, index: int) -> str:
    names = " ".join(f'"{name}"' for name in node.list_map_keys)
    return (
        f"{show(path)}: element {index}: associative list with keys has an element that omits all "
        f"key fields [{names}] (and doesn't have default values for any key fields)"
    )


# ---- from objects -------------------------------------------------------------------------------


def fields_of(node: SchemaNode, value: Any) -> FieldSet:
    """Every field that a value sets.

    Leaves, atomic maps and lists, empty maps, entries of open maps, and items of granular lists.
    """
    paths: set[Path] = set()
    _collect(node, value, (), paths)
    return frozenset(paths)


def _collect(node: SchemaNode, value: Any, path: Path, paths: set[Path]) -> None:
    if is_granular_map(node, value):
        properties = node.properties
        for name, each in value.items():
            inner = (*path, "f:" + name)
            if not isinstance(each, dict | list):
                paths.add(inner)
                continue
            _collect(node.child(name), each, inner, paths)
            if name not in properties or each == {}:
                paths.add(inner)
    elif is_granular_list(node, value):
        for name, item in items_by_element(node, value, path, keyed=False).items():
            inner = (*path, name)
            _collect(node.item, item, inner, paths)
            paths.add(inner)
    else:
        paths.add(path)


# ---- algebra ------------------------------------------------------------------------------------


def with_ancestors(fields: Iterable[Path]) -> FieldSet:
    """The fields and everything above them, without the root."""
    paths = set(fields)
    layer = paths
    while layer:
        layer = {path[:-1] for path in layer if len(path) > 1} - paths
        paths |= layer
    paths.discard(())
    return frozenset(paths)


def without(fields: FieldSet, prefixes: Iterable[Path]) -> FieldSet:
    """The fields that are neither a prefix nor below one."""
    cut = frozenset(prefixes)
    if not cut or not fields:
        return fields
    left: Iterable[Path] = fields
    for length in {len(prefix) for prefix in cut}:
        left = [path for path in left if path[:length] not in cut]
    return frozenset(left)


def remove(node: SchemaNode, value: Any, fields: FieldSet, kept: FieldSet = NO_FIELDS) -> Any:
    """A copy of the value without those fields and everything below them.

    Maps and lists that lose their last entry are removed as well, unless they are in `kept`.
    """
    return _remove(node, value, _tree(fields), _tree(kept))


def _remove(node: SchemaNode, value: Any, tree: Tree, kept: Tree) -> Any:
    if is_granular_map(node, value):
        fields: dict[str, Any] = {}
        for name, each in value.items():
            left = _remove_part(node.child(name), each, field(name), tree, kept)
            if left is not MISSING:
                fields[name] = left
        return fields if fields or not value or _SELF in kept else MISSING
    if is_granular_list(node, value):
        items: list[Any] = []
        for item in value:
            left = _remove_part(node.item, item, element(node, item), tree, kept)
            if left is not MISSING:
                items.append(left)
        held = _SELF in kept or any(_SELF in each for each in kept.values())
        return items if items or not value or held else MISSING
    return value


def _remove_part(node: SchemaNode, value: Any, name: str, tree: Tree, kept: Tree) -> Any:
    below = tree.get(name)
    if below is None:
        return value
    return MISSING if _SELF in below else _remove(node, value, below, kept.get(name, {}))


# ---- text ---------------------------------------------------------------------------------------


def _tree(fields: FieldSet) -> Tree:
    root: Tree = {}
    for path in fields:
        at = root
        for each in path:
            at = at.setdefault(each, {})
        at[_SELF] = {}
    return root


def to_fields_v1(fields: FieldSet) -> Obj:
    """The JSON form, elements in a fixed order."""
    fields_v1: Obj = orjson.loads(_written(fields))
    return fields_v1


@lru_cache(_KNOWN)
def _written(fields: FieldSet) -> bytes:
    return orjson.dumps(_shortened(_tree(fields)))


def _shortened(tree: Tree) -> Obj:
    if tree.keys() == {_SELF}:
        return {}
    return {name: _shortened(tree[name]) if name != _SELF else {} for name in sorted(tree)}


def from_fields_v1(raw: Mapping[str, Any]) -> FieldSet:
    """The set of a JSON form.

    Raises:
        ValueError: it is not valid.
    """
    return _read_text(orjson.dumps(raw))


@lru_cache(_KNOWN)
def _read_text(text: bytes) -> FieldSet:
    paths: set[Path] = set()
    _read(orjson.loads(text), (), paths)
    return frozenset(paths)


def _read(raw: Mapping[str, Any], path: Path, paths: set[Path]) -> None:
    for name, below in raw.items():
        if name == _SELF:
            paths.add(path)
            continue
        if name[1:2] != ":" or not isinstance(below, Mapping):
            raise ValueError(f"{name!r} is not an element of a field path")
        if name[0] not in "fkvi":
            continue  # of a kind that a later Kubernetes may know
        inner = (*path, name if name[:2] in ("f:", "i:") else _respelled(name))
        if below:
            _read(below, inner, paths)
        else:
            paths.add(inner)


@lru_cache(4096)
def _respelled(name: str) -> str:
    return name[:2] + canonical(json.loads(name[2:]))


def show(path: Path) -> str:
    """A path for people: `.spec.containers[name="a"].image`."""
    return "".join(show_element(each) for each in path) or "."


def show_element(name: str) -> str:
    """One element for people."""
    kind, text = name[:2], name[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    if kind == "k:":
        pairs = sorted(json.loads(text).items())
        return "[" + ",".join(f"{key}={canonical(value)}" for key, value in pairs) + "]"
    return f"[{text}]"


# ---- compares two states as sets of fields, and merges them --------------------------------------


@attrs.frozen
class FieldDifference:
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

    def without(self, prefixes: Iterable[Path]) -> FieldDifference:
        """The difference outside some prefixes."""
        cut = tuple(prefixes)
        return FieldDifference(
            without(self.added, cut), without(self.modified, cut), without(self.removed, cut)
        )


def compare(node: SchemaNode, old: Any, new: Any) -> FieldDifference:
    """The fields that a change from `old` to `new` adds, modifies and removes."""
    walk = _Walk()
    walk.walk(node, old, new, ())
    return FieldDifference(frozenset(walk.added), frozenset(walk.modified), frozenset(walk.removed))


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
