"""`kueuelib manifests`."""

from __future__ import annotations

import sys

from kueuelib.api.crd import to_yaml
from kueuelib.api.kinds import MANAGER_NAMESPACE
from kueuelib.app.installation import checked_url
from kueuelib.app.operators import load as load_operator
from kueuelib.app.operators import operator_manifests
from kueuelib.app.own_manifests import plugin_manifests, process_manifests
from kueuelib.checks.plugins import load as load_checks
from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog.plugins import load


def run(
    reference: str, namespace: str | None, image: str, webhook_url: str | None, *, plugin: bool
) -> None:
    """Prints the objects that an operator or an integration needs in a cluster.

    Raises:
        ConfigError: there is no such integration, it is an admission check, or the URL is not
            valid.
    """
    if load_checks(reference):
        raise ConfigError(
            reference,
            "holds an admission check, and manifests are made for operators and integrations only",
            "give its ServiceAccount the permissions that docs/checks.md lists",
        )
    url = checked_url(webhook_url)
    operator = load_operator(reference)
    where = namespace or MANAGER_NAMESPACE
    if operator is not None:
        objects = operator_manifests(
            operator, reference, namespace or "", image=image, webhook_url=url
        )
    elif plugin:
        objects = plugin_manifests(load(reference), where)
    else:
        integration = load(reference)
        objects = process_manifests(integration, reference, where, image=image, webhook_url=url)
    sys.stdout.write("---\n".join(to_yaml(obj) for obj in objects))
