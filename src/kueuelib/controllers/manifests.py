"""What the manager needs in a cluster besides CRDs and webhooks, as raw objects.

The names are those of upstream, so that a cluster that ran the Go manager keeps its bindings.
Secrets are granted in the manager's own namespace only.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Final

from kueuelib.api.crd import converted_crds
from kueuelib.api.kinds import API_SERVICES, KUEUE
from kueuelib.api.meta import Obj
from kueuelib.api.names import LEASE
from kueuelib.controllers.visibility.summary import SUBRESOURCE, VERSIONS
from kueuelib.controllers.webhooks import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from kueuelib.runtime.certificates import ServerNames, service_names

MANAGER_BINDING = "kueue-manager-rolebinding"
"""What gives the manager's account its rights."""
SERVICE_ACCOUNT = "kueue-controller-manager"
WEBHOOK_SERVICE = "kueue-webhook-service"
WEBHOOK_SECRET = "kueue-webhook-server-cert"  # noqa: S105 - a name, no secret
WEBHOOK_PORT = 9443
VISIBILITY_SERVICE = "visibility-server"
METRICS_SERVICE = "kueue-controller-manager-metrics-service"
MANAGER_ROLE = "kueue-manager-role"
METRICS_ROLE = "kueue-metrics-auth-role"
METRICS_READER_ROLE = "kueue-metrics-reader"
LEADER_ROLE = "kueue-leader-election-role"
CERTIFICATES_ROLE = "kueue-certificates-role"
CONFIGURATION_ROLE = "kueue-configuration-reader-role"

WATCH = ("list", "watch")
READ = ("get", *WATCH)
WRITE = ("create", "update", "patch", "delete")
_RBAC = "rbac.authorization.k8s.io"
APP = {"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "controller"}
_ADMIN = {f"rbac.{KUEUE}/batch-admin": "true"}
_USER = {f"rbac.{KUEUE}/batch-user": "true"}


def manager_user(namespace: str, account: str = SERVICE_ACCOUNT) -> str:
    """The user name of a pod with a ServiceAccount of a namespace, by default the manager's."""
    return f"system:serviceaccount:{namespace}:{account}"


def server_names(service: str, namespace: str) -> ServerNames:
    """The names of a manager's certificate: of its Services for webhooks, visibility, metrics."""
    services = (service, VISIBILITY_SERVICE, METRICS_SERVICE)
    return functools.reduce(operator.or_, (service_names(name, namespace) for name in services))


def manager_manifests(namespace: str, secret: str = WEBHOOK_SECRET) -> list[Obj]:
    """All objects, in the order of their creation.

    Args:
        namespace: where the manager runs, or whose objects it uses when it runs elsewhere.
        secret: the name of the one with the certificate of its webhooks.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": dict(APP)},
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _meta(SERVICE_ACCOUNT, namespace),
        },
        cluster_role(MANAGER_ROLE, manager_rules()),
        _binding("ClusterRole", MANAGER_ROLE, MANAGER_BINDING, namespace, ""),
        _role(LEADER_ROLE, namespace, leader_election_rules()),
        _binding("Role", LEADER_ROLE, "kueue-leader-election-rolebinding", namespace, namespace),
        _role(CERTIFICATES_ROLE, namespace, certificate_rules(secret)),
        _binding("Role", CERTIFICATES_ROLE, "kueue-certificates-rolebinding", namespace, namespace),
        *configuration_readers(namespace),
        cluster_role(METRICS_ROLE, metrics_rules()),
        _binding("ClusterRole", METRICS_ROLE, "kueue-metrics-auth-rolebinding", namespace, ""),
        cluster_role(METRICS_READER_ROLE, [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
        *user_roles(),
        webhook_service(namespace),
    ]


def manager_rules() -> list[Obj]:
    """The rights of the queueing controllers in the whole cluster; integrations add their own."""
    hooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    own_hooks = [MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION]
    crds = "customresourcedefinitions"
    watched = ("admissionchecks", "clusterqueues", "cohorts", "localqueues", "workloads")
    finalized = ("resourceflavors", "topologies")
    return [
        _rule("", ["events"], ["create", "patch"]),
        _rule("", ["limitranges", "namespaces"], WATCH),
        _rule("", ["nodes"], WATCH),
        _rule("", ["pods"], WATCH, ["patch"]),
        _rule("", ["pods/status"], ["patch"]),
        _rule("", ["podtemplates"], ["get", "create"]),
        {
            **_rule("admissionregistration.k8s.io", hooks, READ, ["update"]),
            "resourceNames": own_hooks,
        },
        _rule("apiextensions.k8s.io", [crds], READ),
        {**_rule("apiextensions.k8s.io", [crds], ["update"]), "resourceNames": [*converted_crds()]},
        _rule("autoscaling.x-k8s.io", ["provisioningrequests"], READ, ["create", "delete"]),
        _rule("autoscaling.x-k8s.io", ["provisioningrequests/finalizers"], ["update"]),
        _rule(KUEUE, [*watched, *finalized, "provisioningrequestconfigs"], WATCH),
        _rule(KUEUE, ["admissionchecks", "clusterqueues", *finalized], ["get", "patch"]),
        _rule(KUEUE, [f"{name}/status" for name in watched], ["patch"]),
        _rule("node.k8s.io", ["runtimeclasses"], WATCH),
    ]


def leader_election_rules() -> list[Obj]:
    """The rights, in its namespace, to elect a leader and to read the Leases of checks."""
    return [_rule("coordination.k8s.io", ["leases"], ["get", "list", "create", "update"])]


def certificate_rules(secret: str) -> list[Obj]:
    """The rights, in the manager's namespace, to keep the certificate of the webhooks.

    Args:
        secret: its name.
    """
    return [
        _rule("", ["secrets"], ["get", "create", "update"]),
        {**_rule("", ["secrets"], WATCH), "resourceNames": [secret]},
    ]


def configuration_readers(namespace: str) -> list[Obj]:
    """The right of every authenticated user to read what the leader notes on its Lease."""
    name = CONFIGURATION_ROLE
    rules = [{**_rule("coordination.k8s.io", ["leases"], ["get"]), "resourceNames": [LEASE]}]
    binding = _binding("Role", name, "kueue-configuration-reader-rolebinding", "", namespace)
    everyone = {"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}
    return [_role(name, namespace, rules), {**binding, "subjects": [everyone]}]


def metrics_rules() -> list[Obj]:
    """The rights to authenticate and authorize readers of metrics."""
    return [
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ]


def user_roles() -> list[Obj]:
    """Roles for people: an editor and a viewer of each kind, aggregated into batch admin and
    user.
    """
    admins = ("clusterqueue", "cohort", "localqueue", "resourceflavor", "topology", "workload")
    roles = [
        _aggregated("kueue-batch-admin-role", _ADMIN),
        _aggregated("kueue-batch-user-role", _USER),
    ]
    for kind in admins:
        roles.append(_kind_role(kind, KUEUE, "editor", _ADMIN))
        labels = _USER if kind in ("localqueue", "workload") else {}
        roles.append(_kind_role(kind, KUEUE, "viewer", {**labels, **_ADMIN}))
    both = {**_USER, **_ADMIN}
    return [*roles, *(_kind_role("job", "batch", access, both) for access in ("editor", "viewer"))]


def webhook_service(namespace: str) -> Obj:
    """The Service through which the API server reaches the webhooks of a manager in the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(WEBHOOK_SERVICE, namespace),
        "spec": {
            "ports": [{"port": 443, "protocol": "TCP", "targetPort": WEBHOOK_PORT}],
            "selector": dict(APP),
        },
    }


