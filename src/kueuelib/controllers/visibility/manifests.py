"""Registers the manager's visibility API at an API server, as raw objects."""

from __future__ import annotations

from typing import Final

from kueuelib.api.kinds import API_SERVICES, KUEUE
from kueuelib.api.meta import Obj
from kueuelib.controllers.manifests import APP, SERVICE_ACCOUNT, VISIBILITY_SERVICE, cluster_role
from kueuelib.controllers.visibility.summary import GROUP, SUBRESOURCE, VERSIONS

ROLE: Final = "kueue-visibility-role"
HTTPS: Final = 443
_RBAC: Final = "rbac.authorization.k8s.io"
_GROUPS = {
    **{
        f"rbac.authorization.k8s.io/aggregate-to-{one}": "true" for one in ("admin", "edit", "view")
    },
    f"rbac.{KUEUE}/batch-admin": "true",
}
_VIEWERS = (
    ("cq", "clusterqueues", _GROUPS),
    ("lq", "localqueues", {**_GROUPS, f"rbac.{KUEUE}/batch-user": "true"}),
)
"""The roles to list waiting Workloads of a kind of queue, with the labels for aggregation."""


def api_service_names() -> list[str]:
    """The names of the APIServices."""
    return [f"{version}.{GROUP}" for version in VERSIONS]


def visibility_manifests(namespace: str, port: int, host: str = "") -> list[Obj]:
    """All objects, in the order of their creation; the APIServices come last.

    The manager may review tokens, and write its authority into the APIServices.

    Args:
        namespace: of the manager.
        port: where it serves the API.
        host: where it runs, empty for a pod in the cluster. It must be a name or an IPv4 address,
            as the API server dials what it takes for a name.
    """
    labels = dict(APP)
    inside = {
        "ports": [{"name": "https", "port": HTTPS, "protocol": "TCP", "targetPort": port}],
        "selector": labels,
    }
    rule = {
        "apiGroups": [API_SERVICES.group],
        "resources": [API_SERVICES.plural],
        "resourceNames": api_service_names(),
        "verbs": ["get", "list", "watch", "update"],
    }
    reader = "extension-apiserver-authentication-reader"
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": VISIBILITY_SERVICE, "namespace": namespace, "labels": labels},
            "spec": {"type": "ExternalName", "externalName": host} if host else inside,
        },
        cluster_role(ROLE, [rule]),
        *(_viewer(short, plural, groups) for short, plural, groups in _VIEWERS),
        _binding("kueue-visibility-rolebinding", "ClusterRole", ROLE, namespace),
        _binding("kueue-visibility-delegator", "ClusterRole", "system:auth-delegator", namespace),
        _binding("kueue-visibility-server-auth-reader", "Role", reader, namespace),
        *(_api_service(version, namespace, port if host else HTTPS) for version in VERSIONS),
    ]


def _viewer(short: str, plural: str, labels: dict[str, str]) -> Obj:
    """A role for people to list the waiting Workloads of one kind of queue."""
    rule = {
        "apiGroups": [GROUP],
        "resources": [f"{plural}/{SUBRESOURCE}"],
        "verbs": ["get", "list", "watch"],
    }
    return cluster_role(f"kueue-pending-workloads-{short}-viewer-role", [rule], labels)


def _api_service(version: str, namespace: str, port: int) -> Obj:
    return {
        "apiVersion": API_SERVICES.api_version,
        "kind": API_SERVICES.kind,
        "metadata": {"name": f"{version}.{GROUP}", "labels": dict(APP)},
        "spec": {
            "group": GROUP,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": namespace, "name": VISIBILITY_SERVICE, "port": port},
        },
    }


def _binding(name: str, role_kind: str, role: str, namespace: str) -> Obj:
    """A binding of the manager; that of a Role is in `kube-system`."""
    metadata: Obj = {"name": name, "labels": dict(APP)}
    if role_kind == "Role":
        metadata["namespace"] = "kube-system"
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role_kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}],
    }
