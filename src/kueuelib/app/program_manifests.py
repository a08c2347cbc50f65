"""The raw objects that a process of `kueuelib run` needs in a cluster: jobs, checks, operators.

Either for a process of its own (`kueuelib run`, or a program with several kinds): identity,
permissions, webhooks, Service and Deployment. Or for a plug-in of the bundled manager, which has
everything except the permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from kueuelib.api.kinds import (
    ADMISSION_CHECKS,
    CRDS,
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    VALIDATING_WEBHOOKS,
    WORKLOADS,
)
from kueuelib.api.meta import Obj, Resource
from kueuelib.checks.definition import Check
from kueuelib.checks.heartbeats import lease_name
from kueuelib.controllers.manifests import SERVICE_ACCOUNT, manager_user
from kueuelib.controllers.webhooks import TIMEOUT_SECONDS, ClientConfig, by_service, by_url, sparing
from kueuelib.errors import ConfigError
from kueuelib.jobs.assembly import certificate_name, process_name
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings, system_excluded
from kueuelib.jobs.kinds.follower import definition_name
from kueuelib.jobs.webhooks.manifests import rbac_rules, shared_rbac_rules, webhook_entries
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.hooks import definitions, hook_configurations, trusting

# ---- raw objects that every process of `kueuelib run` needs in a cluster -------------------------

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


# ---- what admission checks of users need in a cluster, as raw objects for `kubectl apply` --------

_READ = ("get", "list", "watch")


def check_manifests(
    checks: Sequence[Check], reference: str, namespace: str, *, image: str
) -> list[Obj]:
    """What a process with checks needs, in the order of creation.

    Everything has the name of the Lease. The permissions are those of the library; what the
    functions do with the client of `current()` needs further ones.

    Args:
        checks: those of the process.
        reference: what `kueuelib run` is given in the Deployment.
        namespace: where it runs; in that of the manager, the manager notices when it is gone.
        image: of the Deployment: with kueuelib and the module.
    """
    name = lease_name(checks[0].controller_name)
    lease = named(LEASES, name, ["get", "update"])
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(name, namespace)},
        role("ClusterRole", name, "", [*_library_rules(checks), *_own_rules(checks)]),
        binding("ClusterRole", name, "", name, namespace),
        role("Role", name, namespace, lease),
        binding("Role", name, namespace, name, namespace),
        deployment(name, namespace, reference, image, ports={}),
    ]


def check_plugin_manifests(checks: Sequence[Check], reference: str, namespace: str) -> list[Obj]:
    """What the bundled manager needs for checks that it runs itself, beyond its own permissions.

    Raises:
        ConfigError: nothing.
    """
    name, rules = f"{lease_name(checks[0].controller_name)}-plugin", [*_own_rules(checks)]
    if not rules:
        raise ConfigError(
            f"--plugin {reference}",
            "the manager has every permission that a check without parameters needs",
            "offer the check as an entry point of the group kueuelib.checks",
        )
    return [
        role("ClusterRole", name, "", rules),
        binding("ClusterRole", name, "", SERVICE_ACCOUNT, namespace),
    ]


def _library_rules(checks: Sequence[Check]) -> Iterator[Obj]:
    releases = any(check.release is not None for check in checks)
    yield rule(ADMISSION_CHECKS, _READ)
    yield rule(ADMISSION_CHECKS, ["patch"], "admissionchecks/status")
    yield rule(WORKLOADS, [*_READ, "patch"] if releases else _READ)
    yield rule(WORKLOADS, ["patch"], "workloads/status")
    yield rule(EVENTS, ["create", "patch"])


def _own_rules(checks: Sequence[Check]) -> Iterator[Obj]:
    for kind in dict.fromkeys(check.parameters for check in checks if check.parameters):
        yield rule(kind, _READ)
    for kind in dict.fromkeys(check.owned.resource for check in checks if check.owned):
        yield rule(kind, [*_READ, "create", "delete"])


# ---- the objects that operators of users need in a cluster ---------------------------------------

CLUSTERS = "/etc/kueuelib/clusters"
"""Where the Deployment has the kubeconfigs of other clusters."""
READS = ("get", "list", "watch")
WRITES = ("get", "create", "patch", "delete")
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")


def operator_manifests(
    operator: Operator,
    reference: str,
    namespace: str,
    *,
    image: str,
    webhook_url: str | None = None,
) -> list[Obj]:
    """The objects that an operator needs in a cluster, in the order of their creation.

    The permissions follow from the declaration. The kubeconfigs of other clusters come from a
    Secret `NAME-clusters`, with one key per cluster.

    Args:
        operator: the declaration.
        reference: the argument of `kueuelib run` in the Deployment.
        namespace: where it runs; when empty, one with the name of the operator is made.
        image: of the Deployment: with kueuelib and the module.
        webhook_url: where the webhooks answer when the operator runs outside the cluster; then
            there is neither a Service nor a Deployment.
    """
    name, where = operator.name, namespace or operator.name
    reach = by_service(where, name) if webhook_url is None else by_url(webhook_url)
    in_cluster = webhook_url is None
    return [
        *([] if namespace else [NAMESPACES.new(where)]),
        *definitions(operator, reach),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(name, where)},
        *_access(operator, where),
        *([service(name, where)] if in_cluster and operator.needs_webhooks else []),
        *hook_configurations(operator, reach),
        *([_deployment(operator, where, reference, image)] if in_cluster else []),
    ]


def _deployment(operator: Operator, where: str, reference: str, image: str) -> Obj:
    args = ["--health-address", f":{HEALTH_PORT}", "--metrics-address", f":{METRICS_PORT}"]
    for cluster in operator.clusters:
        args += ["--cluster", f"{cluster}={CLUSTERS}/{cluster}"]
    secret = (f"{operator.name}-clusters", CLUSTERS) if operator.clusters else None
    ports = {
        name: port for name, port in PORTS.items() if name != WEBHOOK or operator.needs_webhooks
    }
    return deployment(operator.name, where, reference, image, args, secret, ports=ports)


def _access(operator: Operator, where: str) -> list[Obj]:
    """Roles and bindings: for the cluster, for the watched namespace, for our own objects."""
    name, space = operator.name, operator.namespace
    rules = permissions(operator)
    wide = [rule for resource, rule in rules if not (space and resource.namespaced)]
    narrow = [rule for resource, rule in rules if space and resource.namespaced]
    wide += [dict(rule) for rule in operator.rules]
    wide += _own_hooks(operator)
    objects = []
    if wide:
        objects += [
            role("ClusterRole", name, "", wide),
            binding("ClusterRole", name, "", name, where),
        ]
    if narrow:
        watched = f"{name}-watched"
        objects += [
            role("Role", watched, space, narrow),
            binding("Role", watched, space, name, where),
        ]
    own = named(LEASES, name)
    if operator.needs_webhooks:
        own += named(SECRETS, f"{name}-cert", KEPT)
    objects += [role("Role", name, where, own), binding("Role", name, where, name, where)]
    return objects


def permissions(operator: Operator) -> list[tuple[Resource, Obj]]:
    """The RBAC rules for the kinds that an operator touches in its own cluster, one per kind."""
    verbs: dict[Resource, set[str]] = {EVENTS: {"create", "patch"}}
    rules: list[tuple[Resource, Obj]] = []
    for declared in operator.reconciled:
        kind = declared.resource
        verbs.setdefault(kind, set()).update((*READS, "patch"))
        rules += [
            (kind, rule(kind, ["patch"], f"{kind.plural}/status")),
            (kind, rule(kind, ["update"], f"{kind.plural}/finalizers")),
        ]
        for each in declared.owns:
            verbs.setdefault(each, set()).update((*READS, *WRITES))
        for each in declared.writes:
            verbs.setdefault(each, set()).update(WRITES)
        for each in (each for each in declared.watches if isinstance(each, Resource)):
            verbs.setdefault(each, set()).update(READS)
    return [(kind, rule(kind, _ordered(each))) for kind, each in verbs.items()] + rules


def _ordered(verbs: Iterable[str]) -> list[str]:
    return sorted(verbs, key=_VERBS.index)


def _own_hooks(operator: Operator) -> list[Obj]:
    """Permits the operator to write its authority into the objects that the API server reads."""
    return [
        {
            **rule(target.resource, KEPT),
            "resourceNames": [target.name],
        }
        for target in trusting(operator)
    ]


# --------------------------------------------------------------------------------------------------


def plugin_manifests(integration: Integration, namespace: str) -> list[Obj]:
    """The permissions of the bundled manager for a kind; it adds the webhooks by itself.

    Args:
        integration: the kind.
        namespace: of the manager.
    """
    name = process_name(integration)
    rules = list(rbac_rules([integration]))
    return [
        role("ClusterRole", f"{name}-plugin", "", rules),
        binding("ClusterRole", f"{name}-plugin", "", SERVICE_ACCOUNT, namespace),
    ]


def process_manifests(
    integrations: Sequence[Integration],
    reference: str,
    namespace: str,
    *,
    image: str,
    webhook_url: str | None = None,
) -> list[Obj]:
    """The objects of a separate process, in the order of their creation.

    Args:
        integrations: the kinds; the first one names all objects.
        reference: the argument of `kueuelib run` in the Deployment; empty: the image has a command
            of its own, which calls `kueuelib.jobs.run`.
        namespace: where it runs; the manager's is a good place.
        image: of the Deployment: with kueuelib and the module.
        webhook_url: where the process answers when it runs outside the cluster; then there is
            neither a Service nor a Deployment.
    """
    name = process_name(integrations[0])
    in_cluster = webhook_url is None
    ports = PORTS if reference else {WEBHOOK: WEBHOOK_PORT}
    config = by_service(namespace, name) if webhook_url is None else by_url(webhook_url)
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(name, namespace)},
        role("ClusterRole", name, "", _cluster_rules(integrations)),
        binding("ClusterRole", name, "", name, namespace),
        role("Role", name, namespace, _namespace_rules(integrations[0])),
        binding("Role", name, namespace, name, namespace),
        role("ClusterRole", f"{name}-owners", "", [_reading(each) for each in integrations]),
        binding("ClusterRole", f"{name}-owners", "", SERVICE_ACCOUNT, namespace),
        *([service(name, namespace)] if in_cluster else []),
        *own_webhooks(integrations, namespace, config),
        *([deployment(name, namespace, reference, image, ports=ports)] if in_cluster else []),
    ]


def _cluster_rules(integrations: Sequence[Integration]) -> list[Obj]:
    name = process_name(integrations[0])
    hooks = [MUTATING_WEBHOOKS.plural, VALIDATING_WEBHOOKS.plural]
    own_hooks = {
        "apiGroups": [MUTATING_WEBHOOKS.group],
        "resources": hooks,
        "resourceNames": [name],
        "verbs": [*KEPT],
    }
    definition = {
        **rule(CRDS, ["get", "list", "watch"]),
        "resourceNames": [definition_name(each.resource) for each in integrations],
    }
    return [*rbac_rules(integrations), *shared_rbac_rules(), own_hooks, definition]


def _namespace_rules(integration: Integration) -> list[Obj]:
    return [
        *named(LEASES, process_name(integration)),
        *named(SECRETS, certificate_name(integration), KEPT),
    ]


def _reading(integration: Integration) -> Obj:
    """Permits the bundled manager to read owners of this kind, so that it leaves their children
    alone.
    """
    return rule(integration.resource, ["get"])


def own_webhooks(
    integrations: Sequence[Integration], namespace: str, config: ClientConfig
) -> list[Obj]:
    """The two webhook configurations of a process.

    Args:
        integrations: the kinds; the first one names the configurations.
        namespace: where the process runs.
        config: how the API server reaches a path of it.
    """
    name = process_name(integrations[0])
    settings = JobSettings(namespace_selector=system_excluded(namespace))
    entries = sparing(webhook_entries(integrations, settings), manager_user(namespace, name))
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": meta(name, ""),
            "webhooks": [
                {
                    **entry.entry,
                    "timeoutSeconds": TIMEOUT_SECONDS,
                    "clientConfig": config(entry.path),
                }
                for entry in entries
                if entry.mutating is mutating
            ],
        }
        for resource, mutating in ((MUTATING_WEBHOOKS, True), (VALIDATING_WEBHOOKS, False))
    ]
