"""The two interfaces that give built-in kinds their behaviour.

`KindRules` is the strategy of one kind: defaults, fields that a client may not set, validation.
`AdmissionPlugin` applies to several kinds and may read other objects (LimitRange, PriorityClass,
namespace life cycle). Both are synchronous: they decide and never wait.

The order of one write is that of kube-apiserver: `default` (on decoding), `AdmissionPlugin.admit`,
mutating webhooks (then `default` again), `prepare_*`, `validate_*`, `AdmissionPlugin.validate`,
validating webhooks. Objects handed to these methods are private copies and are changed in place;
`old` and the objects of a `StoreReader` must not be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import attrs

from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import FieldError, Forbidden


class Operation(StrEnum):
    """The operation on an object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


@attrs.frozen
class UserInfo:
    """The caller of a request.

    Attributes:
        user: the name, for example `kubernetes-admin`.
        uid: empty if the authentication method has none.
        groups: for example `system:masters`.
        extra: further attributes, each with a list of values.
        agent: the `User-Agent`, up to the first slash the default field manager.
    """

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    agent: str = ""


SYSTEM = UserInfo("system:apiserver", groups=("system:masters",), agent="kueuelib-apiserver")
"""The server itself."""


class StoreReader(Protocol):
    """Reads objects as they are stored."""

    def get(self, resource: Resource, key: ObjectKey) -> Obj | None:
        """The object, or None."""

    def items(self, resource: Resource, namespace: str = "") -> Iterator[Obj]:
        """All objects of the kind, or of one namespace, in the order of their keys."""


@attrs.define
class AdmissionAttributes:
    """One write on its way to the store.

    Attributes:
        operation: the operation.
        resource: the kind at the version of the request.
        subresource: for example `status`; empty for the object itself.
        key: namespace and name; the name is empty while `generateName` was not resolved.
        obj: the new object, which may be changed in place; None for deletions. Those of some
            subresources have a kind of their own, for example `Scale`.
        old: the stored object; None for creations.
        caller: the caller.
        dry_run: whether nothing will be stored.
        now: seconds since the epoch.
        options: the CreateOptions, UpdateOptions or DeleteOptions; empty to connect.
        warnings: texts for the client, one `Warning` header each.
    """

    operation: Operation
    resource: Resource
    subresource: str
    key: ObjectKey
    obj: Obj | None
    old: Obj | None
    caller: UserInfo
    dry_run: bool
    now: float
    options: Mapping[str, Any] = attrs.field(factory=dict)
    warnings: list[str] = attrs.field(factory=list)

    def refuse(self, why: str) -> Forbidden:
        """The exception with which a plug-in refuses the request."""
        resource = self.resource
        plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        meta = (self.obj or self.old or {}).get("metadata") or {}
        name = self.key.name or meta.get("name") or meta.get("generateName") or ""
        details = {"name": name, "kind": resource.plural}
        if resource.group:
            details["group"] = resource.group
        return Forbidden(f'{plural} "{name}" is forbidden: {why}', details=details)

    @property
    def foreign(self) -> bool:
        """Whether the object has another kind than the resource."""
        about = self.obj or {}
        own = (self.resource.api_version, self.resource.kind)
        return bool(self.subresource) and (about.get("apiVersion"), about.get("kind")) != own

    @property
    def new(self) -> Obj:
        """The new object; not for deletions."""
        assert self.obj is not None
        return self.obj


class KindRules:
    """The strategy of one built-in kind; every method is optional.

    `subresource` is empty, `status`, or the name of another subresource that stores the object.
    """

    graceful: ClassVar[bool] = False
    """Whether objects have a grace period, which their deletion writes down."""

    def default(self, obj: Obj) -> None:
        """Fills in optional fields; called for every decoded object of the kind."""

    def prepare_create(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Resets fields that a client may not set at creation, for example the status."""

    def prepare_update(self, obj: Obj, old: Obj, request: AdmissionAttributes) -> None:
        """Resets further fields that a client may not change with this (sub)resource.

        The server itself keeps the status of `old` without a subresource. With `status` it keeps
        everything except status, labels and annotations. It always keeps system metadata.
        """

    def validate_create(self, obj: Obj) -> Sequence[FieldError]:
        """The broken rules of a new object; its metadata has been checked."""
        del obj
        return ()

    def validate_update(self, obj: Obj, old: Obj, subresource: str) -> Sequence[FieldError]:
        """The broken rules of a changed object, including those for new objects and immutable
        fields.
        """
        del old
        return () if subresource == "status" else self.validate_create(obj)

    def grace_period(self, obj: Obj, asked: int | None) -> int:
        """Seconds between the request to delete and the deletion; 0 deletes at once.

        Args:
            obj: the stored object.
            asked: `gracePeriodSeconds` of the request, None if it has none.
        """
        del obj, asked
        return 0

    def prepare_delete(self, obj: Obj, request: AdmissionAttributes) -> None:
        """Changes an object whose deletionTimestamp is being set; it stays for its finalizers."""

    def warnings(self, obj: Obj, old: Obj | None) -> Sequence[str]:
        """Warnings for the client; `old` is None at creation."""
        del obj, old
        return ()


class AdmissionPlugin:
    """A rule across kinds; all methods are optional.

    Attributes:
        name: shown in messages and logs.
        resources: the kinds that it applies to.
        operations: the operations that it applies to.
    """

    name: str = ""
    resources: tuple[Resource, ...] = ()
    operations: tuple[Operation, ...] = (Operation.CREATE,)

    def handles(self, request: AdmissionAttributes) -> bool:
        """Whether to call the other methods for the request."""
        return (
            request.operation in self.operations
            and not request.subresource
            and any(each.group_kind == request.resource.group_kind for each in self.resources)
        )

    def admit(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """May change `request.obj`; runs before the mutating webhooks.

        Raises:
            ApiError: the request is refused, usually `Forbidden`.
        """

    def validate(self, request: AdmissionAttributes, reader: StoreReader) -> None:
        """May refuse; runs before the validating webhooks.

        Raises:
            ApiError: the request is refused, usually `Forbidden`.
        """
