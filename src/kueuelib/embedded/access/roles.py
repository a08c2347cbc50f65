"""The initial roles and bindings of every cluster with RBAC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kueuelib.api.meta import Obj
from kueuelib.embedded.access.attributes import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from kueuelib.embedded.access.rbac import RBAC

BOOTSTRAP = "kubernetes.io/bootstrapping"
AGGREGATE = f"{RBAC}/aggregate-to-"
_READER: Final = "extension-apiserver-authentication"
_ROLES: Final = """
cluster-admin
    * : * : *
    url : * : *
system:discovery
    url : /api /api/* /apis /apis/* /openapi /openapi/* HEALTH : get
system:public-info-viewer
    url : HEALTH : get
system:basic-user
    authorization.k8s.io : selfsubjectaccessreviews selfsubjectrulesreviews : create
    authentication.k8s.io : selfsubjectreviews : create
system:service-account-issuer-discovery
    url : ISSUER /openid/v1/jwks /openid/v1/jwks/ : get
system:auth-delegator
    authentication.k8s.io : tokenreviews : create
    authorization.k8s.io : subjectaccessreviews : create
system:aggregate-to-admin into:admin
    RBAC : rolebindings roles : READ WRITE
    authorization.k8s.io : localsubjectaccessreviews : create
system:aggregate-to-edit into:edit into:admin
    core : CORE pods/attach pods/exec pods/portforward pods/proxy : WRITE
    core : secrets : READ
    core : pods/eviction serviceaccounts/token : create
    core : serviceaccounts : impersonate
    core : events : WRITE
    apps : deployments deployments/scale : WRITE
    batch : jobs : WRITE
    coordination.k8s.io : leases : READ WRITE
system:aggregate-to-view into:view into:admin into:edit
    core : READABLE : READ
    apps : deployments deployments/scale deployments/status : READ
    batch : jobs jobs/status : READ
    events.k8s.io : events : READ
admin of:admin
edit of:edit into:admin
view of:view into:edit
"""
"""Roles with the roles that they are part `of`, and those aggregated `into` them; rules: groups
or `url`, resources or paths, verbs.
"""
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
    for line in _ROLES.strip().splitlines():
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
