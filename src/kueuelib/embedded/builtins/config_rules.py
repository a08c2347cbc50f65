"""The server's strategies for ConfigMaps and Secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.builtins.fields import forbidden, immutable, invalid, required, too_long
from kueuelib.embedded.builtins.raw import section
from kueuelib.errors import FieldError

SIZE_LIMIT = 2**20
KEY_LIMIT = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+\Z")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
}
_BASIC = ("username", "password")
_ACCOUNT = "kubernetes.io/service-account.name"


def _keys(data: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    for key in sorted(data):
        where = f"{path}[{key}]"
        if len(key) > KEY_LIMIT:
            errors.append(invalid(where, key, f"must be no more than {KEY_LIMIT} characters"))
        if not _KEY.match(key):
            errors.append(invalid(where, key, _KEY_TEXT))
        elif key == ".":
            errors.append(invalid(where, key, "must not be '.'"))
        elif key.startswith(".."):
            errors.append(invalid(where, key, "must not start with '..'"))
    return errors


def check_frozen(new: Obj, old: Obj) -> list[FieldError]:
    """Check that an immutable ConfigMap or Secret does not change."""
    if not old.get("immutable"):
        return []
    changed = [] if new.get("immutable") else ["immutable"]
    parts = ("data", "binaryData")
    changed += [part for part in parts if (new.get(part) or {}) != (old.get(part) or {})]
    text = "field is immutable when `immutable` is set"
    return [forbidden(part, text) for part in changed]


def check_config_map(obj: Obj) -> list[FieldError]:
    """Check keys and size."""
    data, binary = section(obj, "data"), section(obj, "binaryData")
    errors = _keys(data, "data") + _keys(binary, "binaryData")
    errors += [
        invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        for key in sorted(data.keys() & binary.keys())
    ]
    size = sum(len(value.encode()) for value in data.values())
    size += sum(len(value) * 3 // 4 for value in binary.values())
    if size > SIZE_LIMIT:
        errors.append(too_long("[]", SIZE_LIMIT))
    return errors


def check_secret(obj: Obj) -> list[FieldError]:
    """Check keys, size, and the requirements of the type."""
    data = section(obj, "data")
    errors = _keys(data, "data")
    if sum(len(value) * 3 // 4 for value in data.values()) > SIZE_LIMIT:
        errors.append(too_long("data", SIZE_LIMIT))
    for key in _NEEDED.get(obj["type"], ()):
        if key not in data:
            errors.append(required(f"data[{key}]"))
        elif "docker" in key and not data[key]:
            text = "unexpected end of JSON input"
            errors.append(invalid(f"data[{key}]", "<secret contents redacted>", text))
    if obj["type"] == "kubernetes.io/basic-auth" and data.keys().isdisjoint(_BASIC):
        errors += [required(f"data[{key}]") for key in _BASIC]
    if obj["type"] == "kubernetes.io/service-account-token":
        annotations = section(obj, "metadata", "annotations")
        if not annotations.get(_ACCOUNT):
            errors.append(required(f"metadata.annotations[{_ACCOUNT}]"))
    return errors


def keep_type(obj: Obj, old: Obj) -> None:
    """Keep the old type in a replacement without a type."""
    if obj.get("type") == "Opaque" and not obj.get("data"):
        obj["type"] = old.get("type", "Opaque")


def check_changed_secret(obj: Obj, old: Obj) -> list[FieldError]:
    """Check that the type does not change, and an immutable Secret not at all."""
    errors = immutable("type", obj.get("type"), old.get("type"))
    return errors + check_frozen(obj, old)
