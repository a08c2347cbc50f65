"""`kueuelib manifests`."""

from __future__ import annotations

import sys

from kueuelib.api.crd import to_yaml
from kueuelib.app.installation import checked_url
from kueuelib.app.own_manifests import plugin_manifests, process_manifests
from kueuelib.jobs.plugins import load


def run(
    reference: str, namespace: str, image: str, webhook_url: str | None, *, plugin: bool
) -> None:
    """Prints what an integration needs in a cluster.

    Raises:
        ConfigError: there is no such integration, or the URL is none.
    """
    integration = load(reference)
    if plugin:
        found = plugin_manifests(integration, namespace)
    else:
        url = checked_url(webhook_url)
        found = process_manifests(integration, reference, namespace, image=image, webhook_url=url)
    sys.stdout.write("---\n".join(to_yaml(obj) for obj in found))
