"""Objects of generated classes, such as `kubernetes_asyncio.client.V1Pod`, and raw JSON.

The classes are recognised by what they say of themselves, so that their packages are never imported
here: `openapi_types` has the type of each attribute, `attribute_map` its name in JSON. Those of
`kubernetes_asyncio`, and of `kubernetes` with its `kubernetes.aio`, have both.

The classes drop fields that they do not know. A value made here remembers the JSON that it was made
of, each part of it on its own: what is unknown is written again, and what is equal as it was.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeGuard, TypeVar

from kueuelib.api.meta import Obj, Resource, copied
from kueuelib.errors import ConfigError, FieldError, InvalidObject

_RAW: Final = "_kueuelib_raw"
"""The attribute of a model that holds the JSON that it was made of."""
_LIST: Final = re.compile(r"[lL]ist\[(.*)\]")
_MAP: Final = re.compile(r"(?:dict\(|Dict\[)[^,]*, (.*)[)\]]")
_MICRO: Final = frozenset({"acquireTime", "eventTime", "lastObservedTime", "pingTime", "renewTime"})
"""The fields of type `MicroTime`; the API server refuses whole seconds there."""
_PLAIN: Final = frozenset({"str", "int", "float", "bool", "bytes"})
_SCALARS: Final = frozenset({str, int, float, bool})
Reader = Callable[[Any], Any]


class ModelPart(Protocol):
    """A value of a generated class, such as a `V1JobStatus`."""

    def to_dict(self, serialize: bool = ...) -> dict[str, Any]:
        """The class's own form, with the names of its attributes; not used here."""
        ...


class Model(ModelPart, Protocol):
    """An object of a generated class: one of kubernetes_asyncio, or of the same form."""

    @property
    def api_version(self) -> str | None:
        """The version of the API; it may be missing."""
        ...

    @property
    def kind(self) -> str | None:
        """The kind; it may be missing."""
        ...

    @property
    def metadata(self) -> Any:
        """A value of a generated class."""
        ...


M = TypeVar("M")


class _Misfit(Exception):
    """A value of the wrong JSON type."""

    def __init__(self, wanted: str, path: str = "") -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.path = path

    def below(self, step: str) -> _Misfit:
        return _Misfit(self.wanted, f"{step}{self.path}")


class _Field(NamedTuple):
    attribute: str
    name: str
    read: Reader


def is_model(given: object) -> TypeGuard[Model]:
    """Whether a value is an object, or a piece of one, of a generated class."""
    return not isinstance(given, type) and is_model_class(type(given))


def is_model_class(given: object) -> TypeGuard[type[Model]]:
    """Whether a value is such a class."""
    return isinstance(given, type) and _is_generated(given)


@lru_cache(maxsize=2048)
def _is_generated(cls: type) -> bool:
    names = (getattr(cls, each, None) for each in ("openapi_types", "attribute_map"))
    return all(isinstance(each, dict) for each in names)


def resource_of_model(cls: type) -> Resource | None:
    """The kind of a generated class; None for pieces of objects, and for lists."""
    return resource_named(_generated(cls).__name__)


def part_class(cls: type, *path: str) -> type | None:
    """The generated class at a path of attributes, for lists that of the items; None for none."""
    for attribute in path:
        generated: Any = _generated(cls)
        kind = generated.openapi_types.get(attribute, "")
        listed = _LIST.fullmatch(kind)
        models = sys.modules[generated.__module__.rpartition(".")[0]]
        part = getattr(models, listed[1] if listed else kind or "-", None)
        if not is_model_class(part):
            return None
        cls = part
    return cls


def has_field(cls: type, attribute: str) -> bool:
    """Whether a generated class has an attribute."""
    generated: Any = _generated(cls)
    return attribute in generated.openapi_types


def decode_model(cls: type[M], obj: Obj) -> M:
    """The value of a generated class for a raw object, or for a piece of one.

    The raw object must not be changed afterwards; the value may be. Unlike the class itself, this
    accepts objects without fields that the class requires, and it ignores what kind the object
    says that it is; see `decode_as`.

    Raises:
        InvalidObject: a field has the wrong type; it is named.
    """
    try:
        made: M = _read_model(cls, obj)
    except _Misfit as misfit:
        path = misfit.path.lstrip(".")
        text = f"Invalid value: {path or 'it'} must be of type {misfit.wanted}"
        problem = FieldError(path, "FieldValueTypeInvalid", text)
        meta = obj.get("metadata") if isinstance(obj, dict) else None
        name = meta.get("name") if isinstance(meta, dict) else None
        raise InvalidObject(cls.__name__, str(name or ""), [problem]) from None
    return made


def decode_as(cls: type[M], obj: Obj) -> M:
    """The same, of an object that must not say that it is of another kind.

    Raises:
        InvalidObject: it does, or as `decode_model`.
    """
    resource, kind = resource_of_model(cls), obj.get("kind")
    if kind and resource is not None and kind != resource.kind:
        text = f'Invalid value: "{kind}": must be {resource.kind}'
        raise InvalidObject(cls.__name__, "", [FieldError("kind", "FieldValueInvalid", text)])
    return decode_model(cls, obj)


