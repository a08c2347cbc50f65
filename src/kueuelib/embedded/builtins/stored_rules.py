"""Kinds that are only stored, because nothing here acts on them: defaults and basic rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionRequest, KindRules
from kueuelib.embedded.builtins.fields import (
    immutable,
    listed,
    non_negative,
    not_supported,
    required,
    section,
    setdefault,
    subobject,
)
from kueuelib.embedded.builtins.fields import invalid as invalid_value
from kueuelib.embedded.builtins.metadata import validate_annotations, validate_labels
from kueuelib.embedded.builtins.pod_defaults import default_pod_template
from kueuelib.embedded.builtins.pod_spec import validate_pod_spec
from kueuelib.embedded.builtins.pod_warnings import spec_warnings
from kueuelib.errors import FieldError, InvalidSelector
from kueuelib.machinery.selectors import from_label_selector

Check = Callable[[Obj], list[FieldError]]


class StoredRules(KindRules):
    """The strategy of a kind without a controller.

    Args:
        default: fills in what may be left out.
        check: the rules of an object.
        template: the way to a pod template, for warnings.
        fixed: paths of fields that stay.
        status: the status of a new object; None: the kind has none.
    """

    def __init__(
        self,
        default: Callable[[Obj], None],
        check: Check,
        *,
        template: tuple[str, ...] = (),
        fixed: tuple[str, ...] = (),
        status: Mapping[str, Any] | None = None,
    ) -> None:
        self._default = default
        self._check = check
        self._template = template
        self._fixed = fixed
        self._status = status

    def default(self, obj: Obj) -> None:
        """What a client may leave out."""
        self._default(obj)

    def prepare_create(self, obj: Obj, request: AdmissionRequest) -> None:
        """A new object has no status of its own."""
        del request
        if self._status is not None:
            obj["status"] = dict(self._status)

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The basic rules."""
        return self._check(obj)

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The same, and what stays."""
        if subresource == "status":
            return ()
        errors = self._check(obj)
        for path in self._fixed:
            *parts, last = path.split(".")
            now, before = section(obj, *parts).get(last), section(old, *parts).get(last)
            errors += immutable(path, now, before)
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


def _check_template(template: Mapping[str, Any], path: str, *policies: str) -> list[FieldError]:
    pod = section(template, "spec")
    errors = validate_pod_spec(pod, f"{path}.spec")
    if pod.get("restartPolicy") not in policies:
        where = f"{path}.spec.restartPolicy"
        errors.append(not_supported(where, pod.get("restartPolicy"), policies))
    return errors


def _check_replicated(obj: Obj) -> list[FieldError]:
    spec = obj["spec"]
    errors = non_negative("spec.replicas", spec.get("replicas"))
    errors += non_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    labels = section(spec, "template", "metadata", "labels")
    selector = spec.get("selector")
    if not selector and obj["kind"] == "DaemonSet":
        errors.append(invalid_value("spec.template.metadata.labels", dict(labels), _UNSELECTED))
    elif not selector:
        errors.append(required("spec.selector"))
    else:
        plain = obj["kind"] == "ReplicationController"
        try:
            fits = from_label_selector({"matchLabels": selector} if plain else selector).matches(
                labels
            )
        except InvalidSelector as error:
            errors.append(invalid_value("spec.selector", selector, str(error)))
        else:
            if not fits:
                where = "spec.template.metadata.labels"
                errors.append(invalid_value(where, dict(labels), _UNSELECTED))
    return errors + _check_template(section(spec, "template"), "spec.template", "Always")


def _default_replica_set(obj: Obj) -> None:
    spec = subobject(obj, "spec")
    setdefault(spec, "replicas", 1)
    default_pod_template(subobject(spec, "template"))


def _default_controller(obj: Obj) -> None:
    _default_replica_set(obj)
    labels = section(obj, "spec", "template", "metadata", "labels")
    if not obj["spec"].get("selector") and labels:
        obj["spec"]["selector"] = dict(labels)


def _default_stateful_set(obj: Obj) -> None:
    _default_replica_set(obj)
    spec = obj["spec"]
    setdefault(spec, "podManagementPolicy", "OrderedReady")
    setdefault(spec, "revisionHistoryLimit", 10)
    strategy = subobject(spec, "updateStrategy")
    setdefault(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        setdefault(subobject(strategy, "rollingUpdate"), "partition", 0)
    retention = subobject(spec, "persistentVolumeClaimRetentionPolicy")
    setdefault(retention, "whenDeleted", "Retain")
    setdefault(retention, "whenScaled", "Retain")


def _default_daemon_set(obj: Obj) -> None:
    spec = subobject(obj, "spec")
    setdefault(spec, "revisionHistoryLimit", 10)
    strategy = subobject(spec, "updateStrategy")
    setdefault(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = subobject(strategy, "rollingUpdate")
        setdefault(rolling, "maxUnavailable", 1)
        setdefault(rolling, "maxSurge", 0)
    default_pod_template(subobject(spec, "template"))


def _default_cron_job(obj: Obj) -> None:
    spec = subobject(obj, "spec")
    setdefault(spec, "concurrencyPolicy", "Allow")
    setdefault(spec, "suspend", value=False)
    setdefault(spec, "successfulJobsHistoryLimit", 3)
    setdefault(spec, "failedJobsHistoryLimit", 1)
    job = subobject(subobject(spec, "jobTemplate"), "spec")
    default_pod_template(subobject(job, "template"))


def _check_cron_job(obj: Obj) -> list[FieldError]:
    spec = obj["spec"]
    errors = []
    if not spec.get("schedule"):
        errors.append(required("spec.schedule"))
    if spec["concurrencyPolicy"] not in _CONCURRENCY:
        path = "spec.concurrencyPolicy"
        errors.append(not_supported(path, spec["concurrencyPolicy"], _CONCURRENCY))
    template = section(spec, "jobTemplate", "spec", "template")
    path = "spec.jobTemplate.spec.template"
    return errors + _check_template(template, path, "OnFailure", "Never")


def _default_volume(obj: Obj) -> None:
    spec = subobject(obj, "spec")
    setdefault(spec, "volumeMode", "Filesystem")
    if obj.get("kind") == "PersistentVolume":
        setdefault(spec, "persistentVolumeReclaimPolicy", "Retain")
    setdefault(subobject(obj, "status"), "phase", "Pending")


def _check_volume(obj: Obj) -> list[FieldError]:
    spec = obj["spec"]
    errors = []
    if not listed(spec, "accessModes"):
        errors.append(required("spec.accessModes", _ONE_MODE))
    errors += [
        not_supported(f"spec.accessModes[{i}]", mode, _MODES)
        for i, mode in enumerate(listed(spec, "accessModes"))
        if mode not in _MODES
    ]
    if obj["kind"] == "PersistentVolume":
        if "storage" not in section(spec, "capacity"):
            errors.append(required("spec.capacity"))
    elif "storage" not in section(spec, "resources", "requests"):
        errors.append(required("spec.resources[storage]"))
    return errors


def _check_ingress(obj: Obj) -> list[FieldError]:
    spec = section(obj, "spec")
    if not listed(spec, "rules") and not spec.get("defaultBackend"):
        text = "either `defaultBackend` or `rules` must be specified"
        return [invalid_value("spec", [], text)]
    errors = []
    for i, rule in enumerate(listed(spec, "rules")):
        for j, path in enumerate(listed(section(rule, "http"), "paths")):
            where = f"spec.rules[{i}].http.paths[{j}].pathType"
            if not path.get("pathType"):
                errors.append(required(where, "pathType must be specified"))
            elif path["pathType"] not in _PATH_TYPES:
                errors.append(not_supported(where, path["pathType"], _PATH_TYPES))
    return errors


def _check_slice(obj: Obj) -> list[FieldError]:
    if not obj.get("addressType"):
        return [required("addressType")]
    if obj["addressType"] not in _ADDRESSES:
        return [not_supported("addressType", obj["addressType"], _ADDRESSES)]
    return []


def _default_template(obj: Obj) -> None:
    default_pod_template(subobject(obj, "template"))


def _check_pod_template(obj: Obj) -> list[FieldError]:
    meta, spec = section(obj, "template", "metadata"), section(obj, "template", "spec")
    return [
        *validate_labels(meta.get("labels"), "template.labels"),
        *validate_annotations(meta.get("annotations"), "template.annotations"),
        *validate_pod_spec(spec, "template.spec"),
    ]


def _nothing(_: Obj) -> None:
    return


def _fine(_: Obj) -> list[FieldError]:
    return []


_UNSELECTED: Final = "`selector` does not match template `labels`"
_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")
_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_ONE_MODE: Final = "at least 1 access mode is required"
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_ADDRESSES: Final = ("FQDN", "IPv4", "IPv6")
_SELECTOR: Final = ("spec.selector",)
_POD: Final = ("spec", "template")
_CRON_POD: Final = ("spec", "jobTemplate", "spec", "template")
_PENDING: Final[Mapping[str, Any]] = {"phase": "Pending"}
_BALANCED: Final[Mapping[str, Any]] = {"loadBalancer": {}}


def stored_rules() -> Mapping[tuple[str, str], KindRules]:
    """The strategies by group and kind."""
    return {
        ("apps", "DaemonSet"): StoredRules(
            _default_daemon_set,
            _check_replicated,
            template=_POD,
            fixed=_SELECTOR,
            status={},
        ),
        ("apps", "ReplicaSet"): StoredRules(
            _default_replica_set,
            _check_replicated,
            template=_POD,
            fixed=_SELECTOR,
            status={},
        ),
        ("apps", "StatefulSet"): StoredRules(
            _default_stateful_set,
            _check_replicated,
            template=_POD,
            fixed=_SELECTOR,
            status={},
        ),
        ("", "ReplicationController"): StoredRules(
            _default_controller, _check_replicated, template=_POD, status={}
        ),
        ("batch", "CronJob"): StoredRules(
            _default_cron_job, _check_cron_job, template=_CRON_POD, status={}
        ),
        ("", "PersistentVolume"): StoredRules(_default_volume, _check_volume, status=_PENDING),
        ("", "PersistentVolumeClaim"): StoredRules(_default_volume, _check_volume, status=_PENDING),
        ("networking.k8s.io", "Ingress"): StoredRules(_nothing, _check_ingress, status=_BALANCED),
        ("discovery.k8s.io", "EndpointSlice"): StoredRules(
            _nothing, _check_slice, fixed=("addressType",)
        ),
        ("", "PodTemplate"): StoredRules(
            _default_template, _check_pod_template, template=("template",)
        ),
        ("", "Endpoints"): StoredRules(_nothing, _fine),
    }
