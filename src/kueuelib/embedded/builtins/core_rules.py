"""The server's strategies for namespaces, nodes, events, ConfigMaps and Secrets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import NAMESPACES
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import (
    SYSTEM,
    AdmissionAttributes,
    AdmissionPlugin,
    KindRules,
    Operation,
    StoreReader,
)
from kueuelib.embedded.builtins.defaults import NAMESPACE_NAME
from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    immutable,
    invalid,
    keep,
    listed,
    required,
    section,
    subobject,
    too_long,
)
from kueuelib.embedded.builtins.metadata import NO_NETWORK, label_value, qualified_name
from kueuelib.embedded.builtins.pod_spec import NOT_READY
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.schema.written import internal
from kueuelib.errors import FieldError

# ---- the server's strategies for ConfigMaps and Secrets ------------------------------------------

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


# ---- objects are only created in existing namespaces that are not being deleted ------------------

IMMORTAL = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle(AdmissionPlugin):
    """Refuses creations in absent or terminating namespaces, and the deletion of system
    namespaces.
    """

    name = "NamespaceLifecycle"

    def handles(self, request: AdmissionAttributes) -> bool:
        """Creations in namespaces and deletions of namespaces."""
        if request.operation is Operation.CREATE:
            return bool(request.key.namespace)
        return (
            request.operation is Operation.DELETE
            and request.resource.plural == NAMESPACES.plural
            and not request.resource.group
        )

    def admit(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """Checks the namespace before any other plug-in."""
        if request.operation is Operation.DELETE:
            name = request.key.name
            if name in IMMORTAL:
                raise request.refuse("this namespace may not be deleted")
            return
        name = request.key.namespace
        namespace = reader.get(NAMESPACES, ObjectKey("", name))
        if namespace is None:
            raise failures.absent("namespaces", name)
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            error = request.refuse(why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
            error.details = {**(error.details or {}), "causes": [cause]}
            raise error


# --------------------------------------------------------------------------------------------------

NAMESPACE_FINALIZER = "kubernetes"


class NamespaceRules(KindRules):
    """The strategy of namespaces."""

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Make a new namespace active, with a finalizer until its content is deleted."""
        del request
        obj["status"] = {"phase": "Active"}
        meta = obj["metadata"]
        if meta.get("name"):
            subobject(meta, "labels")[NAMESPACE_NAME] = meta["name"]
        spec = subobject(obj, "spec")
        if NAMESPACE_FINALIZER not in listed(spec, "finalizers"):
            spec["finalizers"] = [*listed(spec, "finalizers"), NAMESPACE_FINALIZER]

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionAttributes) -> None:
        """Keep the finalizers of the spec, which only `finalize` changes."""
        if request.subresource != "finalize":
            keep(obj, old, "spec")

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Check that the phase follows the deletion."""
        if subresource == "finalize":
            return [
                invalid(f"spec.finalizers[{i}]", name, text)
                for i, name in enumerate(listed(section(obj, "spec"), "finalizers"))
                for text in qualified_name(name)
            ]
        phase = section(obj, "status").get("phase")
        doomed = section(old, "metadata").get("deletionTimestamp")
        wanted, what = ("Terminating", "not empty") if doomed else ("Active", "empty")
        if subresource == "status" and phase != wanted:
            text = f"may only be '{wanted}' if `deletionTimestamp` is {what}"
            return [invalid("status.phase", phase, text)]
        return ()

    def prepare_delete(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Make a namespace Terminating while it waits for its content."""
        del request
        obj["status"] = {**section(obj, "status"), "phase": "Terminating"}
        obj["metadata"].pop("deletionGracePeriodSeconds", None)


class NodeRules(KindRules):
    """The strategy of nodes."""

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Taint a new node of a user until it is ready."""
        if request.caller is SYSTEM:
            return
        taints = subobject(obj, "spec").get("taints") or []
        if not any(each.get("key") == NOT_READY for each in taints):
            obj["spec"]["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Check taints and networks."""
        spec = section(obj, "spec")
        errors = _validate_taints(listed(spec, "taints"))
        networks, versions = listed(spec, "podCIDRs"), list[int]()
        for i, text in enumerate(networks):
            try:
                versions.append(ipaddress.ip_network(text).version)
            except ValueError:
                errors.append(invalid(f"spec.podCIDRs[{i}]", text, NO_NETWORK))
        if len(networks) > 1 and sorted(versions) != [4, 6]:
            text = "may specify no more than one CIDR for each IP family"
            errors.append(invalid("spec.podCIDRs", networks, text))
        return errors

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Check the same rules twice, and fields that a node cannot change once they are set."""
        if subresource == "status":
            return ()
        now, before = section(obj, "spec"), section(old, "spec")
        text = 'node updates may not change {} except from "" to valid'
        errors = list(self.validate_create(obj))
        had, has = listed(before, "podCIDRs"), listed(now, "podCIDRs")
        if had and len(had) != len(has):
            errors.append(forbidden("spec.podCIDRs", text.format("podCIDR")))
        elif had:
            for one, other in zip(had, has, strict=True):
                if one != other:
                    errors.append(forbidden("spec.podCIDRs", text.format("podCIDR")))
        if before.get("providerID") and now.get("providerID") != before["providerID"]:
            errors.append(forbidden("spec.providerID", text.format("providerID")))
        return errors + _validate_taints(listed(now, "taints"))


_UNIQUE = "taints must be unique by key and effect pair"


def _validate_taints(taints: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    errors = []
    for i, taint in enumerate(taints):
        path = f"metadata.taints[{i}]"
        errors += check("Taint", taint, path, joined=_value)
        pairs = [(each.get("key"), each.get("effect")) for each in taints[: i + 1]]
        if pairs[-1] in pairs[:-1]:
            errors.append(duplicate(path, internal("Taint", taint), _UNIQUE))
    return errors


def _value(at: ValuePlace, _: str) -> BrokenRules:
    texts = label_value(at.value)
    return [invalid(at.path, at.value, ";".join(texts))] if texts else []


def check_event(obj: Obj) -> list[FieldError]:
    """Check an event of `v1`, which lives in the namespace of its object."""
    namespace = section(obj, "metadata").get("namespace") or ""
    about = section(obj, "involvedObject").get("namespace") or ""
    if namespace == (about or "default"):
        return []
    return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
