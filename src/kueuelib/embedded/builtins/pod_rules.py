"""The server's strategy for pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded.admission.plugin import AdmissionRequest, KindRules
from kueuelib.embedded.builtins.fields import forbidden, invalid, required, unchanged
from kueuelib.embedded.builtins.pod_parts import PARTS, keep_to_part, validate_part
from kueuelib.embedded.builtins.pod_spec import validate_pod_spec
from kueuelib.embedded.builtins.pod_warnings import name_warnings, spec_warnings
from kueuelib.embedded.builtins.raw import keep, listed, meaning, section
from kueuelib.embedded.builtins.resources import CONTAINER_LISTS, qos_class
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.schema.internal import difference
from kueuelib.errors import FieldError

_SPEC_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_GATED_TEXT = "Scheduling is blocked due to non-empty scheduling gates"


class PodRules(KindRules):
    """The strategy of pods."""

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
        """Make a new pod Pending, whatever its author wrote."""
        status: Obj = {"phase": "Pending", "qosClass": qos_class(section(obj, "spec"))}
        if is_gated(obj):
            status["conditions"] = [gated_condition(request.now)]
        obj["status"] = status

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The rules of the spec."""
        errors = validate_pod_spec(section(obj, "spec"), "spec")
        if listed(section(obj, "spec"), "ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        return errors

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionRequest) -> None:
        """Let a subresource change only its part."""
        if request.subresource in PARTS:
            keep_to_part(obj, old, request.subresource)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The broken rules of a changed pod."""
        if subresource == "status":
            return unchanged(obj, old, "spec.nodeName")
        if subresource in PARTS:
            return validate_part(obj, old, subresource)
        if subresource:
            return ()
        return validate_pod_update(obj, old)

    def warnings(self, obj: Obj, old: Obj | None) -> Sequence[str]:
        """Warnings, only at creation, because people rarely change pods."""
        if old is not None:
            return ()
        name = section(obj, "metadata").get("name") or ""
        hostname = section(obj, "spec").get("hostname")
        named = () if hostname else name_warnings(name, "the Pod's hostname")
        return [*named, *spec_warnings(section(obj, "spec"), "spec")]

    graceful: ClassVar[bool] = True

    def grace_period(self, obj: Obj, asked: int | None) -> int:
        """The requested grace period, or else the pod's own; 0 for pods that never ran or have
        ended.
        """
        spec = section(obj, "spec")
        ended = section(obj, "status").get("phase") in ("Succeeded", "Failed")
        if not spec.get("nodeName") or ended:
            return 0
        own = spec.get("terminationGracePeriodSeconds")
        seconds = asked if asked is not None else own
        return 30 if seconds is None else max(int(seconds), 1) if seconds < 0 else int(seconds)


def is_gated(pod: Mapping[str, Any]) -> bool:
    """Whether scheduling gates keep the pod from being scheduled."""
    return bool(listed(section(pod, "spec"), "schedulingGates"))


def gated_condition(now: float) -> Obj:
    """The condition of a pod with scheduling gates."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": _GATED_TEXT,
        "lastProbeTime": None,
        "lastTransitionTime": format_time(now),
    }


def validate_pod_update(new: Obj, old: Obj) -> list[FieldError]:
    """The broken rules of a change of a pod outside its status."""
    spec: Obj = meaning(dict(section(new, "spec")))
    before: Obj = meaning(dict(section(old, "spec")))
    errors = validate_pod_spec(spec, "spec")
    for key in ("containers", "initContainers"):
        if len(listed(spec, key)) != len(listed(before, key)):
            text = "pod updates may not add or remove containers"
            return [*errors, forbidden(f"spec.{key}", text)]
        errors += [
            required(f"spec.{key}[{i}].image")
            for i, container in enumerate(listed(spec, key))
            if not container.get("image")
        ]
    if spec == before:
        return errors
    rest: Obj = copy_json(spec)
    for key in CONTAINER_LISTS:
        for one, other in zip(listed(rest, key), listed(before, key), strict=False):
            keep(one, other, "image")
    errors += _allow_deadline(rest, before)
    errors += _allow_tolerations(rest, before)
    errors += _allow_ungating(rest, before)
    if listed(before, "schedulingGates"):
        errors += _allow_narrower_placement(rest, before)
    if rest.get("terminationGracePeriodSeconds") == 1 and (
        (before.get("terminationGracePeriodSeconds") or 0) < 0
    ):
        rest["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if rest != before and (change := difference("PodSpec", before, rest)):
        errors.append(forbidden("spec", f"{_SPEC_TEXT}\n{change}"))
    return errors


def _allow_deadline(rest: Obj, before: Mapping[str, Any]) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    new, old = rest.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if new == old:
        return []
    keep(rest, before, "activeDeadlineSeconds")
    if new is None:
        return [invalid(path, new, "must not update from a positive integer to nil value")]
    if old is not None and new > old:
        return [invalid(path, new, "must be less than or equal to previous value")]
    return []


def _allow_tolerations(rest: Obj, before: Mapping[str, Any]) -> list[FieldError]:
    new, old = listed(rest, "tolerations"), listed(before, "tolerations")
    if new == old:
        return []
    keep(rest, before, "tolerations")

    def identity(toleration: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(toleration.get(key) or "" for key in ("key", "operator", "value", "effect"))

    kept = {identity(toleration) for toleration in new}
    if all(identity(toleration) in kept for toleration in old):
        return []
    text = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", text)]


def _allow_ungating(rest: Obj, before: Mapping[str, Any]) -> list[FieldError]:
    known = {gate.get("name") for gate in listed(before, "schedulingGates")}
    names = [gate.get("name") for gate in listed(rest, "schedulingGates")]
    keep(rest, before, "schedulingGates")
    return [
        forbidden(
            f"spec.schedulingGates[{i}].name",
            f"only deletion is allowed, but found new scheduling gate '{name or ''}'",
        )
        for i, name in enumerate(names)
        if name not in known
    ]


def _allow_narrower_placement(rest: Obj, before: Mapping[str, Any]) -> list[FieldError]:
    """Accepts a stricter node selector and affinity while a pod is gated."""
    errors = []
    new, old = section(rest, "nodeSelector"), section(before, "nodeSelector")
    if any(key not in new or new[key] != value for key, value in old.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid("spec.nodeSelector", rest.get("nodeSelector"), text))
    keep(rest, before, "nodeSelector")
    errors += _narrower_affinity(section(rest, "affinity"), section(before, "affinity"))
    affinity = dict(section(rest, "affinity"))
    keep(affinity, section(before, "affinity"), "nodeAffinity")
    if affinity:
        rest["affinity"] = affinity
    else:
        keep(rest, before, "affinity")
    return errors


def _narrower_affinity(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    path = f"spec.affinity.nodeAffinity.{key}.nodeSelectorTerms"
    before = listed(section(old, "nodeAffinity", key), "nodeSelectorTerms")
    now = listed(section(new, "nodeAffinity", key), "nodeSelectorTerms")
    if not before:
        return []
    if len(now) != len(before):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [invalid(path, list(now), text)]
    errors = []
    for i, (later, earlier) in enumerate(zip(now, before, strict=True)):
        for part in ("matchExpressions", "matchFields"):
            first = list(listed(earlier, part))
            if list(listed(later, part))[: len(first)] != first:
                text = "only additions are allowed (no mutations or deletions)"
                errors.append(invalid(f"{path}[{i}].{part}", listed(later, part), text))
    return errors
