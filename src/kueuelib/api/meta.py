"""What every Kubernetes object has: identity, metadata, conditions, times.

Raw JSON is `Obj`. Typed values are frozen attrs classes; see `kueuelib.api.codec` for the way between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import attrs

Obj = dict[str, Any]
"""An object as the API server sends it. Objects that come out of a store are never changed in place."""


class ObjectKey(NamedTuple):
    """The name of an object within its kind; `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@attrs.frozen
class Resource:
    """One kind at one version, with all that a URL needs.

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

    def at(self, version: str) -> Resource:
        """The same kind at another version."""
        return attrs.evolve(self, version=version)

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
    """The key of a raw object."""
    meta = obj["metadata"]
    return ObjectKey(meta.get("namespace") or "", meta["name"])


def format_time(now: float) -> str:
    """RFC 3339 with whole seconds, as `metav1.Time`; `now` in seconds since the epoch."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(now: float) -> str:
    """RFC 3339 with exactly six digits, as `metav1.MicroTime`."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 text.

    Raises:
        ValueError: the text is no time.
    """
    return datetime.fromisoformat(text).timestamp()


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of a raw object, never None."""
    return obj.get("metadata", {}).get("labels") or {}


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of a raw object, never None."""
    return obj.get("metadata", {}).get("annotations") or {}


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference with `controller: true`, or None."""
    for ref in obj.get("metadata", {}).get("ownerReferences") or ():
        if ref.get("controller"):
            return ref  # type: ignore[no-any-return]
    return None


def find_condition(conditions: Iterable[Mapping[str, Any]] | None, type: str) -> Mapping[str, Any]:
    """The raw condition of that type, or an empty mapping."""
    for found in conditions or ():
        if found.get("type") == type:
            return found
    return {}


def is_true(obj: Mapping[str, Any], type: str) -> bool:
    """Whether a raw object has the condition with status True."""
    found = find_condition((obj.get("status") or {}).get("conditions"), type)
    return found.get("status") == "True"
