"""Finds the version of the queueing API that a cluster serves."""

from __future__ import annotations

from kueuelib.api.kinds import KUEUE, V1BETA1, V1BETA2
from kueuelib.errors import ConfigError
from kueuelib.runtime.client import Client


async def queueing_version(client: Client) -> str:
    """The newest version that this cluster serves and that we support.

    Raises:
        ConfigError: the CRDs are not installed.
    """
    served = await client.served_versions(KUEUE)
    for version in (V1BETA2, V1BETA1):
        if version in served:
            return version
    endpoint = await client.transport.endpoint()
    raise ConfigError(
        endpoint.url,
        f"the cluster does not serve {KUEUE} in {V1BETA2} or {V1BETA1}",
        "run kueuelib install first, or install Kueue",
    )
