"""The roles and bindings that every cluster with RBAC has from the first moment."""

from __future__ import annotations

from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.access.attributes import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from kueuelib.embedded.access.rbac import RBAC

BOOTSTRAP = "kubernetes.io/bootstrapping"
AGGREGATE = f"{RBAC}/aggregate-to-"
READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "deletecollection", "patch", "update"]

_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH]
_CORE = ["configmaps", "pods", "podtemplates", "secrets", "services", "serviceaccounts"]
_READABLE = [*(name for name in _CORE if name != "secrets"), "events", "limitranges"]
_STATUSES = ["namespaces", "namespaces/status", "pods/log", "pods/status"]


def _meta(name: str, **labels: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {BOOTSTRAP: "rbac-defaults", **labels},
        "annotations": {f"{RBAC}/autoupdate": "true"},
    }


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Obj:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _role(name: str, *rules: Obj, aggregates: str = "", into: str = "") -> Obj:
    labels = {f"{AGGREGATE}{into}": "true"} if into else {}
    role: Obj = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": _meta(name, **labels),
        "rules": list(rules),
    }
    if aggregates:
        selector = {"matchLabels": {f"{AGGREGATE}{aggregates}": "true"}}
        role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return role


def _binding(role: str, *groups: str) -> Obj:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _meta(role),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
    }


def default_roles() -> list[Obj]:
    """Roles first, then bindings."""
    reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    admin = _role(
        "system:aggregate-to-admin",
        _rule([RBAC], ["rolebindings", "roles"], [*READ, *WRITE]),
        _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
        into="admin",
    )
    edit = _role(
        "system:aggregate-to-edit",
        _rule([""], [*_CORE, "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"], WRITE),
        _rule([""], ["secrets"], READ),
        _rule([""], ["pods/eviction", "serviceaccounts/token"], ["create"]),
        _rule([""], ["serviceaccounts"], ["impersonate"]),
        _rule([""], ["events"], WRITE),
        _rule(["apps"], ["deployments", "deployments/scale"], WRITE),
        _rule(["batch"], ["jobs"], WRITE),
        _rule(["coordination.k8s.io"], ["leases"], [*READ, *WRITE]),
        into="edit",
    )
    edit["metadata"]["labels"][f"{AGGREGATE}admin"] = "true"
    view = _role(
        "system:aggregate-to-view",
        _rule([""], [*_READABLE, "resourcequotas", "resourcequotas/status", *_STATUSES], READ),
        _rule(["apps"], ["deployments", "deployments/scale", "deployments/status"], READ),
        _rule(["batch"], ["jobs", "jobs/status"], READ),
        _rule(["events.k8s.io"], ["events"], READ),
        into="view",
    )
    view["metadata"]["labels"].update({f"{AGGREGATE}admin": "true", f"{AGGREGATE}edit": "true"})
    return [
        _role(
            "cluster-admin",
            _rule(["*"], ["*"], ["*"]),
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ),
        _role("system:discovery", {"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}),
        _role("system:public-info-viewer", {"nonResourceURLs": _HEALTH, "verbs": ["get"]}),
        _role(
            "system:basic-user",
            _rule(["authorization.k8s.io"], reviews, ["create"]),
            _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
        ),
        _role(
            "system:service-account-issuer-discovery",
            {
                "nonResourceURLs": [
                    "/.well-known/openid-configuration",
                    "/.well-known/openid-configuration/",
                    "/openid/v1/jwks",
                    "/openid/v1/jwks/",
                ],
                "verbs": ["get"],
            },
        ),
        _role(
            "system:auth-delegator",
            _rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
            _rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
        ),
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": {
                **_meta("extension-apiserver-authentication-reader"),
                "namespace": "kube-system",
            },
            "rules": [
                {
                    **_rule([""], ["configmaps"], READ),
                    "resourceNames": ["extension-apiserver-authentication"],
                }
            ],
        },
        admin,
        edit,
        view,
        _role("admin", aggregates="admin"),
        _role("edit", aggregates="edit", into="admin"),
        _role("view", aggregates="view", into="edit"),
        _binding("cluster-admin", MASTERS),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
        _binding("system:basic-user", AUTHENTICATED),
        _binding("system:service-account-issuer-discovery", "system:serviceaccounts"),
    ]
