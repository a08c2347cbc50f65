"""The raw objects that an integration needs in a cluster, for `kubectl apply`.

Either for a process of its own (`kueuelib run`, or a program with several kinds): identity,
permissions, webhooks, Service and Deployment. Or for a plug-in of the bundled manager, which has
everything except the permissions.
"""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.kinds import CRDS, LEASES, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj
from kueuelib.app.process_objects import (
    KEPT,
    PORTS,
    WEBHOOK,
    WEBHOOK_PORT,
    binding,
    deployment,
    meta,
    named,
    role,
    rule,
    service,
)
from kueuelib.controllers.manifests import SERVICE_ACCOUNT, manager_user
from kueuelib.controllers.webhooks import TIMEOUT_SECONDS, ClientConfig, by_service, by_url, sparing
from kueuelib.jobs.assembly import certificate_name, process_name
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings, system_excluded
from kueuelib.jobs.kinds.presence import definition_name
from kueuelib.jobs.webhooks.manifests import rbac_rules, shared_rbac_rules, webhook_entries


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