def cluster_role(name: str, rules: Sequence[Obj], labels: dict[str, str] | None = None) -> Obj:
    """A ClusterRole with these rules."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {**APP, **(labels or {})}},
        "rules": list(rules),
    }


def _kind_role(kind: str, group: str, access: str, labels: dict[str, str]) -> Obj:
    verbs = (*READ, *WRITE) if access == "editor" else READ
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    rules = [_rule(group, [plural], verbs), _rule(group, [f"{plural}/status"], ["get"])]
    return cluster_role(f"kueue-{kind}-{access}-role", rules, labels)


def _aggregated(name: str, labels: dict[str, str]) -> Obj:
    role = cluster_role(name, [])
    del role["rules"]  # the cluster fills them in
    role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": dict(labels)}]}
    return role


def _role(name: str, namespace: str, rules: Sequence[Obj]) -> Obj:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _meta(name, namespace),
        "rules": list(rules),
    }


def _binding(kind: str, role: str, name: str, account_namespace: str, namespace: str) -> Obj:
    metadata = _meta(name, namespace) if namespace else {"name": name, "labels": dict(APP)}
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": account_namespace}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [subject],
    }


def _meta(name: str, namespace: str) -> Obj:
    return {"name": name, "namespace": namespace, "labels": dict(APP)}


def _rule(group: str, resources: Iterable[str], *verbs: Iterable[str]) -> Obj:
    return {
        "apiGroups": [group],
        "resources": list(resources),
        "verbs": [verb for part in verbs for verb in part],
    }


# ---- registers the manager's visibility API at an API server, as raw objects ---------------------

ROLE: Final = "kueue-visibility-role"
HTTPS: Final = 443
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
    return [f"{version}.{group}" for group, versions in VERSIONS.items() for version in versions]


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
        _visibility_binding("kueue-visibility-rolebinding", "ClusterRole", ROLE, namespace),
        _visibility_binding(
            "kueue-visibility-delegator", "ClusterRole", "system:auth-delegator", namespace
        ),
        _visibility_binding("kueue-visibility-server-auth-reader", "Role", reader, namespace),
        *(_api_service(name, namespace, port if host else HTTPS) for name in api_service_names()),
    ]


def _viewer(short: str, plural: str, labels: dict[str, str]) -> Obj:
    """A role for people to list the waiting Workloads of one kind of queue."""
    rule = {
        "apiGroups": [*VERSIONS],
        "resources": [f"{plural}/{SUBRESOURCE}"],
        "verbs": ["get", "list", "watch"],
    }
    return cluster_role(f"kueue-pending-workloads-{short}-viewer-role", [rule], labels)


def _api_service(name: str, namespace: str, port: int) -> Obj:
    version, _, group = name.partition(".")
    return {
        "apiVersion": API_SERVICES.api_version,
        "kind": API_SERVICES.kind,
        "metadata": {"name": name, "labels": dict(APP)},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": namespace, "name": VISIBILITY_SERVICE, "port": port},
        },
    }


def _visibility_binding(name: str, role_kind: str, role: str, namespace: str) -> Obj:
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
