"""The initial roles and bindings of every cluster with RBAC."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.access.attributes import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from kueuelib.embedded.access.rbac import RBAC

BOOTSTRAP = "kubernetes.io/bootstrapping"
AGGREGATE = f"{RBAC}/aggregate-to-"
_READER: Final = "extension-apiserver-authentication"
_WORDS: Final = {
    "core": [""],
    "RBAC": [RBAC],
    "READ": ["get", "list", "watch"],
    "WRITE": ["create", "delete", "deletecollection", "patch", "update"],
    "HEALTH": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
    "ISSUER": ["/.well-known/openid-configuration", "/.well-known/openid-configuration/"],
    "CORE": ["configmaps", "pods", "podtemplates", "secrets", "services", "serviceaccounts"],
    "READABLE": [
        *("configmaps", "pods", "podtemplates", "services", "serviceaccounts", "events"),
        *("limitranges", "resourcequotas", "resourcequotas/status", "namespaces"),
        *("namespaces/status", "pods/log", "pods/status"),
    ],
}
_BOUND: Final = {
    "cluster-admin": (MASTERS,),
    "system:discovery": (AUTHENTICATED,),
    "system:public-info-viewer": (AUTHENTICATED, UNAUTHENTICATED),
    "system:basic-user": (AUTHENTICATED,),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}


def _object(kind: str, name: str, **more: Any) -> Obj:
    notes, labels = {f"{RBAC}/autoupdate": "true"}, {BOOTSTRAP: "rbac-defaults"}
    meta = {"name": name, "labels": labels, "annotations": notes}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, **more}


def _rule(groups: str, names: str, verbs: str) -> Obj:
    words = [
        [inner for word in part.split() for inner in _WORDS.get(word, [word])]
        for part in (groups, names, verbs)
    ]
    if words[0] == ["url"]:
        return {"nonResourceURLs": words[1], "verbs": words[2]}
    return dict(zip(("apiGroups", "resources", "verbs"), words, strict=True))


def _roles() -> Iterator[Obj]:
    role: Obj = {}
    text = files("kueuelib.embedded.access").joinpath("roles.txt").read_text("ascii")
    for line in filter(lambda line: not line.startswith("#"), text.splitlines()):
        if line.startswith(" "):
            role["rules"].append(_rule(*line.split(" : ")))
            continue
        name, *ways = line.split()
        role = _object("ClusterRole", name, rules=[])
        for way, _, other in (each.partition(":") for each in ways):
            label = {f"{AGGREGATE}{other}": "true"}
            if way == "into":
                role["metadata"]["labels"] |= label
            else:
                role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": label}]}
        yield role


def default_roles() -> list[Obj]:
    """Roles first, then bindings."""
    read = _rule("core", "configmaps", "READ") | {"resourceNames": [_READER]}
    reader = _object("Role", f"{_READER}-reader", rules=[read])
    reader["metadata"]["namespace"] = "kube-system"
    bindings = [
        _object(
            "ClusterRoleBinding",
            role,
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            subjects=[{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
        )
        for role, groups in _BOUND.items()
    ]
    return [*_roles(), reader, *bindings]
