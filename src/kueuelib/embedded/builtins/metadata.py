"""The rules for `metadata`, which are the same for all kinds except for names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import forbidden, immutable, invalid, required, too_long
from kueuelib.embedded.builtins.raw import listed, section
from kueuelib.errors import FieldError

ANNOTATIONS_LIMIT = 256 * 1024
MANAGER_LIMIT = 128
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

_qualified_name = lru_cache(4096)(naming.qualified_name)
_label_value = lru_cache(4096)(naming.label_value)


def validate_labels(labels: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """Check label keys and values."""
    errors = []
    for key, value in (labels or {}).items():
        errors += [invalid(path, key, text) for text in _qualified_name(key)]
        errors += [invalid(path, value, text) for text in _label_value(value)]
    return errors


def validate_annotations(annotations: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """Check annotation keys, and the total size."""
    errors = []
    size = 0
    for key, value in (annotations or {}).items():
        errors += [invalid(path, key, text) for text in _qualified_name(key.lower())]
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT:
        errors.append(too_long(path, ANNOTATIONS_LIMIT))
    return errors


def _owner_references(meta: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    controller = None
    for ref in listed(meta, "ownerReferences"):
        where = f"{path}.ownerReferences"
        version = ref.get("apiVersion") or ""
        if not version.rpartition("/")[2]:
            errors.append(invalid(f"{where}.apiVersion", version, "version must not be empty"))
        errors += [
            invalid(f"{where}.{key}", ref.get(key) or "", "must not be empty")
            for key in ("kind", "name", "uid")
            if not ref.get(key)
        ]
        if (version, ref.get("kind")) == ("v1", "Event"):
            errors.append(invalid(where, ref, "/v1, Kind=Event is disallowed from being an owner"))
        if ref.get("controller"):
            if controller is not None:
                names = [f"{owner.get('kind')}/{owner.get('name')}" for owner in (controller, ref)]
                text = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {names[0]} and {names[1]}'
                )
                errors.append(invalid(f"{path}.ownerReferences", meta.get("ownerReferences"), text))
            controller = ref
    return errors


def validate_finalizers(meta: Mapping[str, Any]) -> list[FieldError]:
    """Check finalizers, as most built-in kinds do after all other metadata."""
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"metadata.finalizers[{i}]", name, text)
        for i, name in enumerate(listed(meta, "finalizers"))
        if "/" not in name and name not in STANDARD_FINALIZERS
    ]


def _finalizers(meta: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    finalizers = listed(meta, "finalizers")
    where = f"{path}.finalizers"
    for name in finalizers:
        errors += [invalid(where, name, text) for text in _qualified_name(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid(where, list(finalizers), text))
    return errors


def validate_metadata(
    obj: Obj, rule: naming.NameRule, *, namespaced: bool, path: str = "metadata"
) -> list[FieldError]:
    """The broken rules of the metadata of an object whose name has been generated.

    Args:
        obj: the object.
        rule: for its name.
        namespaced: whether the kind lives in namespaces.
        path: of the metadata.
    """
    meta = section(obj, "metadata")
    errors = []
    prefix = meta.get("generateName")
    if prefix:
        sample = prefix[:-1] + "a" if prefix.endswith("-") else prefix
        errors += [invalid(f"{path}.generateName", prefix, text) for text in rule(sample)]
    name = meta.get("name")
    if not name:
        errors.append(required(f"{path}.name", "name or generateName is required"))
    else:
        errors += [invalid(f"{path}.name", name, text) for text in rule(name)]
    namespace = meta.get("namespace")
    if namespaced and not namespace:
        errors.append(required(f"{path}.namespace"))
    elif namespaced:
        texts = naming.label(namespace or "")
        errors += [invalid(f"{path}.namespace", namespace, text) for text in texts]
    elif namespace:
        errors.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    return [*errors, *_texts(meta, path), *_finalizers(meta, path)]


def _texts(meta: Mapping[str, Any], path: str) -> list[FieldError]:
    """The rules that every layer checks, for new and changed objects."""
    return [
        *validate_labels(meta.get("labels"), f"{path}.labels"),
        *validate_annotations(meta.get("annotations"), f"{path}.annotations"),
        *(
            too_long(f"{path}.managedFields[{i}].manager", MANAGER_LIMIT)
            for i, entry in enumerate(meta.get("managedFields") or ())
            if len(entry.get("manager", "")) > MANAGER_LIMIT
        ),
        *_owner_references(meta, path),
    ]


def validate_metadata_update(new: Obj, old: Obj, path: str = "metadata") -> list[FieldError]:
    """The broken rules of a change of metadata."""
    now, before = section(new, "metadata"), section(old, "metadata")
    errors = []
    if before.get("deletionTimestamp"):
        added = [
            name for name in listed(now, "finalizers") if name not in listed(before, "finalizers")
        ]
        if added:
            names = ", ".join(f'"{name}"' for name in added)
            text = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{names}}}"
            )
            errors.append(forbidden(f"{path}.finalizers", text))
    for key in ("name", "namespace", "uid", "creationTimestamp"):
        errors += immutable(f"{path}.{key}", now.get(key), before.get(key))
    return [*errors, *_texts(now, path)]
