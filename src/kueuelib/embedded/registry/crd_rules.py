"""The server's strategy for CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, find_condition, with_raw_condition
from kueuelib.embedded.admission.plugin import AdmissionAttributes, KindRules
from kueuelib.embedded.builtins.fields import (
    invalid,
    listed,
    section,
    setdefault,
    subobject,
    unchanged,
)
from kueuelib.embedded.registry.crd_validation import unknown_formats, validate_definition
from kueuelib.embedded.registry.kinds import Kind, Registry
from kueuelib.errors import FieldError

# ---- the owners of names in a group: a definition is served if no other one has its names --------

_ORDER = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)


@attrs.frozen
class AcceptedNames:
    """The names that a definition gets.

    Attributes:
        names: its `acceptedNames`.
        reason: of the last conflict; empty if there is none.
        message: the same for people.
    """

    names: Obj
    reason: str = ""
    message: str = ""


def accepted(
    wanted: Mapping[str, Any], held: Mapping[str, Any], others: Iterable[Kind]
) -> AcceptedNames:
    """Decide which of its requested names a definition gets.

    Args:
        wanted: `spec.names`.
        held: the `acceptedNames` so far, which stay if a requested name is taken.
        others: the other kinds that are served in the group.
    """
    resources: set[str] = set()
    kinds: set[str] = set()
    for kind in others:
        resources |= {kind.plural, kind.singular, *kind.short_names}
        kinds |= {kind.kind, kind.list_kind}
    names = dict(held)
    reason = message = ""
    for key, conflict in _ORDER:
        used = kinds if key in ("kind", "listKind") else resources
        if key == "shortNames":
            own = set(listed(held, key))
            taken = [name for name in listed(wanted, key) if name in used and name not in own]
        else:
            taken = [wanted[key]] if wanted.get(key) in used - {held.get(key)} else []
        if taken:
            texts = [f'"{name}" is already in use' for name in taken]
            reason, message = conflict, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif wanted.get(key):
            names[key] = wanted[key]
        else:
            names.pop(key, None)
    if wanted.get("categories"):
        names["categories"] = wanted["categories"]
    else:
        names.pop("categories", None)
    return AcceptedNames(names, reason, message)


# --------------------------------------------------------------------------------------------------

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
ESTABLISHED = "Established"


class CrdRules(KindRules):
    """The strategy of definitions; a stored one is served at once."""

    def __init__(self) -> None:
        self.registry: Registry | None = None

    def default(self, obj: Obj) -> None:
        """Fill in names, conversion, and the port of its webhook."""
        spec = subobject(obj, "spec")
        names = subobject(spec, "names")
        if names.get("kind"):
            setdefault(names, "singular", names["kind"].lower())
            setdefault(names, "listKind", f"{names['kind']}List")
        conversion = subobject(spec, "conversion")
        setdefault(conversion, "strategy", "None")
        service = section(conversion, "webhook", "clientConfig", "service")
        if isinstance(service, dict) and service:
            setdefault(service, "port", 443)

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Reset the status, and add the finalizer that removes its objects first."""
        meta = obj["metadata"]
        meta["finalizers"] = list(dict.fromkeys([*listed(meta, "finalizers"), CLEANUP]))
        obj["status"] = {"conditions": [], "acceptedNames": {}, "storedVersions": []}
        self._settle(obj, None, request.now)

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionAttributes) -> None:
        """Update the status after a change of the spec."""
        if not request.subresource:
            self._settle(obj, old, request.now)

    def warnings(self, obj: Obj, old: Obj | None) -> Sequence[str]:
        """Warnings about new, unknown formats."""
        known = frozenset() if old is None else frozenset(unknown_formats(old["spec"]))
        formats = unknown_formats(obj["spec"])
        return [f'unrecognized format "{name}"' for name in formats if name not in known]

    def prepare_delete(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Show that its objects are being removed."""
        _set_condition(
            subobject(obj, "status"),
            "Terminating",
            True,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            request.now,
        )

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Check the whole definition."""
        return validate_definition(obj, None)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Check the whole definition, and immutable fields."""
        if subresource == "status":
            return ()
        spec = obj["spec"]
        errors = validate_definition(obj, old)
        fixed = ("spec.group", "spec.scope", "spec.names.kind", "spec.names.plural")
        errors += unchanged(obj, old, *fixed)
        known = {each.get("name") for each in listed(spec, "versions")}
        stored = listed(section(old, "status"), "storedVersions")
        errors += [
            invalid(
                f"status.storedVersions[{i}]",
                name,
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions",
            )
            for i, name in enumerate(stored)
            if name not in known
        ]
        return errors

    def _settle(self, obj: Obj, old: Obj | None, now: float) -> None:
        """Accepts the names if they are free, and establishes the definition."""
        self._name(obj, now)
        spec, status = obj["spec"], obj["status"]
        stored = [each.get("name") for each in listed(spec, "versions") if each.get("storage")]
        before = [] if old is None else listed(section(old, "status"), "storedVersions")
        status["storedVersions"] = list(dict.fromkeys([*before, *stored]))

    def reconsider(self, obj: Obj, now: float) -> bool:
        """Checks again whether the names of a stored definition are free; returns whether that
        changed it.

        Args:
            obj: a copy of the definition, changed in place.
            now: seconds since the epoch.
        """
        before = dict(section(obj, "status"))
        self._name(obj, now)
        return bool(obj["status"] != before)

    def _name(self, obj: Obj, now: float) -> None:
        assert self.registry is not None
        spec, status = obj["spec"], subobject(obj, "status")
        plural = section(spec, "names").get("plural")
        others = [
            kind
            for kind in self.registry
            if kind.group == spec.get("group") and kind.plural != plural
        ]
        verdict = accepted(section(spec, "names"), section(status, "acceptedNames"), others)
        status["acceptedNames"] = verdict.names
        if verdict.reason:
            _set_condition(status, "NamesAccepted", False, verdict.reason, verdict.message, now)
            if not find_condition(status.get("conditions"), ESTABLISHED):
                text = "not all names are accepted"
                _set_condition(status, ESTABLISHED, False, "NotAccepted", text, now)
            return
        text = "no conflicts found"
        _set_condition(status, "NamesAccepted", True, "NoConflicts", text, now)
        text = "the initial names have been accepted"
        _set_condition(status, ESTABLISHED, True, "InitialNamesAccepted", text, now)


def _set_condition(
    status: Obj, type_: str, value: bool, reason: str, message: str, now: float
) -> None:
    conditions = status.get("conditions") or ()
    status["conditions"] = with_raw_condition(conditions, type_, value, reason, message, now=now)
