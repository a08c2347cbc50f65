"""Applies patches to objects: JSON, merge and strategic merge patches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonpatch
import orjson
from jsonpointer import JsonPointer, JsonPointerException

from kueuelib.api.meta import Obj
from kueuelib.api.patch import merge_patch
from kueuelib.embedded import failures
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.schema import mismatch
from kueuelib.embedded.schema.mismatch import json_type, shown
from kueuelib.embedded.schema.node import PatchStrategy, SchemaNode, canonical
from kueuelib.errors import ApiError, BadRequest, Invalid, TooLarge
from kueuelib.runtime.queries import PatchType

# ---- strategic merge patches: merge patches whose lists merge by key -----------------------------
# Directives: `$patch: replace | delete` in maps and list items, `$retainKeys`,
# `$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`. As in Kubernetes, they only
# apply if both sides have a map or a list; new values lose the maps with `$patch`.

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_GONE: Final = object()


def strategic_merge(node: SchemaNode, target: Obj, patch: Obj) -> Obj:
    """The result of a strategic merge patch; it may share parts with both arguments.

    As in Kubernetes, the patch loses its directives, and nulls for absent values.

    Args:
        node: how the kind merges, see `kueuelib.embedded.schema.messages`.
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


# --------------------------------------------------------------------------------------------------

OPERATIONS_LIMIT = 10_000
COPIED_LIMIT = 3 * 2**20
"""Bytes of JSON that the `copy` operations of a patch may copy together."""
_NOT_APPLICABLE: Final = (
    jsonpatch.JsonPatchException,
    JsonPointerException,
    orjson.JSONEncodeError,
    TypeError,
    KeyError,
    AttributeError,
)
_GO_PATCH: Final = "Go value of type jsonpatch.Patch"
REJECTED = "the server rejected our request due to an error in our request"


def json_patch(target: Obj, operations: Any, *, checked: bool = True) -> Any:
    """RFC 6902.

    Raises:
        BadRequest: it is not a patch.
        TooLarge: it has too many operations.
        Invalid: an operation cannot be done, or its test failed.
    """
    problem = _type_problem(operations)
    if problem and not (checked or isinstance(operations, list)):
        raise BadRequest(f"json: cannot unmarshal {json_type(operations)} into {_GO_PATCH}")
    if problem:
        raise BadRequest(f"error decoding patch: json: cannot unmarshal {problem}")
    if len(operations) > OPERATIONS_LIMIT:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, "
            f"got {len(operations)}"
        )
    document: Any = copy_json(target)
    room = COPIED_LIMIT
    for operation in operations:
        try:
            if operation.get("op") == "copy":
                source = JsonPointer(str(operation.get("from", ""))).resolve(document, None)
                room -= len(orjson.dumps(source))
                if room < 0:
                    raise Invalid(REJECTED, details={})
            document = jsonpatch.JsonPatch([_lenient(operation, document)]).apply(
                document, in_place=True
            )
        except _NOT_APPLICABLE as error:
            raise Invalid(REJECTED, details={}) from error
    if not isinstance(document, dict):
        raise Invalid(REJECTED, details={})
    return copy_json(document)


def _lenient(operation: Obj, target: Any) -> Obj:
    """The operation with Go's semantics: absent values are null, and `replace` creates them."""
    how, path = operation.get("op"), str(operation.get("path", ""))
    last = path.rpartition("/")[2]
    if how == "test" and _is_absent(target, path) and operation.get("value") is None:
        return {"op": "test", "path": "", "value": target}
    if how == "copy" and _is_absent(target, str(operation.get("from", ""))):
        return {"op": "add", "path": path, "value": None}
    if how == "replace" and not last.isdigit() and last != "-":
        how = "add"
    if how == "add":
        return {"value": None, **operation, "op": how}
    return operation


