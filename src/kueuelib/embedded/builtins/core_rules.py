"""The server's strategies for namespaces, nodes and events."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import SYSTEM, AdmissionRequest, KindRules
from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.defaults import NAMESPACE_NAME
from kueuelib.embedded.builtins.fields import duplicate, forbidden, invalid
from kueuelib.embedded.builtins.pod_placement import NOT_READY
from kueuelib.embedded.builtins.raw import keep, listed, section, subobject
from kueuelib.embedded.builtins.rule_table import BrokenRules, ValuePlace, check
from kueuelib.embedded.schema.internal import internal
from kueuelib.errors import FieldError

NAMESPACE_FINALIZER = "kubernetes"


class NamespaceRules(KindRules):
    """The strategy of namespaces."""

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
        """Make a new namespace active, with a finalizer until its content is deleted."""
        del request
        obj["status"] = {"phase": "Active"}
        meta = obj["metadata"]
        if meta.get("name"):
            subobject(meta, "labels")[NAMESPACE_NAME] = meta["name"]
        spec = subobject(obj, "spec")
        if NAMESPACE_FINALIZER not in listed(spec, "finalizers"):
            spec["finalizers"] = [*listed(spec, "finalizers"), NAMESPACE_FINALIZER]

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionRequest) -> None:
        """Keep the finalizers of the spec, which only `finalize` changes."""
        if request.subresource != "finalize":
            keep(obj, old, "spec")

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Check that the phase follows the deletion."""
        if subresource == "finalize":
            return [
                invalid(f"spec.finalizers[{i}]", name, text)
                for i, name in enumerate(listed(section(obj, "spec"), "finalizers"))
                for text in naming.qualified_name(name)
            ]
        phase = section(obj, "status").get("phase")
        doomed = section(old, "metadata").get("deletionTimestamp")
        wanted, what = ("Terminating", "not empty") if doomed else ("Active", "empty")
        if subresource == "status" and phase != wanted:
            text = f"may only be '{wanted}' if `deletionTimestamp` is {what}"
            return [invalid("status.phase", phase, text)]
        return ()

    def prepare_delete(self, obj: Obj, request: AdmissionRequest) -> None:
        """Make a namespace Terminating while it waits for its content."""
        del request
        obj["status"] = {**section(obj, "status"), "phase": "Terminating"}
        obj["metadata"].pop("deletionGracePeriodSeconds", None)


class NodeRules(KindRules):
    """The strategy of nodes."""

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
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
                errors.append(invalid(f"spec.podCIDRs[{i}]", text, naming.NO_NETWORK))
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
    texts = naming.label_value(at.value)
    return [invalid(at.path, at.value, ";".join(texts))] if texts else []


def check_event(obj: Obj) -> list[FieldError]:
    """Check an event of `v1`, which lives in the namespace of its object."""
    namespace = section(obj, "metadata").get("namespace") or ""
    about = section(obj, "involvedObject").get("namespace") or ""
    if namespace == (about or "default"):
        return []
    return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
