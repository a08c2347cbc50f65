"""The desired children of an object, and who owns which field of it.

Pure functions of raw objects, and one memory without a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import attrs
import orjson

from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    Resource,
    controller_of,
    group_kind_of,
    key_of,
    labels_of,
    owner_reference,
)
from kueuelib.errors import ConfigError

# ---- the owners of fields in `metadata.managedFields`, when a program takes over from another ----
# An applied field vanishes when its manager no longer names it, and a field that was written by a
# create, an update or a patch does not. So what an earlier program wrote has to become what this
# one applied, as `csaupgrade` of client-go does.


def taken_over(obj: Mapping[str, Any], managers: Collection[str], by: str) -> list[Obj] | None:
    """The `managedFields` of an object in which one manager has applied what others wrote.

    Args:
        obj: the object as the server returned it.
        managers: those whose fields are taken over. Fields that they applied, wrote in another
            version of the API or through a subresource remain theirs.
        by: the manager that takes over.

    Returns:
        None if none of them owns such a field.
    """
    version = obj.get("apiVersion")
    entries: list[Obj] = obj["metadata"].get("managedFields") or []
    taken = [
        each for each in entries if each.get("manager") in managers and _is(each, "Update", version)
    ]
    if not taken:
        return None
    rest = [each for each in entries if each not in taken]
    own = next(
        (each for each in rest if each.get("manager") == by and _is(each, "Apply", version)), None
    )
    fields: Obj = {}
    for each in [own, *taken] if own else taken:
        fields = _union(fields, each.get("fieldsV1") or {})
    made = {**(own or taken[-1]), "manager": by, "operation": "Apply", "fieldsV1": fields}
    return [*(each for each in rest if each is not own), made]


def _is(entry: Obj, operation: str, version: object) -> bool:
    """Whether an entry is of such writes of the object itself, in this version of the API."""
    whose = (entry.get("operation"), entry.get("apiVersion"), entry.get("subresource", ""))
    return whose == (operation, version, "")


def _union(one: Obj, other: Obj) -> Obj:
    """The union of two sets of fields: each key names a field, an item of a list, or a value."""
    made = dict(one)
    for name, inner in other.items():
        made[name] = _union(made.get(name) or {}, inner or {})
    return made


# --------------------------------------------------------------------------------------------------

MANAGED_BY = "app.kubernetes.io/managed-by"
"""The label by which an operator watches its children."""
OWNER_INDEX = "owner"
"""The name of the index by `owners_of`."""
_SERVER_SIDE = frozenset({"managedFields", "resourceVersion", "generation"})
_HOLDER = "/teardown"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def owners_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """The index function of `OWNER_INDEX`: the UIDs of all owners."""
    return tuple(ref["uid"] for ref in obj["metadata"].get("ownerReferences") or ())


@attrs.frozen
class OfOwner:
    """An index function: each value of another one, together with the UID of each owner."""

    function: Callable[[Obj], Iterable[Hashable]]

    def __call__(self, obj: Obj) -> Iterator[tuple[str, Hashable]]:
        """Pairs of UID and value."""
        for uid in owners_of(obj):
            for value in self.function(obj):
                yield uid, value


def owned_child(child: Obj, resource: Resource, owner: Obj, owner_kind: Resource, by: str) -> Obj:
    """A child in the form that is applied: with namespace, controller reference and label; a new
    dict.

    Args:
        child: the fields that the operator wants.
        resource: the kind of the child.
        owner: the object as the server returned it.
        owner_kind: the kind of the owner.
        by: the name of the operator.

    Raises:
        ConfigError: the owner cannot own it, because it is cluster-scoped or in another namespace.
    """
    placed = placed_child(child, resource, owner)
    meta = placed["metadata"]
    here = owner["metadata"].get("namespace", "")
    if owner_kind.namespaced and meta.get("namespace", "") != here:
        where = f"in namespace {meta['namespace']!r}" if resource.namespaced else "cluster-scoped"
        raise ConfigError(
            f"{resource.kind} {meta['name']}",
            f"is {where}, so {owner_kind.kind} {here}/{owner['metadata']['name']} cannot own it",
            "use writes= and delete it in a teardown function, or make the owner cluster-scoped",
        )
    references = [*meta.get("ownerReferences", ()), owner_reference(owner)]
    meta |= {"ownerReferences": references, "labels": {**labels_of(placed), MANAGED_BY: by}}
    return placed


def placed_child(child: Obj, resource: Resource, owner: Obj) -> Obj:
    """A child with the namespace of its owner unless it names one; a new dict.

    Raises:
        ConfigError: it has no name, or needs a namespace that the owner does not have.
    """
    meta = dict(child.get("metadata") or {})
    if not meta.get("name"):
        raise ConfigError(resource.kind, "has no metadata.name", "name every child")
    if resource.namespaced and not meta.get("namespace"):
        here = owner["metadata"].get("namespace")
        if not here:
            raise ConfigError(
                f"{resource.kind} {meta['name']}",
                "has no metadata.namespace, and its owner is cluster-scoped",
                "name the namespace of the child",
            )
        meta["namespace"] = here
    return {**child, "metadata": meta}


def is_left_over(present: Mapping[str, Any], owner: Obj) -> bool:
    """Whether it is the child of an earlier object with the name of the owner.

    The garbage collector will delete it.
    """
    controller = controller_of(present)
    return (
        controller is not None
        and owner["metadata"]["uid"] not in owners_of(present)
        and controller["name"] == owner["metadata"]["name"]
        and group_kind_of(controller) == group_kind_of(owner)
    )


def is_absent(present: Mapping[str, Any], owner: Obj, *, others: bool) -> bool:
    """Whether an object of a kind of children counts as absent for an owner.

    Args:
        present: the object.
        owner: possibly a new object with the name of an earlier one, whose child still exists.
        others: whether objects that do not belong to the owner count as present.
    """
    own = owner["metadata"]["uid"] in owners_of(present)
    return not own and (not others or is_left_over(present, owner))


def controller_key(obj: Obj, owner: Resource) -> ObjectKey | None:
    """The key of an object's controller when it is of kind `owner`, whatever its version."""
    ref = controller_of(obj)
    if ref is None or group_kind_of(ref) != owner.group_kind:
        return None
    namespace = (obj["metadata"].get("namespace") or "") if owner.namespaced else ""
    return ObjectKey(namespace, ref["name"])


