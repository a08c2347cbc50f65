"""The rules for names, labels and the rest of `metadata`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.api.patterns import LABEL_LIMIT, SUBDOMAIN_LIMIT
from kueuelib.api.validation.fields import (
    LABEL_1035_RULE,
    LABEL_RULE,
    LABEL_VALUE_RULE,
    QUALIFIED_RULE,
    SUBDOMAIN_RULE,
)
from kueuelib.embedded.builtins.fields import (
    forbidden,
    immutable,
    invalid,
    listed,
    required,
    section,
    too_long,
)
from kueuelib.errors import FieldError

# ---- the rules for names, label keys and label values: each returns its objections ---------------

NameRule = Callable[[str], Sequence[str]]

NO_DOTS = "must not contain dots"
NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_IS_LABEL = re.compile(_LABEL).fullmatch
_IS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*").fullmatch
_IS_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_IS_QUALIFIED = re.compile(_QUALIFIED).fullmatch
_IS_VALUE = re.compile(rf"({_QUALIFIED})?").fullmatch

_QUALIFIED_TEXT = (
    f"a qualified name {QUALIFIED_RULE.removeprefix('name part ')} with an optional DNS subdomain "
    "prefix and '/' (e.g. 'example.com/MyName')"
)


def _longer(text: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text) > limit else []


def subdomain(name: str, unit: str = "characters") -> list[str]:
    """The rule of most names: RFC 1123 subdomain."""
    bad = [] if _IS_SUBDOMAIN(name) else [SUBDOMAIN_RULE]
    return _longer(name, SUBDOMAIN_LIMIT, unit) + bad


def label(name: str) -> list[str]:
    """The rule of namespaces and containers: RFC 1123 label."""
    bad = [] if _IS_LABEL(name) else [NO_DOTS if _IS_SUBDOMAIN(name) else LABEL_RULE]
    return _longer(name, LABEL_LIMIT) + bad


def label_1035(name: str) -> list[str]:
    """The rule of services: RFC 1035 label."""
    bad = [] if _IS_LABEL_1035(name) else [LABEL_1035_RULE]
    return _longer(name, LABEL_LIMIT) + bad


def path_segment(name: str) -> list[str]:
    """The rule of roles: any text that is valid in a URL path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]


def qualified_name(key: str) -> list[str]:
    """The rule of label keys, resource names and conditions: an optional prefix, `/`, a name."""
    problems: list[str] = []
    parts = key.split("/")
    if len(parts) > 2:
        return [_QUALIFIED_TEXT]
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {text}" for text in subdomain(parts[0], "bytes")]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > LABEL_LIMIT:
        problems.append(f"name part must be no more than {LABEL_LIMIT} bytes")
    if not _IS_QUALIFIED(name):
        problems.append(QUALIFIED_RULE)
    return problems


def port_name(name: str) -> list[str]:
    """The rule of the names of ports."""
    odd, letters = re.search("[^-a-z0-9]", name) or not name, re.search("[a-z]", name)
    broken = {
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": odd,
        "must contain at least one letter (a-z)": not letters,
        "must not contain consecutive hyphens": "--" in name,
        "must not begin or end with a hyphen": name.strip("-") != name,
    }
    return _longer(name, 15) + [text for text, holds in broken.items() if holds]


def label_value(value: str) -> list[str]:
    """The rule of label values."""
    bad = [] if _IS_VALUE(value) else [LABEL_VALUE_RULE]
    return _longer(value, LABEL_LIMIT, "bytes") + bad


_RULES: dict[tuple[str, str], NameRule] = {
    ("", "Namespace"): label,
    ("", "Service"): label_1035,
    ("rbac.authorization.k8s.io", "Role"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRole"): path_segment,
    ("rbac.authorization.k8s.io", "RoleBinding"): path_segment,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): path_segment,
}


def name_rule(group: str, kind: str) -> NameRule:
    """The rule of the names of a kind."""
    return _RULES.get((group, kind), subdomain)


# --------------------------------------------------------------------------------------------------

ANNOTATIONS_LIMIT = 256 * 1024
MANAGER_LIMIT = 128
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

_qualified_name = lru_cache(4096)(qualified_name)
_label_value = lru_cache(4096)(label_value)


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


def _owner_references(meta: Mapping[str, Any]) -> list[FieldError]:
    errors, where = [], "metadata.ownerReferences"
    controller = None
    for ref in listed(meta, "ownerReferences"):
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
                errors.append(invalid(where, meta.get("ownerReferences"), text))
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


def _finalizers(meta: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    finalizers = listed(meta, "finalizers")
    where = "metadata.finalizers"
    for name in finalizers:
        errors += [invalid(where, name, text) for text in _qualified_name(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid(where, list(finalizers), text))
    return errors


def validate_metadata(obj: Obj, rule: NameRule, *, namespaced: bool) -> list[FieldError]:
    """The broken rules of the metadata of an object whose name has been generated.

    Args:
        obj: the object.
        rule: for its name.
        namespaced: whether the kind lives in namespaces.
    """
    meta = section(obj, "metadata")
    errors = []
    prefix = meta.get("generateName")
    if prefix:
        sample = prefix[:-1] + "a" if prefix.endswith("-") else prefix
        errors += [invalid("metadata.generateName", prefix, text) for text in rule(sample)]
    name = meta.get("name")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors += [invalid("metadata.name", name, text) for text in rule(name)]
    namespace = meta.get("namespace")
    if namespaced and not namespace:
        errors.append(required("metadata.namespace"))
    elif namespaced:
        texts = label(namespace or "")
        errors += [invalid("metadata.namespace", namespace, text) for text in texts]
    elif namespace:
        errors.append(forbidden("metadata.namespace", "not allowed on this type"))
    return [*errors, *_texts(meta), *_finalizers(meta)]


def _texts(meta: Mapping[str, Any]) -> list[FieldError]:
    """The rules that every layer checks, for new and changed objects."""
    return [
        *validate_labels(meta.get("labels"), "metadata.labels"),
        *validate_annotations(meta.get("annotations"), "metadata.annotations"),
        *(
            too_long(f"metadata.managedFields[{i}].manager", MANAGER_LIMIT)
            for i, entry in enumerate(meta.get("managedFields") or ())
            if len(entry.get("manager", "")) > MANAGER_LIMIT
        ),
        *_owner_references(meta),
    ]


def validate_metadata_update(new: Obj, old: Obj) -> list[FieldError]:
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
            errors.append(forbidden("metadata.finalizers", text))
    for key in ("name", "namespace", "uid", "creationTimestamp"):
        errors += immutable(f"metadata.{key}", now.get(key), before.get(key))
    return [*errors, *_texts(now)]
