"""Raw objects that every process of `kueuelib run` needs in a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kueuelib.api.meta import Obj, Resource

WEBHOOK_PORT = 9443
HEALTH_PORT = 8081
METRICS_PORT = 8080
WEBHOOK, HEALTH = "webhook", "health"
PORTS = MappingProxyType({WEBHOOK: WEBHOOK_PORT, HEALTH: HEALTH_PORT, "metrics": METRICS_PORT})
OWN = ("get", "update", "patch")
KEPT = ("get", "list", "watch", "update", "patch")
"""The verbs for the objects of a certificate, which are watched by name."""
RBAC = "rbac.authorization.k8s.io"


def service(name: str, namespace: str) -> Obj:
    """The Service of the webhooks."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta(name, namespace),
        "spec": {
            "ports": [{"port": 443, "protocol": "TCP", "targetPort": WEBHOOK_PORT}],
            "selector": labels(name),
        },
    }


def deployment(
    name: str,
    namespace: str,
    reference: str,
    image: str,
    args: Sequence[str] = (),
    secret: tuple[str, str] | None = None,
    *,
    ports: Mapping[str, int] = PORTS,
) -> Obj:
    """The Deployment of `kueuelib run`, with one replica.

    Args:
        name: of the Deployment and its ServiceAccount.
        namespace: where it runs.
        reference: the argument of `kueuelib run`; empty: the image has a command of its own.
        image: with kueuelib and the module.
        args: further options of `kueuelib run`.
        secret: the name of a Secret, and the folder where its keys are files.
        ports: what it listens on, by name; `health` is probed.
    """

    def probe(path: str) -> Obj:
        return {"httpGet": {"path": path, "port": HEALTH_PORT}, "periodSeconds": 10}

    container: Obj = {
        "name": "manager",
        "image": image,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if reference:
        container["command"] = ["kueuelib", "run", reference]
        container["args"] = ["--namespace", namespace, *args]
    if ports:
        container["ports"] = [{"name": each, "containerPort": port} for each, port in ports.items()]
    if HEALTH in ports:
        container |= {"livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz")}
    pod: Obj = {"serviceAccountName": name, "containers": [container]}
    if secret is not None:
        container["volumeMounts"] = [{"name": secret[0], "mountPath": secret[1], "readOnly": True}]
        pod["volumes"] = [{"name": secret[0], "secret": {"secretName": secret[0]}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta(name, namespace),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels(name)},
            "template": {
                "metadata": {"labels": labels(name)},
                "spec": pod,
            },
        },
    }


def role(kind: str, name: str, namespace: str, rules: Sequence[Obj]) -> Obj:
    """A Role or ClusterRole."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": meta(name, namespace),
        "rules": list(rules),
    }


def rule(kind: Resource, verbs: Iterable[str], plural: str = "") -> Obj:
    """The rule of a role for one kind, or for a subresource of it."""
    return {"apiGroups": [kind.group], "resources": [plural or kind.plural], "verbs": [*verbs]}


def named(kind: Resource, name: str, verbs: Sequence[str] = OWN) -> list[Obj]:
    """The rules for one object that a process makes itself."""
    return [
        rule(kind, ["create"]),  # RBAC cannot restrict a creation by name
        {**rule(kind, verbs), "resourceNames": [name]},
    ]


def binding(role_kind: str, role: str, namespace: str, account: str, account_in: str) -> Obj:
    """The binding of a role to a ServiceAccount."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{role_kind}Binding",
        "metadata": meta(role, namespace),
        "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": account_in}],
    }


def labels(name: str) -> dict[str, str]:
    """The labels of everything that belongs to a process."""
    return {"app.kubernetes.io/name": name}


def meta(name: str, namespace: str) -> Obj:
    """The metadata of an object; cluster-scoped when the namespace is empty."""
    metadata: Obj = {"name": name, "labels": labels(name)}
    if namespace:
        metadata["namespace"] = namespace
    return metadata
