"""The webhook server of a program that runs the whole queue."""

from __future__ import annotations

from kueuelib.api import kinds
from kueuelib.api.crd import converted_crds
from kueuelib.api.crd_parts import CONVERSION_PATH
from kueuelib.api.meta import ObjectKey
from kueuelib.controllers.manifests import (
    WEBHOOK_SECRET,
    WEBHOOK_SERVICE,
    manager_user,
    server_names,
)
from kueuelib.controllers.webhooks import (
    MUTATING_CONFIGURATION,
    VALIDATING_CONFIGURATION,
)
from kueuelib.runtime.client import Client
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.namespace import own_namespace
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.serving import Webhooks, add_webhook_server
from kueuelib.runtime.webhook.trust import Trusting


def queue_webhooks(
    manager: Manager,
    client: Client,
    address: str = ":9443",
    *,
    namespace: str = "",
    telemetry: Telemetry | None = None,
) -> Webhooks:
    """Adds a webhook server for the queueing objects, and for jobs in the same program.

    It replaces the server of the bundled manager: `kueuelib install` writes the CRDs and the
    webhook configurations that point to it.

    Args:
        manager: runs the server.
        client: reads and writes the certificate and the webhook configurations.
        address: the `host:port` to listen on.
        namespace: the namespace of Secret and Service; if empty, that of the pod, or `kueue-system`
            outside a cluster.
        telemetry: where the server reports.

    Raises:
        ConfigError: the address is malformed.
    """
    space = namespace or own_namespace(kinds.MANAGER_NAMESPACE)
    names = (MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION)
    trusting = [
        Trusting(kinds.MUTATING_WEBHOOKS, names[0]),
        Trusting(kinds.VALIDATING_WEBHOOKS, names[1]),
        *(Trusting(kinds.CRDS, name, path=CONVERSION_PATH) for name in converted_crds()),
    ]
    server = add_webhook_server(
        manager,
        client,
        address,
        server_names(WEBHOOK_SERVICE, space),
        ObjectKey(space, WEBHOOK_SECRET),
        trusting,
        telemetry=telemetry,
    )
    return Webhooks(server, *names, manager_user(space))
