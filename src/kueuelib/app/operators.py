"""The objects that operators of users need in a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.api.kinds import EVENTS, LEASES, NAMESPACES, SECRETS
from kueuelib.api.meta import Obj, Resource
from kueuelib.app.process_objects import (
    HEALTH_PORT,
    KEPT,
    METRICS_PORT,
    PORTS,
    WEBHOOK,
    binding,
    deployment,
    meta,
    named,
    role,
    rule,
    service,
)
from kueuelib.controllers.webhooks import by_service, by_url
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.hooks import definitions, hook_configurations, trusting

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
