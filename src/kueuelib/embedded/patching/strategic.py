"""Strategic merge patches: merge patches whose lists merge by key.

Directives: `$patch: replace | delete` in maps and list items, `$retainKeys`,
`$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`. As in Kubernetes, they only apply
if both sides have a map or a list; new values lose the maps with `$patch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.schema.equality import canonical
from kueuelib.embedded.schema.mismatch import json_type, shown
from kueuelib.embedded.schema.node import PatchStrategy, SchemaNode
from kueuelib.errors import ApiError, BadRequest

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_GONE: Final = object()


def strategic_merge(node: SchemaNode, target: Obj, patch: Obj) -> Obj:
    """The result of a strategic merge patch; it may share parts with both arguments.

    As in Kubernetes, the patch loses its directives, and nulls for absent values.

    Args:
        node: how the kind merges, see `kueuelib.embedded.schema.builtin_schemas`.
        target: the present object.
        patch: null drops a field.

    Raises:
        ApiError: the patch is malformed.
    """
    if not isinstance(patch, Mapping):
        raise BadRequest(
            f"json: cannot unmarshal {json_type(patch)} into Go value of type "
            "map[string]interface {}"
        )
    return _merge_map(node, target, patch)


def _merge_map(node: SchemaNode, target: Obj, patch: Obj) -> Obj:
    if _PATCH in patch:
        directive = patch[_PATCH]
        if directive == "replace":
            del patch[_PATCH]
            return patch
        if directive == "delete":
            return {}
        raise _unknown_directive(patch)
    merged = _retained(target, patch)
    for name in [each for each in patch if each.startswith(_ORDER)]:
        order, field = patch.pop(name), name.removeprefix(_ORDER)
        if not isinstance(order, list):
            raise _bad_argument(order)
        if field in patch:
            merged[field] = _merged(node.child(field), merged.get(field), patch.pop(field))
        if isinstance(merged.get(field), list):
            merged[field] = _ordered(node.child(field), target.get(field), merged[field], order)
    for name, value in patch.items():
        field = name.removeprefix(_DELETE_FROM)
        if value is None:
            merged.pop(field, None)
        elif field == name:
            merged[name] = _merged(node.child(name), merged.get(name), value)
            if merged[name] is _GONE:
                del merged[name]
        elif isinstance(value, list) and isinstance(merged.get(field), list):
            gone = {canonical(each) for each in value}
            merged[field] = [each for each in merged[field] if canonical(each) not in gone]
    return merged


def _merged(node: SchemaNode, target: Any, value: Any) -> Any:
    if isinstance(value, dict) and isinstance(target, dict):
        return _merge_map(node, target, value)
    if isinstance(value, list) and isinstance(target, list):
        replaced = node.patch_strategy is PatchStrategy.REPLACE
        return value if replaced else _merge_list(node, target, value)
    if isinstance(value, dict | list):
        _drop_nulls(value)
    return _without_directives(value)


def _merge_list(node: SchemaNode, target: list[Any], patch: list[Any]) -> list[Any]:
    kinds = {json_type(item) for item in (*target, *patch)}
    if len(kinds) > 1:
        text = f"list element types are not identical: {shown([target, patch])}"
        raise failures.unexplained(text)
    if "array" in kinds:
        raise failures.unexplained("lists of lists are not supported", 422)
    if not node.patch_merge_key or "object" not in kinds:
        values = {canonical(item): item for item in (*target, *patch)}
        order = [canonical(item) for item in patch]
        known = [canonical(item) for item in target]
        return [values[each] for each in _interleaved(known, values, order)]
    return _merge_items(node, target, patch)


def _merge_items(node: SchemaNode, target: list[Any], patch: list[Any]) -> list[Any]:
    plain = [item for item in patch if _PATCH not in item]
    directives = [item for item in patch if _PATCH in item]
    for item in directives:
        if item[_PATCH] == "delete":
            gone = _key(node, item)
            target = [each for each in target if _key(node, each) != gone]
        elif item[_PATCH] == "merge":
            raise failures.unexplained("merging lists cannot yet be specified in the patch")
        elif item[_PATCH] != "replace":
            raise _unknown_directive(item)
    if any(item[_PATCH] == "replace" for item in directives):
        return plain
    items: dict[str, Any] = {}
    for item in target:
        items.setdefault(_key(node, item), item)
    known = list(items)
    for item in plain:
        key = _key(node, item)
        items[key] = _merge_map(node.item, items[key], item) if key in items else item
    order = [_key(node, item) for item in plain]
    return [items[each] for each in _interleaved(known, items, order)]


def _interleaved(known: Sequence[str], items: Mapping[str, Any], order: list[str]) -> list[str]:
    """The keys of the items: those of `order` in that order, the others before their next
    neighbours.

    Args:
        known: the keys in their former order.
        items: by key; their order counts for keys that `order` does not name.
        order: keys.
    """
    named = [key for key in dict.fromkeys(order) if key in items]
    rest = [key for key in items if key not in set(named)]
    at = {key: place for place, key in enumerate(known)}
    merged = []
    for key in named:
        while rest and key in at and at.get(rest[0], len(at)) < at[key]:
            merged.append(rest.pop(0))
        merged.append(key)
    return merged + rest


def _ordered(node: SchemaNode, before: Any, value: list[Any], order: list[Any]) -> list[Any]:
    """The list with the named items in the given order, the others near where they were."""
    by_key = bool(node.patch_merge_key) and node.patch_strategy is PatchStrategy.MERGE

    def text(item: Any) -> str:
        return _key(node, item) if by_key else canonical(item)

    items = {text(item): item for item in value}
    known = [text(item) for item in before] if isinstance(before, list) else []
    return [items[key] for key in _interleaved(known, items, [text(item) for item in order])]


def _key(node: SchemaNode, item: Any) -> str:
    key = node.patch_merge_key
    if not isinstance(item, Mapping) or key not in item:
        raise failures.unexplained(f"map: {shown(item)} does not contain declared merge key: {key}")
    return canonical(item[key])


def _unknown_directive(patch: Mapping[str, Any]) -> ApiError:
    text = f"unknown patch type: {shown(patch[_PATCH])} in map: {shown(patch)}"
    return failures.unexplained(text)


def _bad_argument(value: Any) -> ApiError:
    names = {"object": "map[string]interface {}", "number": "int64", "null": "%!s(<nil>)"}
    type_name = names.get(json_type(value), json_type(value))
    return failures.unexplained(f"expected a []interface {{}}, but received a {type_name}")


def _retained(target: Obj, patch: Obj) -> Obj:
    if _RETAIN not in patch:
        return dict(target)
    kept = patch.pop(_RETAIN)
    named = [name for name, value in patch.items() if value is not None]
    if not isinstance(kept, list) or any(
        name not in kept for name in named if not name.startswith((_DELETE_FROM, _ORDER))
    ):
        raise BadRequest("invalid patch format of retainKeys")
    return {name: value for name, value in target.items() if name in kept}


def _drop_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for name in [name for name, each in value.items() if each is None]:
            del value[name]
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            _drop_nulls(each)


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        if _PATCH in value:
            return _GONE
        for name, each in list(value.items()):
            value[name] = _without_directives(each)
            if value[name] is _GONE:
                del value[name]
        return value
    if isinstance(value, list):
        return [item for each in value if (item := _without_directives(each)) is not _GONE]
    return value
