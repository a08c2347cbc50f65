"""Runs checks in a process of their own, beside whatever manager the cluster has."""

from __future__ import annotations

import os

from kueuelib.api.kinds import KUEUE, V1BETA1, V1BETA2
from kueuelib.checks.definition import Check
from kueuelib.checks.setup import setup
from kueuelib.errors import ConfigError
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connect import WAIT_FOR_SERVER, connect, wait_for_server
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager, Signals


async def serve(
    *checks: Check,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    server_timeout: float = WAIT_FOR_SERVER,
) -> None:
    """Runs checks until SIGTERM or SIGINT, or until cancelled.

    Args:
        checks: what to run.
        kubeconfig: where the cluster is; found by kubectl's rules when None.
        context: the context of the kubeconfig.
        server_timeout: seconds to wait for the API server at the start.

    Raises:
        ConfigError: there is no check, no cluster, or the cluster has no queueing API.
    """
    if not checks:
        raise ConfigError("checks", "there is nothing to run", "pass the decorated functions")
    agent = f"kueuelib-check/{checks[0].controller_name}"
    async with await connect(
        kubeconfig, context, user_agent=agent, field_manager=checks[0].field_manager
    ) as client:
        await wait_for_server(client, server_timeout)
        version = await _version(client)
        manager, cache = Manager(), Cache(client)
        recorder = EventRecorder(client, checks[0].controller_name)
        manager.add(Group.EVENTS, recorder, "event recorder")
        setup(manager, cache, client, recorder, checks, version=version)
        manager.add(Group.CACHES, cache, "caches")
        with Signals(manager.stop):
            await manager.run()


def run(
    *checks: Check,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
) -> None:
    """Runs checks until SIGTERM or SIGINT; the last line of a program. See `serve`."""
    import anyio

    from kueuelib.runtime import logs

    async def main() -> None:
        await serve(*checks, kubeconfig=kubeconfig, context=context)

    logs.configure("console", "info")
    anyio.run(main)


async def _version(client: Client) -> str:
    served = await client.served_versions(KUEUE)
    for version in (V1BETA2, V1BETA1):
        if version in served:
            return version
    endpoint = await client.transport.endpoint()
    raise ConfigError(
        endpoint.url,
        f"the cluster does not serve {KUEUE} in {V1BETA2} or {V1BETA1}",
        "install a queueing manager first, for example with kueuelib install",
    )