def encode_model(value: object) -> Obj:
    """The raw form of a value of a generated class.

    A whole object gets its `apiVersion` and `kind` if it has none. What `decode_model` read and
    nobody changed is written as it came, also the fields that the class does not know.

    Raises:
        ConfigError: it is something else.
        InvalidObject: a time has no time zone, or a value cannot be JSON; the field is named.
    """
    if not is_model(value):
        fix = "give a value of a class; raw JSON may have models inside as it is"
        raise ConfigError(f"{value!r:.60}", "is not a typed value", fix)
    cls = type(value)
    try:
        raw = _written(value)
    except _Misfit as misfit:
        path = misfit.path.lstrip(".")
        problem = FieldError(path, "FieldValueInvalid", f"Invalid value: {misfit.wanted}")
        raise InvalidObject(cls.__name__, "", [problem]) from None
    resource = resource_of_model(cls)
    if resource is None:
        return raw
    return {"apiVersion": resource.api_version, "kind": resource.kind, **raw}


def without_models(value: Any) -> Any:
    """Raw JSON in which parts may be models: with their raw form instead of each.

    Raises:
        InvalidObject: as `encode_model`.
    """
    if is_model(value):
        return encode_model(value)
    if not _has_models(value):
        return value
    if isinstance(value, Mapping):
        return {key: without_models(each) for key, each in value.items()}
    return [without_models(each) for each in value]


# ---- from JSON


def _generated(cls: type) -> type:
    """The generated class itself, of which this one may be a subclass."""
    return next((each for each in cls.__mro__ if "openapi_types" in vars(each)), cls)


@lru_cache(maxsize=1024)
def _fields(cls: type) -> tuple[_Field, ...]:
    generated: Any = _generated(cls)
    models = sys.modules[generated.__module__.rpartition(".")[0]]
    names, kinds = generated.attribute_map, generated.openapi_types
    return tuple(_Field(each, names[each], _reader(kinds[each], models)) for each in kinds)


def _reader(kind: str, models: Any) -> Reader:
    if listed := _LIST.fullmatch(kind):
        return _list_of(_reader(listed[1], models))
    if mapped := _MAP.fullmatch(kind):
        return _map_of(_reader(mapped[1], models))
    if kind in _PLAIN:
        return _plain
    if kind in ("datetime", "date"):
        return _read_time if kind == "datetime" else _read_date
    cls = getattr(models, kind, None)
    if cls is None or kind == "object":
        return copied
    return lambda value: _read_model(cls, value)


def _list_of(read: Reader) -> Reader:
    def read_list(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Misfit("array")
        made = []
        for index, each in enumerate(value):
            try:
                made.append(each if each is None else read(each))
            except _Misfit as misfit:
                raise misfit.below(f"[{index}]") from None
        return made

    return read_list


def _map_of(read: Reader) -> Reader:
    def read_map(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit("object")
        made = {}
        for key, each in value.items():
            try:
                made[key] = each if each is None else read(each)
            except _Misfit as misfit:
                raise misfit.below(f"[{key}]") from None
        return made

    return read_map


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise _Misfit("string, number or boolean")
    return value


def _read_time(value: Any) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _Misfit("date-time") from None


def _read_date(value: Any) -> dt.date:
    try:
        return dt.date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _Misfit("date") from None


def _read_model(cls: type, value: Any) -> Any:
    if not isinstance(value, dict):
        raise _Misfit("object")
    given = {}
    for attribute, name, read in _fields(cls):
        piece = value.get(name)
        if piece is not None:
            try:
                given[attribute] = read(piece)
            except _Misfit as misfit:
                raise misfit.below(f".{name}") from None
    made = _maker(cls)(given)
    object.__setattr__(made, _RAW, value)  # classes with validation of their own refuse others
    return made


@lru_cache(maxsize=1024)
def _maker(cls: type) -> Callable[[dict[str, Any]], Any]:
    """Makes a value without the checks of the class: servers send objects that do not pass them."""
    construct = getattr(cls, "model_construct", None)
    if construct is not None:
        return lambda given: construct(**given)
    module: Any = sys.modules[_generated(cls).__module__]
    lenient = _lenient(module.Configuration)
    return lambda given: cls(**given, local_vars_configuration=lenient)


@lru_cache(maxsize=8)
def _lenient(configuration: Any) -> Any:
    made = configuration()
    made.client_side_validation = False
    return made


# ---- to JSON


def _written(value: Any) -> Obj:
    raw: Obj = vars(value).get(_RAW) or {}
    cls: type = type(value)
    fields = _fields(cls)
    known = {field.name for field in fields}
    made = {name: piece for name, piece in raw.items() if name not in known}
    for attribute, name, read in fields:
        now, before = getattr(value, attribute), raw.get(name)
        if now is None:
            if before is None and name in raw:
                made[name] = None
            continue
        try:
            made[name] = _in_json(now, name, before, read)
        except _Misfit as misfit:
            raise misfit.below(f".{name}") from None
    return made


def _in_json(now: Any, name: str, before: Any, read: Reader) -> Any:
    """A value as JSON, in the form that it had before if it is the same."""
    if type(now) in _SCALARS or _has_models(now):
        return _plainly(now, name)
    if before is not None:
        try:
            if read(before) == now:
                return before
        except _Misfit:
            pass
    return _plainly(now, name)


def _has_models(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_models, value))
    if isinstance(value, dict):
        return any(map(_has_models, value.values()))
    return is_model(value)


def _plainly(value: Any, name: str) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, list | tuple):
        return [_step(each, name, f"[{index}]") for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(key): _step(each, name, f"[{key}]") for key, each in value.items()}
    if isinstance(value, dt.datetime):
        return _time(value, name)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode("ascii", "strict") if value.isascii() else _refuse(value)
    return _written(value) if is_model(value) else _refuse(value)


