"""Defaults and basic rules of kinds that are only stored, because nothing here acts on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded.admission.plugin import AdmissionAttributes, KindRules
from kueuelib.embedded.builtins.batch_rules import schedule, time_zone, validate_job_template
from kueuelib.embedded.builtins.core_rules import (
    check_changed_secret,
    check_config_map,
    check_event,
    check_frozen,
    check_secret,
    keep_type,
)
from kueuelib.embedded.builtins.defaults import RBAC, TEMPLATE_GENERATION
from kueuelib.embedded.builtins.fields import (
    forbidden,
    immutable,
    invalid,
    listed,
    required,
    section,
    setdefault,
    subobject,
)
from kueuelib.embedded.builtins.limits import (
    LIMIT_CHECKS,
    check_changed_quota,
    check_quota,
    check_runtime_class,
)
from kueuelib.embedded.builtins.network_rules import ENDPOINT_CHECKS, check_ingress, check_slice
from kueuelib.embedded.builtins.pod_spec import spec_warnings
from kueuelib.embedded.builtins.rule_table import check, kinds_with_rules
from kueuelib.embedded.builtins.volume_rules import check_changed_volume, check_volume
from kueuelib.embedded.builtins.workloads import (
    in_order,
    selects,
    validate_template,
    validate_workload,
)
from kueuelib.errors import FieldError

# ---- the server's strategies for roles and bindings ----------------------------------------------


def check_role(obj: Obj) -> list[FieldError]:
    """Check the rules of a Role or ClusterRole, and its aggregation."""
    namespaced = obj["kind"] == "Role"
    errors: list[FieldError] = []
    for i, rule in enumerate(listed(obj, "rules")):
        errors += _validate_rule(rule, f"rules[{i}]", namespaced=namespaced)
    aggregation = obj.get("aggregationRule")
    if aggregation is not None and not namespaced:
        errors += _validate_aggregation(aggregation)
    return errors


def _validate_rule(rule: Mapping[str, Any], path: str, *, namespaced: bool) -> list[FieldError]:
    errors = check("PolicyRule", rule, path)
    urls = list(listed(rule, "nonResourceURLs"))
    if urls:
        where = f"{path}.nonResourceURLs"
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid(where, urls, text))
        if any(listed(rule, key) for key in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(where, urls, text))
    return errors


def _validate_aggregation(aggregation: Mapping[str, Any]) -> list[FieldError]:
    path = "aggregationRule.clusterRoleSelectors"
    selectors = listed(aggregation, "clusterRoleSelectors")
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        return [required(path, text)]
    return [
        invalid(f"{path}[{i}]", None, "invalid label selector.")
        for i, selector in enumerate(selectors)
        if selects(selector, {}) is None
    ]


def check_binding(obj: Obj) -> list[FieldError]:
    """Check the role of a binding, and its subjects."""
    scope = "" if obj["kind"] == "RoleBinding" else "Cluster"
    errors = check(f"{scope}RoleRef", section(obj, "roleRef"), "roleRef")
    return errors + check(f"{scope}Subject", listed(obj, "subjects"), "subjects")


def check_rebinding(obj: Obj, old: Obj) -> list[FieldError]:
    """Check that the role of a binding does not change."""
    ref = section(obj, "roleRef")
    if ref == section(old, "roleRef"):
        return []
    keys = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
    shown = {name: ref.get(key) or "" for name, key in keys}
    return [invalid("roleRef", shown, "cannot change roleRef")]


# --------------------------------------------------------------------------------------------------

Check = Callable[[Obj], list[FieldError]]


@attrs.frozen(eq=False)
class StoredRules(KindRules):
    """The strategy of a kind without a controller.

    Args:
        check: returns the broken rules of an object.
        template: the path to a pod template, for warnings.
        fixed: paths of immutable fields.
        status: the status of a new object; None if the kind has none.
        free: the only mutable fields of `spec`; empty: no such rule.
        finalizer: added to every new object; the cluster removes it when the object is not in use.
        changed: returns the broken rules of a change; called before `check` if `first`.
        keep: restores further fields, before the rules are checked.
        first: whether immutable fields are checked first.
    """

    _check: Check
    _template: tuple[str, ...] = ()
    _fixed: tuple[str, ...] = ()
    _status: Mapping[str, Any] | None = None
    _finalizer: str = ""
    _free: tuple[str, ...] = ()
    _changed: Callable[[Obj, Obj], list[FieldError]] = lambda _, __: []
    _keep: Callable[[Obj, Obj], None] = lambda _, __: None
    _first: bool = False

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Reset the status of a new object."""
        if self._status is not None:
            obj["status"] = dict(self._status)
        if obj["kind"] == "PersistentVolume":
            obj["status"][_MOVED] = format_time(request.now)
        if obj["kind"] == "DaemonSet":
            obj["metadata"]["annotations"][TEMPLATE_GENERATION] = "1"
        if self._finalizer:
            held = obj["metadata"].setdefault("finalizers", [])
            if self._finalizer not in held:
                held.append(self._finalizer)

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionAttributes) -> None:
        """Count the template changes of a DaemonSet, and note when the phase of a volume
        changed.
        """
        del request
        self._keep(obj, old)
        moved = section(old, "status").get(_MOVED)
        if obj["kind"] == "PersistentVolume" and moved:
            setdefault(subobject(obj, "status"), _MOVED, moved)
        if obj["kind"] != "DaemonSet":
            return
        known = section(old, "metadata", "annotations").get(TEMPLATE_GENERATION)
        if known is not None and known.isdigit():
            changed = section(obj, "spec").get("template") != section(old, "spec").get("template")
            notes = obj["metadata"].setdefault("annotations", {})
            notes[TEMPLATE_GENERATION] = str(int(known) + changed)

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """Check the basic rules."""
        return self._check(obj)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """Check the same rules, and immutable fields."""
        if subresource == "status":
            return ()
        errors = list[FieldError]()
        for path in self._fixed:
            *parts, last = path.split(".")
            now, before = section(obj, *parts).get(last), section(old, *parts).get(last)
            if last == "selector":
                now, before = now and in_order(now), before and in_order(before)
            errors += immutable(path, now, before)
        errors += self._changed(obj, old)
        rules = self._check(obj)
        if obj["kind"] == "PersistentVolume":
            rules *= 2  # Kubernetes asks twice
        if self._free:
            rules = [each for each in rules if each.path != "spec.serviceName"]
        errors = [*errors, *rules] if self._first else [*rules, *errors]
        if self._free and _without(obj["spec"], self._free) != _without(old["spec"], self._free):
            names = [f"'{name}'" for name in self._free]
            text = f"{', '.join(names[:-1])} and {names[-1]} are forbidden"
            text = f"updates to {obj['kind'].lower()} spec for fields other than {text}"
            errors.append(forbidden("spec", text))
        if self._finalizer:
            errors += check_changed_volume(obj, old)
        return errors

    def warnings(self, obj: Obj, old: Obj | None) -> Sequence[str]:
        """Warnings about the pod template of a new or changed object."""
        generation = section(obj, "metadata").get("generation")
        if not self._template or (
            old is not None and generation == section(old, "metadata").get("generation")
        ):
            return ()
        spec = section(obj, *self._template, "spec")
        return list(spec_warnings(spec, ".".join((*self._template, "spec"))))


