"""The server's strategy for pods and their subresources, and its plug-ins for new pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded.admission.plugin import (
    AdmissionAttributes,
    AdmissionPlugin,
    KindRules,
    Operation,
    StoreReader,
)
from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    invalid,
    keep,
    listed,
    meaning,
    required,
    section,
    setdefault,
    unchanged,
)
from kueuelib.embedded.builtins.pod_spec import (
    NOT_READY,
    UNREACHABLE,
    name_warnings,
    spec_warnings,
    validate_pod_spec,
)
from kueuelib.embedded.builtins.resources import CONTAINER_LISTS, qos_class
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.schema.written import difference, set_defaults
from kueuelib.errors import FieldError

# ---- subresources that change a part of a pod: `ephemeralcontainers` and `resize` ----------------

EPHEMERAL = "ephemeralcontainers"
RESIZE = "resize"
PARTS = (EPHEMERAL, RESIZE)
_NOT_EPHEMERAL = ("lifecycle", "livenessProbe", "ports", "readinessProbe", "startupProbe")


def keep_to_part(new: Obj, old: Obj, subresource: str) -> None:
    """Keeps everything of the old pod except the part of the subresource."""
    rest: Obj = copy_json(old)
    if "managedFields" in new["metadata"]:
        rest["metadata"]["managedFields"] = new["metadata"]["managedFields"]
    if "resourceVersion" in new["metadata"]:
        rest["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"]
    spec, wanted = rest["spec"], section(new, "spec")
    if subresource == EPHEMERAL:
        spec.pop("ephemeralContainers", None)
        if listed(wanted, "ephemeralContainers"):
            spec["ephemeralContainers"] = wanted["ephemeralContainers"]
            set_defaults("core.Pod", rest)
    else:
        for key in ("containers", "initContainers"):
            resources = {each.get("name"): each.get("resources") for each in listed(wanted, key)}
            for container in listed(spec, key):
                if resources.get(container["name"]) is not None:
                    container["resources"] = resources[container["name"]]
    new.clear()
    new.update(rest)


def validate_part(new: Obj, old: Obj, subresource: str) -> list[FieldError]:
    """The broken rules of a change through one of the subresources."""
    spec, before = section(new, "spec"), section(old, "spec")
    if subresource == EPHEMERAL:
        return _validate_ephemeral(spec, before)
    if spec == before:
        return []
    errors = validate_pod_spec(spec, "spec")
    was = section(old, "status").get("qosClass") or qos_class(before)
    if not errors and qos_class(spec) != was:
        text = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid("spec", was, text))
    return errors


def _validate_ephemeral(spec: Mapping[str, Any], before: Mapping[str, Any]) -> list[FieldError]:
    path = "spec.ephemeralContainers"
    errors = []
    names = {
        each.get("name") for key in ("containers", "initContainers") for each in listed(spec, key)
    }
    by_name = {each.get("name"): each for each in listed(spec, "ephemeralContainers")}
    for i, container in enumerate(listed(spec, "ephemeralContainers")):
        if container.get("name") in names:
            errors.append(duplicate(f"{path}[{i}].name", container.get("name")))
        names.add(container.get("name"))
        text = "cannot be set for an Ephemeral Container"
        set_ = [key for key in _NOT_EPHEMERAL if container.get(key)]
        set_ += ["resources"] * bool(container.get("resources"))
        errors += [forbidden(f"{path}[{i}].{key}", text) for key in sorted(set_)]
    for old in listed(before, "ephemeralContainers"):
        kept = by_name.get(old["name"])
        if kept != old:
            what = "removed" if kept is None else "changed"
            text = f'existing ephemeral containers "{old["name"]}" may not be {what}\n'
            errors.append(forbidden(path, text))
    return errors


# ---- adds a service account and the usual tolerations to every new pod ---------------------------


class ServiceAccountPlugin(AdmissionPlugin):
    """Names the service account `default` in pods that name none; no token is mounted."""

    name = "ServiceAccount"
    resources = (PODS,)

    def admit(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """Sets both fields that carry the name."""
        del reader
        spec = request.new["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = "default"
        setdefault(spec, "serviceAccount", spec["serviceAccountName"])


class TolerationPlugin(AdmissionPlugin):
    """Lets pods stay for five minutes on lost nodes."""

    name = "DefaultTolerationSeconds"
    resources = (PODS,)
    operations = (Operation.CREATE, Operation.UPDATE)

    def admit(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """Adds the tolerations."""
        del reader
        tolerate_unready_nodes(request.new["spec"])


def tolerate_unready_nodes(spec: Obj) -> None:
    """Adds the tolerations that every new pod gets, unless it has its own for these taints."""
    present = listed(spec, "tolerations")
    added = [
        {"key": name, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for name in (NOT_READY, UNREACHABLE)
        if not _mentions(present, name)
    ]
    if added:
        spec["tolerations"] = [*present, *added]


def _mentions(tolerations: Iterable[Obj], key: str) -> bool:
    return any(
        (not toleration.get("key") or toleration["key"] == key)
        and toleration.get("effect") in (None, "", "NoExecute")
        for toleration in tolerations
    )


# --------------------------------------------------------------------------------------------------

_SPEC_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_GATED_TEXT = "Scheduling is blocked due to non-empty scheduling gates"


class PodRules(KindRules):
    """The strategy of pods."""

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
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

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionAttributes) -> None:
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
