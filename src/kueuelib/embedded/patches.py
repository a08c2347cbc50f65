"""What a patch makes of an object; apply patches have a module of their own."""

from __future__ import annotations

from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException

from kueuelib.api.meta import Obj
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


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386; neither argument is changed."""
    if not isinstance(patch, dict):
        return copy_json(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Obj, operations: Any) -> Any:
    """RFC 6902.

    Raises:
        BadRequest: the patch is none.
        TooLarge: it has too many operations.
        Invalid: an operation cannot be done, or its test failed.
    """
    if not isinstance(operations, list) or not all(isinstance(op, dict) for op in operations):
        raise failures.bad_request(
            "error decoding patch: json: a JSON patch is an array of operations"
        )
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
        return merge_patch(target, body)
    assert type_ is PatchType.STRATEGIC, "apply patches have a path of their own"
    return strategic_merge(node, target, body)
