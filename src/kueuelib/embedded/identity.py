"""The metadata that only the server writes: name, UID, times, generation."""

from __future__ import annotations

import secrets
import uuid

from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded.builtins.raw import keep
from kueuelib.embedded.registry.kind import Kind, Version

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
NAME_LIMIT = 63
SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_NOT_WISH = frozenset(("apiVersion", "kind", "metadata", "status"))
_NOT_CONTENT = frozenset(("apiVersion", "kind", "metadata"))


def generate_name(prefix: str) -> str:
    """A name with a random suffix, at most as long as a label value."""
    prefix = prefix[: NAME_LIMIT - SUFFIX_LENGTH]
    return prefix + "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))


def begin(kind: Kind, obj: Obj, now: float) -> None:
    """Gives a new object its identity; values from the client are dropped."""
    meta = obj["metadata"]
    for key in (*SERVER_FIELDS, "resourceVersion", "selfLink"):
        meta.pop(key, None)
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = format_time(now)
    if kind.generation or not kind.builtin:
        meta["generation"] = 1


def carry_over(new: Obj, old: Obj) -> None:
    """Keeps the identity of an object that is being changed."""
    meta, before = new["metadata"], old["metadata"]
    meta.pop("selfLink", None)
    keep(meta, before, *SERVER_FIELDS, "name", "namespace")
    meta["resourceVersion"] = before["resourceVersion"]


def count_generation(kind: Kind, version: Version, new: Obj, old: Obj) -> None:
    """Increases the generation if the desired state (not metadata or status) has changed."""
    if kind.builtin and (not kind.generation or kind.kind == "PriorityClass"):
        return
    ignored = _NOT_WISH if version.status else _NOT_CONTENT
    keys = (new.keys() | old.keys()) - ignored
    relabelled = kind.kind == "EndpointSlice" and (
        new["metadata"].get("labels") != old["metadata"].get("labels")
    )
    if relabelled or any(new.get(key) != old.get(key) for key in keys):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def same_content(new: Obj, old: Obj) -> bool:
    """Whether a write would only change the author and time of fields."""
    if new.keys() != old.keys():
        return False
    for key, value in new.items():
        if key == "metadata":
            continue
        if value != old[key]:
            return False
    return _meta(new) == _meta(old)


def _meta(obj: Obj) -> Obj:
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    if "managedFields" in meta:
        meta["managedFields"] = [
            {key: value for key, value in entry.items() if key != "time"}
            for entry in meta["managedFields"]
        ]
    return meta