def _without(spec: Mapping[str, Any], names: Sequence[str]) -> Obj:
    return {name: value for name, value in spec.items() if name not in names}


def _check_cron_job(obj: Obj) -> list[FieldError]:
    job = section(obj, "spec", "jobTemplate", "spec")
    errors = check("CronJobSpec", obj["spec"], "spec", schedule=schedule, zone=time_zone)
    errors += validate_job_template(job, "spec.jobTemplate.spec")
    return errors + check("CronJobLimits", obj["spec"], "spec")


_MOVED: Final = "lastPhaseTransitionTime"
_SET_FREE: Final = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
)
_SELECTOR: Final = ("spec.selector",)
_POD: Final = ("spec", "template")
_CRON_POD: Final = ("spec", "jobTemplate", "spec", "template")
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
_REPLICAS: Final[Mapping[str, Any]] = {"replicas": 0}
_SCHEDULED: Final = (
    *("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"),
)
_PENDING: Final[Mapping[str, Any]] = {"phase": "Pending"}


def stored_rules() -> Mapping[tuple[str, str], KindRules]:
    """The strategies by group and kind: first those of which all rules are in `rules.txt`."""
    in_table = kinds_with_rules(**ENDPOINT_CHECKS, **LIMIT_CHECKS)
    return {
        **{known: StoredRules(check) for known, check in in_table.items()},
        ("apps", "Deployment"): StoredRules(validate_workload, _POD, _SELECTOR, {}),
        ("apps", "DaemonSet"): StoredRules(
            validate_workload, _POD, _SELECTOR, dict.fromkeys(_SCHEDULED, 0), first=True
        ),
        ("apps", "ReplicaSet"): StoredRules(validate_workload, _POD, _SELECTOR, _REPLICAS),
        ("apps", "StatefulSet"): StoredRules(
            validate_workload, _POD, (), {**_REPLICAS, "availableReplicas": 0}, free=_SET_FREE
        ),
        ("", "ReplicationController"): StoredRules(validate_workload, _POD, (), _REPLICAS),
        ("batch", "CronJob"): StoredRules(_check_cron_job, _CRON_POD, (), {}),
        ("", "PersistentVolume"): StoredRules(check_volume, (), (), _PENDING, VOLUME_PROTECTION),
        ("", "PersistentVolumeClaim"): StoredRules(
            check_volume, (), (), _PENDING, CLAIM_PROTECTION
        ),
        ("networking.k8s.io", "Ingress"): StoredRules(check_ingress, status={"loadBalancer": {}}),
        ("discovery.k8s.io", "EndpointSlice"): StoredRules(check_slice, fixed=("addressType",)),
        ("", "PodTemplate"): StoredRules(
            lambda obj: validate_template(section(obj, "template"), "template"), ("template",)
        ),
        ("", "Event"): StoredRules(check_event),
        ("node.k8s.io", "RuntimeClass"): StoredRules(check_runtime_class, fixed=("handler",)),
        ("", "ConfigMap"): StoredRules(check_config_map, changed=check_frozen, first=True),
        ("", "Secret"): StoredRules(
            check_secret, changed=check_changed_secret, keep=keep_type, first=True
        ),
        ("", "ResourceQuota"): StoredRules(check_quota, status={}, changed=check_changed_quota),
        (RBAC, "RoleBinding"): StoredRules(check_binding, changed=check_rebinding),
        (RBAC, "ClusterRoleBinding"): StoredRules(check_binding, changed=check_rebinding),
        (RBAC, "Role"): StoredRules(check_role),
        (RBAC, "ClusterRole"): StoredRules(check_role),
    }