def claim_problem(
    present: Mapping[str, Any], owner: Obj, by: str, *, adopt: bool
) -> tuple[str, str] | None:
    """Why an existing object may not be applied as a child, with the fix; None if it may.

    Args:
        present: the object.
        owner: the intended owner.
        by: the operator that applies it.
        adopt: whether it may be taken over if nothing controls it.
    """
    if owner["metadata"]["uid"] in owners_of(present):
        other = labels_of(present).get(MANAGED_BY, by)
        if other == by or adopt:
            return None
        problem = f"is managed by {other!r} for the same {owner['kind']}"
        return problem, f"stop {other!r} and apply it with adopt=True, or choose another name"
    problem = f"exists and does not belong to {owner['kind']} {key_of(owner)}"
    if controller := controller_of(present):
        return (
            problem,
            f"it belongs to {controller['kind']} {controller['name']}: choose another name",
        )
    return (
        None if adopt else (problem, "delete it, choose another name, or apply it with adopt=True")
    )


class Applied:
    """Remembers the last applies and their results: an equal apply of an equal object is skipped.

    It costs 32 bytes per child and ends with the process; the first apply after a restart is sent.

    Args:
        metadata_only: kinds of which the cache only has metadata. Their objects count as changed if
            their resource version has changed.
    """

    def __init__(self, metadata_only: Collection[object] = ()) -> None:
        self._metadata_only = metadata_only
        self._known: dict[tuple[tuple[str, str], ObjectKey], tuple[bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def holds(self, resource: Resource, wanted: Obj, present: Obj) -> bool:
        """Whether `wanted` was applied, and the object has not changed outside its status since."""
        known = self._known.get((resource.group_kind, key_of(wanted)))
        return known is not None and known == (_digest(wanted), self._print(resource, present))

    def note(self, resource: Resource, wanted: Obj, answer: Obj) -> None:
        """Remember the answer to an apply."""
        key = (resource.group_kind, key_of(wanted))
        self._known[key] = (_digest(wanted), self._print(resource, answer))

    def forget(self, resource: Resource, key: ObjectKey) -> None:
        """Forget a deleted child."""
        self._known.pop((resource.group_kind, key), None)

    def _print(self, resource: Resource, obj: Obj) -> bytes:
        if resource in self._metadata_only:
            meta = obj["metadata"]
            return f"{meta['uid']} {meta['resourceVersion']}".encode()
        return fingerprint(obj)


def fingerprint(obj: Mapping[str, Any]) -> bytes:
    """Equal for two states of an object that differ in status and bookkeeping only."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_SIDE}
    if annotations := meta.pop("annotations", None):
        kept = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
        if kept:
            meta["annotations"] = kept
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    return _digest({**rest, "metadata": meta})


def _digest(value: Any) -> bytes:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return blake2b(text, digest_size=16).digest()


def has_finalizer(obj: Mapping[str, Any], name: str) -> bool:
    """Whether an object has a finalizer."""
    return name in (obj["metadata"].get("finalizers") or ())


def hold(resource: Resource, obj: Obj, finalizer: str = "") -> Obj:
    """What an operator applies as `holder_of`, so that its teardown holds an object by a finalizer.

    Without the finalizer it gives the object up. The API server keeps a finalizer for as long as
    one of the managers that applied it does. The UID protects later objects of the same name, and
    keeps the server from creating one.

    Args:
        resource: the kind.
        obj: the object.
        finalizer: empty to give it up.
    """
    meta = obj["metadata"]
    body = resource.new(*reversed(key_of(obj)))
    body["metadata"]["uid"] = meta["uid"]
    if finalizer:
        body["metadata"] |= {"finalizers": [finalizer], "resourceVersion": meta["resourceVersion"]}
    return body


def holder_of(operator: str) -> str:
    """The field manager under which the teardowns of an operator hold objects."""
    return f"{operator}{_HOLDER}"


def holders(obj: Mapping[str, Any], finalizer: str) -> list[str]:
    """The operators whose teardowns hold an object by a finalizer, as its `managedFields` say."""
    operators = []
    for entry in obj["metadata"].get("managedFields") or ():
        manager, operation = entry.get("manager", ""), entry.get("operation")
        fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:finalizers") or {}
        if operation == "Apply" and manager.endswith(_HOLDER) and f'v:"{finalizer}"' in fields:
            operators.append(manager.removesuffix(_HOLDER))
    return operators
