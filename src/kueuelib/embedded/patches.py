"""Applies patches to objects; apply patches have their own module."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonpatch
import orjson
from jsonpointer import JsonPointer, JsonPointerException

from kueuelib.api.meta import Obj
from kueuelib.api.patch import merge_patch
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.patching.strategic import strategic_merge
from kueuelib.embedded.schema import mismatch
from kueuelib.embedded.schema.node import SchemaNode
from kueuelib.embedded.verbs import PatchType
from kueuelib.errors import BadRequest, Invalid, TooLarge

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
        raise BadRequest(f"json: cannot unmarshal {_named(operations)} into {_GO_PATCH}")
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
        return f"{_named(operations)} into Go value of type []handlers.jsonPatchOp"
    for each in operations:
        if not isinstance(each, dict):
            return f"{_named(each)} into Go value of type handlers.jsonPatchOp"
        for key in ("op", "path", "from"):
            if not isinstance(each.get(key, ""), str):
                shown = _named(each[key])
                return f"{shown} into Go struct field jsonPatchOp.{key} of type string"
    return ""


def _named(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool", type(None): "null"}
    return names.get(type(value), "number")


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
            text = f"json: cannot unmarshal {_named(body)} into Go value of type"
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
    told = ", ".join(f'unknown field "{name}"' for name in names)
    return BadRequest(f"strict decoding error: {told}")


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
