"""`kueuelib manifests`."""

from __future__ import annotations

import sys

from kueuelib.api.crd import to_yaml
from kueuelib.app.installation import checked_url
from kueuelib.app.own_manifests import plugin_manifests, process_manifests
from kueuelib.checks.plugins import load as load_checks
from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog.plugins import load


def run(
    reference: str, namespace: str, image: str, webhook_url: str | None, *, plugin: bool
) -> None:
    """Prints what an integration needs in a cluster.

    Raises:
        ConfigError: there is no such integration, it is an admission check, or the URL is none.
    """
    if load_checks(reference):
        raise ConfigError(
            reference,
            "holds an admission check, and manifests are made for integrations only",
            "give its ServiceAccount the permissions that docs/checks.md lists",
        )
    integration = load(reference)
    if plugin:
        found = plugin_manifests(integration, namespace)
    else:
        url = checked_url(webhook_url)
        found = process_manifests(integration, reference, namespace, image=image, webhook_url=url)
    sys.stdout.write("---\n".join(to_yaml(obj) for obj in found))