def _step(value: Any, name: str, step: str) -> Any:
    try:
        return _plainly(value, name)
    except _Misfit as misfit:
        raise misfit.below(step) from None


def _refuse(value: object) -> Any:
    raise _Misfit(f"{value!r:.60} is a {type(value).__name__}, which JSON has no form for")


def _time(value: dt.datetime, name: str) -> str:
    if value.tzinfo is None:
        raise _Misfit(f"{value} has no time zone")
    precision = "microseconds" if name in _MICRO else "seconds"
    return value.astimezone(dt.UTC).isoformat(timespec=precision).replace("+00:00", "Z")


# ---- the kinds that the classes of kubernetes_asyncio stand for, by the names of the classes -----
# A class says its version and its kind, `V1CronJob`, but neither its API group nor its plural.

_NAME: Final = re.compile(r"(?P<prefix>\D*?)(?P<version>V\d+((alpha|beta)\d+)?)(?P<kind>[A-Z]\w*)")
_PREFIXES: Final = {("Events", "Event"): "events.k8s.io"}
"""The group of a class with a prefix, where other groups have a kind of the same name."""
_NAMESPACED: Final = {
    "": "Binding ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate "
    "ReplicationController ResourceQuota Secret Service ServiceAccount",
    "apps": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "authentication.k8s.io": "TokenRequest",
    "authorization.k8s.io": "LocalSubjectAccessReview",
    "autoscaling": "HorizontalPodAutoscaler Scale",
    "batch": "CronJob Job",
    "certificates.k8s.io": "PodCertificateRequest",
    "coordination.k8s.io": "Lease LeaseCandidate",
    "discovery.k8s.io": "EndpointSlice",
    "networking.k8s.io": "Ingress NetworkPolicy",
    "policy": "Eviction PodDisruptionBudget",
    "rbac.authorization.k8s.io": "Role RoleBinding",
    "resource.k8s.io": "ResourceClaim ResourceClaimTemplate",
    "scheduling.k8s.io": "PodGroup Workload",
    "storage.k8s.io": "CSIStorageCapacity",
}
_CLUSTER: Final = {
    "": "ComponentStatus Namespace Node PersistentVolume",
    "admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding "
    "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding "
    "ValidatingWebhookConfiguration",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "authentication.k8s.io": "SelfSubjectReview TokenReview",
    "authorization.k8s.io": "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "internal.apiserver.k8s.io": "StorageVersion",
    "networking.k8s.io": "IPAddress IngressClass ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding",
    "resource.k8s.io": "DeviceClass DeviceTaintRule ResourcePoolStatusRequest ResourceSlice",
    "scheduling.k8s.io": "PriorityClass",
    "storage.k8s.io": "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass",
    "storagemigration.k8s.io": "StorageVersionMigration",
}


def _groups() -> dict[str, tuple[str, bool]]:
    return {
        kind: (group, namespaced)
        for kinds, namespaced in ((_NAMESPACED, True), (_CLUSTER, False))
        for group, names in kinds.items()
        for kind in names.split()
    }


_GROUPS: Final = _groups()


@lru_cache(maxsize=256)
def resource_named(name: str) -> Resource | None:
    """The kind that a class of this name stands for; None for pieces of objects, and lists.

    Args:
        name: for example `V1CronJob`, or `EventsV1Event`.
    """
    parts = _NAME.fullmatch(name)
    if parts is None or parts["kind"] not in _GROUPS:
        return None
    kind = parts["kind"]
    group, namespaced = _GROUPS[kind]
    group = _PREFIXES.get((parts["prefix"], kind), group)
    return Resource(group, parts["version"].lower(), _plural(kind), kind, namespaced)


def _plural(kind: str) -> str:
    """The plural as Kubernetes forms it."""
    name = kind.lower()
    if name == "endpoints":
        return name
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}{'es' if name.endswith('s') else 's'}"