def _is_absent(target: Any, path: str) -> bool:
    """Whether a pointer names an absent field of an existing object."""
    outer, _, name = path.rpartition("/")
    parent = JsonPointer(outer).resolve(target, None) if path else None
    return isinstance(parent, dict) and name.replace("~1", "/").replace("~0", "~") not in parent


def _type_problem(operations: Any) -> str:
    """The error for a value that is not a list of operations."""
    if not isinstance(operations, list):
        return f"{json_type(operations)} into Go value of type []handlers.jsonPatchOp"
    for each in operations:
        if not isinstance(each, dict):
            return f"{json_type(each)} into Go value of type handlers.jsonPatchOp"
        for key in ("op", "path", "from"):
            if not isinstance(each.get(key, ""), str):
                shown = json_type(each[key])
                return f"{shown} into Go struct field jsonPatchOp.{key} of type string"
    return ""


def patched(
    target: Obj, body: Any, type_: PatchType, node: SchemaNode, *, checked: bool = True
) -> Any:
    """The patched object; the target is not changed.

    Args:
        target: the present object.
        body: the patch.
        type_: any type except apply.
        node: how lists of the kind merge, for strategic merge patches.
        checked: whether its fields are validated, for the message about a malformed one.

    Raises:
        BadRequest: the patch is malformed.
        Invalid: it cannot be applied.
    """
    if type_ is PatchType.JSON:
        return json_patch(target, [] if body is None else body, checked=checked)
    if type_ is PatchType.MERGE:
        if body is None or not (checked or isinstance(body, dict)):
            raise BadRequest("Invalid JSON Patch")
        if not isinstance(body, dict):
            text = f"json: cannot unmarshal {json_type(body)} into Go value of type"
            raise BadRequest(f"error decoding patch: {text} map[string]interface {{}}")
        return merge_patch(target, _tidied(copy_json(body)))
    assert type_ is PatchType.STRATEGIC, "apply patches have a path of their own"
    return strategic_merge(node, target, {} if body is None else body)


def _tidied(value: Any, *, listed: bool = False) -> Any:
    """A merge patch without nulls in the objects of its lists."""
    if isinstance(value, dict):
        pairs = ((name, _tidied(each, listed=listed)) for name, each in value.items())
        return {name: each for name, each in pairs if not (listed and each is None)}
    return [_tidied(each, listed=True) for each in value] if isinstance(value, list) else value


def restored_head(old: Obj, patch: Obj) -> Obj:
    """The version and kind of an object, which a strategic merge patch does not change.

    Raises:
        BadRequest: it would write a value that is not a text.
    """
    for key in ("apiVersion", "kind"):
        if not isinstance(patch.get(key), str | None):
            raise mismatch.Mismatch("", key, "string", patch[key])
    return {key: old[key] for key in ("apiVersion", "kind")}


def undeclared(obj: Obj) -> BadRequest:
    """The error for an object without a version, whose fields are unknown."""
    names = sorted(obj.keys() - {"apiVersion", "kind"})
    unknown = ", ".join(f'unknown field "{name}"' for name in names)
    return BadRequest(f"strict decoding error: {unknown}")


def bad_patch(error: BadRequest, given: Any, *, as_text: bool) -> Invalid:
    """The error for a patched object that does not match its kind.

    Args:
        error: why.
        given: the patched object or the strategic merge patch, for the message.
        as_text: whether it is shown as JSON; otherwise in Go's notation.
    """
    why = error.message.partition(" cannot be handled as a ")[2].partition(": ")[2]
    why = why or error.message
    if as_text:
        value = json.dumps(orjson.dumps(given).decode(), ensure_ascii=False)
    else:
        value = json.dumps(mismatch.shown(given), ensure_ascii=False)
        why = error.restored if isinstance(error, mismatch.Mismatch) else why
        why = f"error decoding from json: {why}" if why.startswith("illegal base64") else why
    text = f"Invalid value: {value}: {why}"
    cause = {"reason": "FieldValueInvalid", "message": text, "field": "patch"}
    return Invalid(f' "" is invalid: patch: {text}', details={"causes": [cause]})
