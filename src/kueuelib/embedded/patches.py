"""What a patch makes of an object; apply patches have a module of their own."""

from __future__ import annotations

from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException

from kueuelib.api.meta import Obj
from kueuelib.api.patch import merge_patch
from kueuelib.embedded import failures
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.patching.strategic import strategic_merge
from kueuelib.embedded.schema.node import SchemaNode
from kueuelib.embedded.verbs import PatchType
from kueuelib.errors import Invalid, TooLarge

OPERATIONS_LIMIT = 10_000
_NOT_APPLICABLE: Final = (
    jsonpatch.JsonPatchException,
    JsonPointerException,
    TypeError,
    KeyError,
    AttributeError,
)
REJECTED = "the server rejected our request due to an error in our request"


def json_patch(target: Obj, operations: Any) -> Any:
    """RFC 6902.

    Raises:
        BadRequest: the patch is none.
        TooLarge: it has too many operations.
        Invalid: an operation cannot be done, or its test failed.
    """
    problem = _type_problem(operations)
    if problem:
        raise failures.bad_request(f"error decoding patch: json: cannot unmarshal {problem}")
    if len(operations) > OPERATIONS_LIMIT:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, "
            f"got {len(operations)}"
        )
    found: Any = copy_json(target)
    for operation in operations:
        try:
            found = jsonpatch.JsonPatch([operation]).apply(found, in_place=True)
        except _NOT_APPLICABLE as error:
            raise Invalid(REJECTED, details={}) from error
    if not isinstance(found, dict):
        raise Invalid(REJECTED, details={})
    return copy_json(found)


def _type_problem(operations: Any) -> str:
    """What is not a list of operations."""
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


def patched(target: Obj, body: Any, type_: PatchType, node: SchemaNode) -> Any:
    """The object that a patch asks for; the target is not changed.

    Args:
        target: the present object.
        body: the patch.
        type_: any but an apply patch.
        node: how lists of the kind merge, for strategic merge patches.

    Raises:
        BadRequest: the patch is malformed.
        Invalid: it cannot be done.
    """
    if type_ is PatchType.JSON:
        return json_patch(target, body)
    if type_ is PatchType.MERGE:
        if not isinstance(body, dict):
            raise failures.bad_request("error decoding patch: a merge patch is an object")
        return merge_patch(target, copy_json(body))
    assert type_ is PatchType.STRATEGIC, "apply patches have a path of their own"
    return strategic_merge(node, target, body)
