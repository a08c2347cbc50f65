"""What every Kubernetes object has: identity, metadata, conditions, times.

Raw JSON is `Obj`. Typed values are frozen attrs classes; `kueuelib.api.codec` goes between the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import attrs

from kueuelib.api.patterns import QUALIFIED
from kueuelib.api.struct import NOTHING, Struct, Time, frozen, wire
from kueuelib.errors import ConfigError

Obj = dict[str, Any]
"""An object as the API server sends it. Never change an object from a store in place."""

PARTIAL = "PartialObjectMetadata"
"""The kind under which a server sends the metadata of an object."""


class ObjectKey(NamedTuple):
    """The name of an object within its kind; `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@frozen
class Resource:
    """One kind at one version, with everything that a URL needs.

    Attributes:
        group: empty for the core group.
        version: for example `v1`.
        plural: for example `workloads`.
        kind: for example `Workload`.
        namespaced: whether objects live in namespaces.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_kind(self) -> tuple[str, str]:
        """What identifies the kind whatever its version."""
        return self.group, self.kind

    def new(
        self,
        name: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] = NOTHING,
        annotations: Mapping[str, str] = NOTHING,
        **fields: Any,
    ) -> Obj:
        """A raw object of this kind.

        Args:
            name: of the object.
            namespace: empty for cluster-scoped kinds, or to be filled in later.
            labels: of the object.
            annotations: of the object.
            fields: the rest of the object, for example `data` or `spec`.
        """
        meta: Obj = {"name": name}
        if namespace:
            meta["namespace"] = namespace
        if labels:
            meta["labels"] = dict(labels)
        if annotations:
            meta["annotations"] = dict(annotations)
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": meta, **fields}

    def at(self, version: str) -> Resource:
        """The same kind at another version."""
        return self if version == self.version else attrs.evolve(self, version=version)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, the object or its subresource."""
        parts = ["/apis" if self.group else "/api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def key_of(obj: Mapping[str, Any]) -> ObjectKey:
    """The key of a raw object.

    Raises:
        ConfigError: it is not one, for example a model.
    """
    try:
        meta = obj["metadata"]
    except TypeError:
        raise _not_raw(obj) from None
    return ObjectKey(meta.get("namespace") or "", meta["name"])


def _not_raw(given: object) -> ConfigError:
    return ConfigError(f"a {type(given).__name__}", "is not raw JSON", "encode() it first")


LATEST = 253_402_300_799
"""The last second that RFC 3339 can express, in the year 9999; later times count as this one."""


def copied(value: Any) -> Any:
    """A copy of JSON that shares no object or list with it; a quarter of `deepcopy`."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copied(inner) for inner in value]
    return value


def format_time(now: float) -> str:
    """RFC 3339 with whole seconds, as `metav1.Time`; `now` in seconds since the epoch."""
    return _format_second(min(int(now), LATEST))


@lru_cache(maxsize=64)  # one step of a Workload writes the same time several times
def _format_second(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(now: float) -> str:
    """RFC 3339 with exactly six digits, as `metav1.MicroTime`."""
    return datetime.fromtimestamp(min(now, LATEST), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@lru_cache(maxsize=64)
def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 text.

    Raises:
        ValueError: the text is not a time, or names no zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of a raw object, never None."""
    try:
        return obj.get("metadata", {}).get("labels") or {}
    except AttributeError:
        raise _not_raw(obj) from None


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of a raw object, never None."""
    return obj.get("metadata", {}).get("annotations") or {}


def with_label(obj: Obj, name: str, text: str) -> Obj:
    """A raw object that also has this label; the rest is shared."""
    return {**obj, "metadata": {**obj["metadata"], "labels": {**labels_of(obj), name: text}}}


def group_kind_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """The API group and the kind that a raw object or an owner reference names, in any version."""
    return str(obj.get("apiVersion", "")).rpartition("/")[0], obj.get("kind", "")


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference with `controller: true`, or None."""
    for ref in obj.get("metadata", {}).get("ownerReferences") or ():
        if ref.get("controller"):
            return ref  # type: ignore[no-any-return]
    return None


def owner_reference(owner: Mapping[str, Any], *, controller: bool = True) -> Obj:
    """The entry of `metadata.ownerReferences` that names a raw object.

    Args:
        owner: the object as the server returned it, with its UID.
        controller: whether the owner manages the child.
    """
    try:
        meta = owner["metadata"]
    except TypeError:
        raise _not_raw(owner) from None
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": controller,
        "blockOwnerDeletion": controller,
    }


def find_condition(conditions: Iterable[Mapping[str, Any]] | None, type: str) -> Mapping[str, Any]:
    """The raw condition of that type, or an empty mapping."""
    for condition in conditions or ():
        if condition.get("type") == type:
            return condition
    return {}


def is_true(obj: Mapping[str, Any] | KubeObject, type: str) -> bool:
    """Whether an object, raw or typed, has the condition with status True."""
    if isinstance(obj, KubeObject):
        status: Any = getattr(obj, "status", None)
        stated = getattr(status, "conditions", ())
        return True in [each.is_true for each in stated if each.type == type]
    try:
        conditions = (obj.get("status") or {}).get("conditions")
    except AttributeError:
        raise _not_raw(obj) from None
    return bool(find_condition(conditions, type).get("status") == "True")


@frozen
class OwnerReference(Struct):
    """The owner of an object."""

    api_version: str = attrs.field(default="", metadata=wire(required=True))
    kind: str = attrs.field(default="", metadata=wire(required=True))
    name: str = attrs.field(default="", metadata=wire(required=True))
    uid: str = attrs.field(default="", metadata=wire(required=True))
    controller: bool = False
    block_owner_deletion: bool = False


@frozen
class ObjectMeta(Struct):
    """The metadata that every object has.

    Times are seconds since the epoch.
    """

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = NOTHING
    annotations: Mapping[str, str] = NOTHING
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with `controller: true`, or None."""
        return next((ref for ref in self.owner_references if ref.controller), None)


@frozen
class KubeObject(Struct):
    """An object with metadata; subclasses name their `resource`."""

    resource: ClassVar[Resource]
    definition: ClassVar[Any] = None
    """The arguments of `kueuelib.api.definitions.crd`."""

    metadata: ObjectMeta = attrs.field(factory=ObjectMeta)

    @classmethod
    def new(cls, name: str, namespace: str = "", **fields: Any) -> Self:
        """An object of this kind.

        Args:
            name: of the object.
            namespace: empty for cluster-scoped kinds.
            fields: the other fields of the class, for example `spec`.
        """
        return cls(metadata=ObjectMeta(name=name, namespace=namespace), **fields)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.metadata.namespace, self.metadata.name)

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace of the object, empty when it is cluster-scoped."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """The unique identifier that the API server assigned."""
        return self.metadata.uid


@frozen
class Condition(Struct):
    """One observation about an object (`metav1.Condition`).

    Attributes:
        type: what is observed, for example `Admitted`.
        status: one of True, False and Unknown.
        reason: a word in CamelCase for programs.
        message: a sentence for people.
        last_transition_time: when the status changed last.
        observed_generation: the generation of the observed object.
    """

    type: str = attrs.field(
        metadata=wire(required=True, always=True, **{**QUALIFIED, "maxLength": 316})
    )
    status: str = attrs.field(
        metadata=wire(required=True, always=True, enum=["True", "False", "Unknown"])
    )
    reason: str = attrs.field(
        default="",
        metadata=wire(
            required=True,
            always=True,
            minLength=1,
            maxLength=1024,
            pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    )
    message: str = attrs.field(
        default="", metadata=wire(required=True, always=True, maxLength=32768)
    )
    last_transition_time: Time = attrs.field(default=0.0, metadata=wire(required=True, always=True))
    observed_generation: int | None = attrs.field(
        default=None, metadata=wire(minimum=0, format="int64")
    )

    @property
    def is_true(self) -> bool:
        """Whether the status is True."""
        return self.status == "True"


@frozen
class ConditionedStatus(Struct):
    """The base of a status with conditions.

    Attributes:
        observed_generation: the generation of the object that the status is about.
        conditions: what holds, each by type.
    """

    observed_generation: int = attrs.field(default=0, metadata=wire(format="int64"))
    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=wire(keys=("type",)))


@frozen
class LabelSelectorRequirement(Struct):
    """One expression of a label selector.

    Attributes:
        key: the label key.
        operator: one of In, NotIn, Exists and DoesNotExist.
        values: what In and NotIn compare with.
    """

    key: str = attrs.field(metadata=wire(required=True))
    operator: str = attrs.field(metadata=wire(required=True))
    values: tuple[str, ...] = attrs.field(default=(), metadata=wire(kind="atomic"))


@frozen
class LabelSelector(Struct):
    """Which labels match; an empty selector matches everything, None matches nothing.

    Attributes:
        match_labels: pairs of key and value that must all be there.
        match_expressions: requirements that must all hold.
    """

    match_labels: Mapping[str, str] = NOTHING
    match_expressions: tuple[LabelSelectorRequirement, ...] = attrs.field(
        default=(), metadata=wire(kind="atomic")
    )


# ---- pure helpers on tuples of conditions --------------------------------------------------------

CONDITION_MESSAGE_LIMIT = 32 * 1024
"""Bytes of a condition's message."""


_CUT = " ..."


def find(conditions: Iterable[Condition], type: str) -> Condition | None:
    """The condition of that type, or None."""
    for condition in conditions:
        if condition.type == type:
            return condition
    return None


def with_raw_condition(
    conditions: Iterable[Mapping[str, Any]],
    type: str,
    status: bool | None,
    reason: str,
    message: str = "",
    *,
    now: float,
    generation: int | None = None,
) -> list[Obj]:
    """The raw conditions with one set; none of the arguments is changed.

    The transition time becomes `now` only when the status changes; a long message is cut.

    Args:
        conditions: the raw conditions of an object.
        type: what is observed, for example `Ready`.
        status: None stands for Unknown.
        reason: a word in CamelCase for programs.
        message: a sentence for people.
        now: seconds since the epoch.
        generation: of the observed object.
    """
    updated = [dict(each) for each in conditions]
    old: Obj = {}
    place = len(updated)
    for index, each in enumerate(updated):
        if each.get("type") == type:
            old, place = each, index
            break
    new = raw_condition(old, type, status, reason, message, now=now, generation=generation)
    updated[place : place + 1] = [new]
    return updated


def raw_condition(
    old: Mapping[str, Any],
    type: str,
    status: bool | None,
    reason: str,
    message: str = "",
    *,
    now: float,
    generation: int | None = None,
) -> Obj:
    """The raw condition that replaces another one of its type; see `with_raw_condition`.

    Args:
        old: the present condition; empty if there is none.
        type: what is observed.
        status: None stands for Unknown.
        reason: a word in CamelCase for programs.
        message: a sentence for people.
        now: seconds since the epoch.
        generation: of the observed object.
    """
    said = "Unknown" if status is None else str(status)
    kept = old.get("lastTransitionTime") if old.get("status") == said else None
    new: Obj = {
        "type": type,
        "status": said,
        "reason": reason,
        "message": truncate_message(message),
        "lastTransitionTime": kept or format_time(now),
    }
    if generation is not None:
        new["observedGeneration"] = generation
    return new


def truncate_message(message: str, limit: int = CONDITION_MESSAGE_LIMIT) -> str:
    """The message, cut to `limit` bytes of UTF-8 and then ending in ` ...`."""
    if len(message) * 4 <= limit:
        return message
    raw = message.encode()
    if len(raw) <= limit:
        return message
    return raw[: limit - len(_CUT)].decode(errors="ignore") + _CUT


def since(conditions: Iterable[Condition], type: str) -> float | None:
    """Since when a condition is True, in seconds since the epoch; None if it is not True."""
    condition = find(conditions, type)
    return condition.last_transition_time if condition is not None and condition.is_true else None


def check_condition(type: str, status: Any, reason: str) -> None:
    """Check what an author gives for a condition, before a server refuses it.

    Raises:
        ConfigError: the server would not accept one of them; the message names it.
    """
    subject = f"condition({type!r}, {status!r}, {reason!r})"
    if status is not None and not isinstance(status, bool):
        problem = f"the status {status!r} is not valid"
        raise ConfigError(subject, problem, "give True, False, or None for Unknown")
    _check_word(subject, "type", type, "Ready")
    check_reason(subject, reason)


def check_reason(subject: str, reason: str) -> None:
    """Check the reason of a condition or an event.

    Raises:
        ConfigError: it is not a word; the message names it.
    """
    _check_word(subject, "reason", reason, "PodsRunning")


def _check_word(subject: str, name: str, value: Any, example: str) -> None:
    schema = attrs.fields_dict(Condition)[name].metadata["wire"].schema
    if (
        not isinstance(value, str)
        or not re.fullmatch(schema["pattern"], value)
        or len(value) > schema["maxLength"]
    ):
        problem = f"the {name} {value!r} is not valid"
        raise ConfigError(subject, problem, f"give a word in CamelCase, such as {example}")
