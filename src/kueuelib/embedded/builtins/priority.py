"""PriorityClasses, and the priority of new pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import PODS, PRIORITY_CLASSES
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded.admission.plugin import (
    AdmissionAttributes,
    AdmissionPlugin,
    KindRules,
    Operation,
    StoreReader,
)
from kueuelib.embedded.builtins.fields import forbidden, section, unchanged
from kueuelib.embedded.builtins.rule_table import check
from kueuelib.errors import FieldError

HIGHEST_OF_USERS = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES: Mapping[str, tuple[int, str]] = {
    "system-cluster-critical": (
        2_000_000_000,
        "For pods that the cluster cannot do without, on whatever node.",
    ),
    "system-node-critical": (2_000_001_000, "For pods that their node cannot do without."),
}


def system_priority_classes() -> list[Obj]:
    """The classes that every cluster has."""
    return [
        {
            "apiVersion": PRIORITY_CLASSES.api_version,
            "kind": PRIORITY_CLASSES.kind,
            "metadata": {"name": name},
            "value": value,
            "description": text,
        }
        for name, (value, text) in SYSTEM_CLASSES.items()
    ]


class PriorityClassRules(KindRules):
    """The strategy of PriorityClasses."""

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Check that users do not take names and values of the system."""
        name, value = section(obj, "metadata").get("name") or "", obj.get("value") or 0
        errors = []
        if name.startswith(SYSTEM_PREFIX):
            if SYSTEM_CLASSES.get(name, (None,))[0] != value:
                text = (
                    "priority class names with 'system-' prefix are reserved for system use only. "
                    f"error: {name} is not a known system priority class"
                )
                errors.append(forbidden("metadata.name", text))
        elif value > HIGHEST_OF_USERS:
            text = f"maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"
            errors.append(forbidden("value", text))
        return errors + check("PriorityClass", obj, "")

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Value and policy are immutable."""
        del subresource
        errors = []
        if obj.get("value") != old.get("value"):
            errors.append(forbidden("value", "may not be changed in an update."))
        return errors + unchanged(obj, old, "preemptionPolicy")


def default_class(classes: Iterable[Obj]) -> Obj | None:
    """The class of pods that name none: the global default with the lowest value."""
    defaults = [one for one in classes if one.get("globalDefault")]
    return min(defaults, key=lambda one: one.get("value", 0), default=None)


def resolve_priority(spec: Mapping[str, Any], priority_class: Obj | None) -> dict[str, Any]:
    """The fields that a pod's spec gets from its class, or from the absence of one."""
    if priority_class is None:
        value, policy = 0, "PreemptLowerPriority"
    else:
        value = priority_class.get("value", 0)
        policy = priority_class.get("preemptionPolicy") or "PreemptLowerPriority"
    resolved: dict[str, Any] = {"priority": value}
    if priority_class is not None and not spec.get("priorityClassName"):
        resolved["priorityClassName"] = priority_class["metadata"]["name"]
    if spec.get("preemptionPolicy") is None:
        resolved["preemptionPolicy"] = policy
    return resolved


class PriorityPlugin(AdmissionPlugin):
    """Sets the priority of new pods from their PriorityClass, and allows one global default."""

    name = "Priority"
    resources = (PODS, PRIORITY_CLASSES)
    operations = (Operation.CREATE, Operation.UPDATE)

    def handles(self, request: AdmissionAttributes) -> bool:
        """New pods, and PriorityClasses that are written."""
        pod = request.resource.group_kind == PODS.group_kind
        return super().handles(request) and not (pod and request.operation is Operation.UPDATE)

    def admit(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """Resolves the class.

        Raises:
            Forbidden: there is no such class, or the number contradicts it.
        """
        if request.resource.group_kind != PODS.group_kind:
            return
        spec = request.new["spec"]
        name = spec.get("priorityClassName")
        if name:
            priority_class = reader.get(PRIORITY_CLASSES, ObjectKey("", name))
            if priority_class is None:
                raise request.refuse(f"no PriorityClass with name {name} was found")
        else:
            priority_class = default_class(reader.items(PRIORITY_CLASSES))
        given = spec.get("priority")
        resolved = resolve_priority(spec, priority_class)
        if given is not None and given != resolved["priority"]:
            text = (
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {resolved['priority']} "
                "from the given PriorityClass name"
            )
            raise request.refuse(text)
        spec.update(resolved)

    def validate(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """Refuses a second global default.

        Raises:
            Forbidden: another class is the default.
        """
        obj = request.new
        if request.resource.group_kind == PODS.group_kind or not obj.get("globalDefault"):
            return
        other = default_class(reader.items(PRIORITY_CLASSES))
        if other is not None and other["metadata"]["name"] != obj["metadata"].get("name"):
            text = (
                f"PriorityClass {other['metadata']['name']} is already marked as default. "
                "Only one PriorityClass can be marked as default"
            )
            raise request.refuse(text)
