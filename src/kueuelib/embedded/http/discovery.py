"""Discovery of groups, versions and kinds, in the classic and the aggregated form."""

from __future__ import annotations

import base64
import hashlib

from kueuelib.api.meta import Obj
from kueuelib.embedded.access.reviews import GROUPS
from kueuelib.embedded.access.reviews import KINDS as REVIEWS
from kueuelib.embedded.http.aggregation import Aggregation
from kueuelib.embedded.registry.kinds import Kind, KindVersion, Registry, version_rank

FIRST_GROUPS = (
    "apps",
    "events.k8s.io",
    "batch",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
)
_ON_OBJECT = ["get", "patch", "update"]
_EXTRA: dict[str, tuple[tuple[str, str, str, list[str]], ...]] = {
    "pods": (
        ("attach", "", "PodAttachOptions", ["create", "get"]),
        ("binding", "v1", "Binding", ["create"]),
        ("ephemeralcontainers", "", "Pod", _ON_OBJECT),
        ("eviction", "policy/v1", "Eviction", ["create"]),
        ("exec", "", "PodExecOptions", ["create", "get"]),
        ("log", "", "Pod", ["get"]),
        ("portforward", "", "PodPortForwardOptions", ["create", "get"]),
        ("proxy", "", "PodProxyOptions", ["create", "delete", "get", "patch", "update"]),
        ("resize", "", "Pod", _ON_OBJECT),
    ),
    "nodes": (("proxy", "", "NodeProxyOptions", ["create", "delete", "get", "patch", "update"]),),
    "services": (
        ("proxy", "", "ServiceProxyOptions", ["create", "delete", "get", "patch", "update"]),
    ),
    "namespaces": (("finalize", "", "Namespace", ["update"]),),
    "serviceaccounts": (("token", "authentication.k8s.io/v1", "TokenRequest", ["create"]),),
}
"""Further subresources of core kinds: name, apiVersion if it differs, kind and verbs."""


class Discovery:
    """The documents.

    Args:
        registry: the kinds.
        aggregation: the APIs of other servers.
    """

    def __init__(self, registry: Registry, aggregation: Aggregation) -> None:
        self._registry = registry
        self._aggregation = aggregation

    def groups(self) -> list[str]:
        """Every group but the core one."""
        known = list(dict.fromkeys([*self._registry.groups(), *GROUPS]))
        order = {name: place for place, name in enumerate(FIRST_GROUPS)}
        return sorted(known, key=lambda name: (order.get(name, len(order)), name))

    def versions(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        versions = set(self._registry.group_versions(group))
        if group in GROUPS:
            versions.add("v1")
        return sorted(versions, key=version_rank, reverse=True)

    # ---- classic

    def core(self, address: str) -> Obj:
        """`/api`."""
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }

    def group_list(self) -> Obj:
        """`/apis`."""
        groups = [_group(name, self.versions(name)) for name in self.groups()]
        groups += [_group(name, versions) for name, versions in self._others().items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> Obj | None:
        """`/apis/<group>`, None when it is unknown."""
        versions = self.versions(name) if name in self.groups() else self._others().get(name)
        if versions is None:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}

    def _others(self) -> dict[str, list[str]]:
        """The groups that only other servers serve."""
        mine = self.groups()
        by_group = self._aggregation.versions()
        return {name: versions for name, versions in by_group.items() if name not in mine}

    def with_others(self, body: Obj) -> Obj:
        """The aggregated list of this server's own groups, with the APIs of other servers; one that
        has not answered is marked as stale.
        """
        items = []
        for name, versions in self._others().items():
            shown = []
            for version in versions:
                listed = self._aggregation.resources(name, version)
                known = {} if listed is None else {"resources": _aggregated(name, version, listed)}
                freshness = "Stale" if listed is None else "Current"
                shown.append({"version": version, **known, "freshness": freshness})
            items.append({"metadata": {"creationTimestamp": None, "name": name}, "versions": shown})
        return {**body, "items": [*body["items"], *items]} if items else body

    def resource_list(self, group: str, version: str) -> Obj | None:
        """`/api/v1` and `/apis/<group>/<version>`, None when it is unknown."""
        if version not in self.versions(group):
            return None
        resources: list[Obj] = []
        for kind, served in self._registry.kinds_of(group, version):
            resources += _resources(kind, served)
        for plural, (of, name) in REVIEWS.items():
            if of == group:
                namespaced = plural.startswith("local")
                resources.append(_entry(plural, name.lower(), name, ["create"], namespaced))
        return {
            "kind": "APIResourceList",
            **({"apiVersion": "v1"} if group else {}),
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": resources,
        }

    # ---- aggregated

    def aggregated(self, *, core: bool, version: str) -> Obj:
        """`/api` or `/apis` as one `APIGroupDiscoveryList`."""
        names = [""] if core else self.groups()
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": [self._aggregated_group(name) for name in names],
        }

    def _aggregated_group(self, group: str) -> Obj:
        versions = []
        for version in self.versions(group):
            resource_list = self.resource_list(group, version)
            assert resource_list is not None, "it is one of the versions of the group"
            shown = _aggregated(group, version, resource_list["resources"])
            versions.append({"version": version, "resources": shown, "freshness": "Current"})
        meta: Obj = {"creationTimestamp": None}
        if group:
            meta["name"] = group
        return {"metadata": meta, "versions": versions}


def _group(name: str, names: list[str]) -> Obj:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in names]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _aggregated(group: str, version: str, resources: list[Obj]) -> list[Obj]:
    """The classic form of resources as the aggregated one."""
    by_name: dict[str, Obj] = {}
    for one in resources:
        name, _, subresource = one["name"].partition("/")
        about = {
            "responseKind": {
                "group": one.get("group") or group,
                "version": one.get("version") or version,
                "kind": one["kind"],
            },
            "verbs": one.get("verbs") or [],
        }
        if not subresource:
            scope = "Namespaced" if one.get("namespaced") else "Cluster"
            singular = one.get("singularName") or ""
            by_name[name] = {
                "resource": name,
                "scope": scope,
                "singularResource": singular,
                **about,
            }
            by_name[name] |= {key: one[key] for key in ("shortNames", "categories") if key in one}
        elif name in by_name:
            entry = {"subresource": subresource, **about}
            by_name[name].setdefault("subresources", []).append(entry)
    return list(by_name.values())


def _entry(name: str, singular: str, kind: str, verbs: list[str], namespaced: bool) -> Obj:
    return {
        "name": name,
        "singularName": singular,
        "namespaced": namespaced,
        "kind": kind,
        "verbs": verbs,
    }


def _resources(kind: Kind, version: KindVersion) -> list[Obj]:
    """A kind and its subresources in the classic form."""
    entry = _entry(kind.plural, kind.singular, kind.kind, list(kind.verbs), kind.namespaced)
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    entry["storageVersionHash"] = _hash(kind)
    parts = [] if kind.group else list(_EXTRA.get(kind.plural, ()))
    if version.status:
        parts.append(("status", "", kind.kind, _ON_OBJECT))
    if version.scale:
        parts.append(("scale", "autoscaling/v1", "Scale", _ON_OBJECT))
    resources = [entry]
    for name, api_version, response, verbs in sorted(parts):
        sub = _entry(f"{kind.plural}/{name}", "", response, verbs, kind.namespaced)
        if api_version:
            sub["group"], _, sub["version"] = api_version.rpartition("/")
        resources.append(sub)
    return resources


def _hash(kind: Kind) -> str:
    text = f"{kind.group}/{kind.storage}/{kind.kind}".encode()
    return base64.b64encode(hashlib.sha256(text).digest()[:8]).decode()
