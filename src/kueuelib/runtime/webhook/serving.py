"""Webhooks as parts of a manager: the server, its certificate, and the objects that trust it."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError
from kueuelib.runtime.addresses import parse_address
from kueuelib.runtime.client import Client
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.certs import Names, host_names, server_context
from kueuelib.runtime.webhook.keeper import CertificateKeeper
from kueuelib.runtime.webhook.server import WebhookServer
from kueuelib.runtime.webhook.trust import Trusting

WEBHOOK = "webhook address"
"""What the address is called in errors."""


@attrs.frozen
class Webhooks:
    """A webhook server of a manager, and the configurations that send objects to it.

    Attributes:
        server: handlers are registered with it before the manager runs.
        mutating: the name of the MutatingWebhookConfiguration.
        validating: the name of the ValidatingWebhookConfiguration.
        user: the user name of the program in the cluster, whose own writes need no review.
    """

    server: WebhookServer
    mutating: str
    validating: str
    user: str


def add_webhook_server(
    manager: Manager,
    client: Client,
    address: str,
    names: Names,
    secret: ObjectKey,
    trusting: Iterable[Trusting],
    *,
    organisation: str = "kueuelib",
    telemetry: Telemetry | None = None,
) -> WebhookServer:
    """Add a webhook server, and the keeper of its certificate.

    Args:
        manager: runs both.
        client: reads and writes the certificate.
        address: `host:port` to listen at.
        names: of the certificate, besides the host.
        secret: where the certificate is kept.
        trusting: the objects that carry our authority.
        organisation: in the certificate.
        telemetry: where the server reports.

    Raises:
        ConfigError: the address is malformed.
    """
    place = parse_address(address, WEBHOOK)
    if place is None:
        raise ConfigError(WEBHOOK, "webhooks are needed", "write HOST:PORT")
    host, port = place
    if host and host not in ("0.0.0.0", "::"):
        names |= host_names([host])
    tls = server_context()
    keeper = CertificateKeeper(client, [tls], secret, names, trusting, organisation=organisation)
    server = WebhookServer(host, port, tls, telemetry=telemetry, subject=WEBHOOK)
    manager.add(Group.WEBHOOKS, keeper, "certificates")
    manager.add(Group.WEBHOOKS, server, "webhook server")
    return server
