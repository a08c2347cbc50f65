"""The target of a write, and the checks of a write."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures
from kueuelib.embedded.builtins import metadata
from kueuelib.embedded.builtins.fields import IMMUTABLE, invalid
from kueuelib.embedded.builtins.metadata import (
    validate_finalizers,
    validate_metadata,
    validate_metadata_update,
)
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.errors import BadRequest, FieldError

STATUS = "status"
LAST_REVISION = 2**64 - 1
_WITH_STATUS = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")
"""Metadata that a write of the status of a built-in kind may change."""


@attrs.frozen
class Target:
    """The target of a write.

    Attributes:
        kind: the kind.
        version: the version of the request.
        key: namespace and name.
        subresource: empty for the object itself.
        verb: `Update` or `Patch`.
        applied: whether the owners of fields are known already, from an apply.
        admitted: whether plug-ins and webhooks have seen the action that changes the object.
    """

    kind: Kind
    version: KindVersion
    key: ObjectKey
    subresource: str = ""
    verb: str = "Update"
    applied: bool = False
    admitted: bool = False


def keep_other_half(target: Target, new: Obj, old: Obj) -> None:
    """Keep the status in a write of the object, and vice versa."""
    if not target.version.status:
        return
    if not target.subresource:
        if "status" in old:
            new["status"] = copy_json(old["status"])
        else:
            new.pop("status", None)
    elif target.subresource == STATUS:
        for key in new.keys() - old.keys() - {"status", "metadata"}:
            del new[key]
        for key, value in old.items():
            if key not in ("status", "metadata") and new.get(key) is not value:
                new[key] = copy_json(value)
        meta = new["metadata"]
        given = ["managedFields"]
        if target.kind.builtin:
            given += [each for each in _WITH_STATUS if ("metadata", each) not in target.kind.kept]
        kept = {key: value for key, value in old["metadata"].items() if key not in given}
        kept = copy_json(kept)
        for key in given:
            if key in meta:
                kept[key] = meta[key]
        new["metadata"] = kept


def check_preconditions(
    target: Target, wanted: Obj, old: Obj, insisted: str
) -> Sequence[FieldError]:
    """Checks preconditions; returns further metadata that must not change."""
    kind, name = target.kind, target.key.name
    meta = wanted.get("metadata")
    if not isinstance(meta, dict):
        raise BadRequest("metadata must be an object")
    if not meta.get("name"):
        raise failures.unnamed(target.key)
    if meta["name"] != name:
        raise failures.mismatch(target.key, str(meta["name"]))
    if kind.namespaced and (meta.get("namespace") or target.key.namespace) != (
        target.key.namespace
    ):
        raise BadRequest(
            f"the namespace of the object ({meta['namespace']}) does not match the "
            f"namespace on the request ({target.key.namespace})"
        )
    uid = meta.get("uid")
    fixed = ["deletionTimestamp", "deletionGracePeriodSeconds"]
    if target.verb == "Patch":
        fixed.insert(0, "uid")
    elif uid and uid != old["metadata"]["uid"]:
        raise failures.other_uid(kind, name, uid, old["metadata"]["uid"])
    check_revision(insisted)
    if insisted and insisted != old["metadata"]["resourceVersion"]:
        raise failures.conflict(kind, name)
    return [
        invalid(f"metadata.{key}", meta[key], IMMUTABLE)
        for key in fixed
        if meta.get(key) not in (None, "", old["metadata"].get(key))
    ]


def broken_rules(
    kind: Kind,
    version: KindVersion,
    new: Obj,
    old: Obj | None,
    subresource: str,
    fixed: Sequence[FieldError] = (),
) -> list[FieldError]:
    """The broken rules of a new state: those of its kind, its schema and its metadata."""
    errors = _metadata_errors(kind, new, old, subresource, fixed)
    if version.schema is not None:
        errors += version.schema.validate(new, old, errors)
    if old is None:
        errors += kind.rules.validate_create(new)
    else:
        errors += kind.rules.validate_update(new, old, subresource)
    return errors


def _metadata_errors(
    kind: Kind, new: Obj, old: Obj | None, subresource: str, fixed: Sequence[FieldError]
) -> list[FieldError]:
    """The errors that each layer of kube-apiserver finds in the metadata, with repetitions.

    First come the rules for all kinds, then those of the kind, most of which check the metadata
    again.
    """
    own = kind.builtin and not kind.loose
    finalizers = validate_finalizers(new["metadata"]) if own else []
    name_rule = metadata.name_rule(kind.group, kind.kind)
    if old is None:
        return [*validate_metadata(new, name_rule, namespaced=kind.namespaced), *finalizers]
    changed = [*fixed, *validate_metadata_update(new, old)]
    errors = validate_metadata(new, metadata.path_segment, namespaced=kind.namespaced) + changed
    silent = kind.uncompared or (kind.kind == "CronJob" and subresource == STATUS)
    if not silent or not kind.builtin:
        errors += changed + finalizers
    if subresource != STATUS and kind.whole:
        errors += validate_metadata(new, name_rule, namespaced=kind.namespaced) + finalizers
    return errors


def insisted_on(wanted: Obj, old: Obj) -> str:
    """The resource version in a patched object, if the patch has set one."""
    meta = wanted.get("metadata")
    version = meta.get("resourceVersion") if isinstance(meta, dict) else None
    if not isinstance(version, str) or version in ("0", old["metadata"]["resourceVersion"]):
        return ""
    return version


def check_revision(text: str) -> None:
    """Check that the required resource version is a number.

    Raises:
        ApiError: it is not; an empty one is allowed.
    """
    if text and not (text.isascii() and text.isdigit()):
        raise failures.unexplained(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if text and int(text) > LAST_REVISION:
        raise failures.unexplained(f'strconv.ParseUint: parsing "{text}": value out of range')


def place(kind: Kind, obj: Obj, namespace: str) -> None:
    """Puts an object into the namespace of the request.

    Raises:
        BadRequest: it names another one, or there is none.
    """
    meta = obj["metadata"]
    own_namespace = meta.get("namespace", "")
    if not kind.namespaced:
        if namespace:
            raise failures.unknown_resource()
        return
    if not namespace:
        if not own_namespace:
            raise BadRequest("an empty namespace may not be set during creation")
        return
    if own_namespace and own_namespace != namespace:
        raise BadRequest(
            f"the namespace of the provided object does not match the namespace sent on the "
            f"request (provided: {own_namespace}, request: {namespace})"
        )
    meta["namespace"] = namespace
