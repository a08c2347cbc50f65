"""Strategic merge patches: merge patches whose lists merge by key.

Directives: `$patch: replace | delete | merge` in maps and list items, `$retainKeys`,
`$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.patching.compare import interleave
from kueuelib.embedded.schema.equality import canonical
from kueuelib.embedded.schema.mismatch import json_type, shown
from kueuelib.embedded.schema.node import PatchStrategy, SchemaNode
from kueuelib.errors import BadRequest

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_DIRECTIVES: Final = ("replace", "delete", "merge")


def strategic_merge(node: SchemaNode, target: Obj, patch: Mapping[str, Any]) -> Obj:
    """The object that a strategic merge patch asks for; neither argument is changed.

    Args:
        node: how the kind merges, see `kueuelib.embedded.schema.builtin`.
        target: the present object.
        patch: null drops a field.

    Raises:
        BadRequest: the patch is malformed.
    """
    if not isinstance(patch, Mapping):
        raise BadRequest(
            f"json: cannot unmarshal {json_type(patch)} into Go value of type "
            "map[string]interface {}"
        )
    return _merge_map(node, target, patch)


def _merge_map(node: SchemaNode, target: Any, patch: Mapping[str, Any]) -> Obj:
    directive = _directive(patch)
    if directive == "delete":
        return {}
    if directive == "replace":
        return dict(_plain(patch))
    merged: Obj = _retained(target if isinstance(target, dict) else {}, patch)
    orders: dict[str, Any] = {}
    for name, value in patch.items():
        if name in (_PATCH, _RETAIN):
            continue
        if name.startswith(_ORDER):
            orders[name.removeprefix(_ORDER)] = _list(name, value)
        elif name.startswith(_DELETE_FROM):
            _delete_values(merged, name.removeprefix(_DELETE_FROM), _list(name, value))
    for name, value in patch.items():
        if name in (_PATCH, _RETAIN) or name.startswith((_ORDER, _DELETE_FROM)):
            continue
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(node.child(name), merged.get(name), value)
    for name, order in orders.items():
        if isinstance(merged.get(name), list):
            merged[name] = _ordered(node.child(name), merged[name], order)
    return merged


def _merge_value(node: SchemaNode, target: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _merge_map(node, target, value)
    if isinstance(value, list):
        return _merge_list(node, target if isinstance(target, list) else [], value)
    return value


def _merge_list(node: SchemaNode, target: list[Any], patch: list[Any]) -> list[Any]:
    if node.patch_strategy is PatchStrategy.REPLACE:
        return [_plain(item) for item in patch if not _is_directive_only(item)]
    if not node.patch_merge_key:
        merged = list(target)
        known = {canonical(item) for item in merged}
        for item in patch:
            if canonical(item) not in known:
                known.add(canonical(item))
                merged.append(item)
        return merged
    return _merge_items(node, target, patch)


def _merge_items(node: SchemaNode, target: list[Any], patch: list[Any]) -> list[Any]:
    if any(_is_directive_only(item) for item in patch):
        return [_plain(item) for item in patch if not _is_directive_only(item)]
    items: dict[str, Any] = {}
    for item in target:
        items.setdefault(_key(node, item), item)
    for item in patch:
        key = _key(node, item)
        directive = _directive(item)
        if directive == "delete":
            items.pop(key, None)
        elif directive == "replace":
            items[key] = _plain(item)
        else:
            items[key] = _merge_map(node.item, items.get(key), item)
    return list(items.values())


def _ordered(node: SchemaNode, value: list[Any], order: list[Any]) -> list[Any]:
    """The list with the named items in the given order, the others near where they were."""
    by_key = bool(node.patch_merge_key) and node.patch_strategy is PatchStrategy.MERGE

    def text(item: Any) -> str:
        return _key(node, item) if by_key else canonical(item)

    items = {text(item): item for item in value}
    wanted = [key for key in dict.fromkeys(text(item) for item in order) if key in items]
    return [items[key] for key in interleave(list(items), wanted)]


def _key(node: SchemaNode, item: Any) -> str:
    key = node.patch_merge_key
    if not isinstance(item, Mapping) or item.get(key) is None:
        raise failures.unexplained(f"map: {shown(item)} does not contain declared merge key: {key}")
    return canonical(item[key])


def _directive(patch: Mapping[str, Any]) -> str:
    found = patch.get(_PATCH, "merge")
    if found not in _DIRECTIVES:
        raise failures.unexplained(f"unknown patch type: {shown(found)} in map: {shown(patch)}")
    return str(found)


def _is_directive_only(item: Any) -> bool:
    """Whether a list item says that the rest of the patch's list replaces the present one."""
    return isinstance(item, Mapping) and dict(item) == {_PATCH: "replace"}


def _retained(target: Obj, patch: Mapping[str, Any]) -> Obj:
    if _RETAIN not in patch:
        return dict(target)
    kept = patch[_RETAIN]
    if not isinstance(kept, list) or any(
        name not in kept for name in patch if not name.startswith("$")
    ):
        raise BadRequest("invalid patch format of retainKeys")
    return {name: value for name, value in target.items() if name in kept}


def _delete_values(merged: Obj, name: str, values: list[Any]) -> None:
    if isinstance(merged.get(name), list):
        gone = {canonical(value) for value in values}
        merged[name] = [item for item in merged[name] if canonical(item) not in gone]


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"error applying patch: {name} must be a list")
    return value


def _plain(value: Any) -> Any:
    """A value as it is stored: without directives and nulls."""
    if isinstance(value, Mapping):
        return {
            name: _plain(each)
            for name, each in value.items()
            if each is not None and not name.startswith("$")
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
