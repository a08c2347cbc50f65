"""What an earlier installation left in a cluster, and the next one would lose or leave behind."""

from __future__ import annotations

from kueuelib.api.kinds import API_SERVICES, CONFIG_MAPS, DEPLOYMENTS
from kueuelib.api.meta import ObjectKey
from kueuelib.app.deployment import (
    CONFIG_FILE,
    CONFIG_MAP,
    CONFIGURATION,
    NAME,
    Deployed,
    left_behind,
)
from kueuelib.controllers.visibility.manifests import api_service_names
from kueuelib.errors import ConfigError
from kueuelib.runtime.client import Client
from kueuelib.runtime.reading import read


async def keep_configuration(client: Client, namespace: str, deployed: Deployed | None) -> None:
    """Refuses to replace a configuration that somebody wrote by the default one.

    Args:
        client: whose cluster.
        namespace: of the manager.
        deployed: the pods to install; None for none.

    Raises:
        ConfigError: it is in the ConfigMap, and no other one was given.
    """
    if deployed is None or deployed.config != CONFIGURATION:
        return
    stored = await read(client, CONFIG_MAPS, ObjectKey(namespace, CONFIG_MAP))
    text = ((stored or {}).get("data") or {}).get(CONFIG_FILE, CONFIGURATION)
    if text != CONFIGURATION:
        path = "jsonpath='{{.data.{}}}'".format(CONFIG_FILE.replace(".", r"\."))
        where = f"kubectl -n {namespace} get configmap {CONFIG_MAP} -o {path}"
        raise ConfigError(
            f"configmap {namespace}/{CONFIG_MAP}",
            "holds a configuration, which the default one would replace",
            f"keep it: {where} > manager.yaml, then add --config manager.yaml; or delete the "
            "ConfigMap to begin with the default one",
        )


async def pods_left(client: Client, namespace: str) -> str:
    """A line about a Deployment that has pods beside a manager outside of the cluster; or empty."""
    deployment = await read(client, DEPLOYMENTS, ObjectKey(namespace, NAME))
    problem, fix = ("", "") if deployment is None else left_behind(deployment)
    return f"deployment/{NAME} left as it is: {problem}; to remove it: {fix}" if problem else ""


async def apis_left(client: Client) -> list[str]:
    """Lines about APIServices that nothing serves without `visibilityServer`."""
    return [
        f"warning: apiservice/{name} is left, and nothing serves it without visibilityServer in "
        "the configuration, so that deleted namespaces stay Terminating; name the configuration "
        f"with --config, or kubectl delete apiservice {name}"
        for name in api_service_names()
        if await read(client, API_SERVICES, ObjectKey("", name)) is not None
    ]
