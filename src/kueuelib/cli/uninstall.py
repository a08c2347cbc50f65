"""`kueuelib uninstall`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from kueuelib.app.configuration import VisibilityServer
from kueuelib.app.deployment import Deployed
from kueuelib.app.installation import Installation, check_namespace
from kueuelib.app.uninstallation import Removal, uninstall
from kueuelib.runtime import logs
from kueuelib.runtime.connection import connect, wait_for_server


def run(
    kubeconfig: Path | None, namespace: str, server_timeout: float, *, force: bool, keep_kinds: bool
) -> None:
    """Removes what `kueuelib install` wrote.

    Raises:
        ConfigError: Workloads hold quota, or the kinds were not removed in time.
        ApiError: the server refused something.
    """
    logs.configure("console", "info")
    every = Deployed(
        service_monitor=True, dashboards=True, visibility_port=VisibilityServer().bind_port
    )
    check_namespace(namespace)
    installation = Installation(namespace, deployed=every)
    removal = Removal(installation, force, keep_kinds)
    for line in anyio.run(_uninstall, kubeconfig, removal, server_timeout):
        sys.stdout.write(f"{line}\n")


async def _uninstall(kubeconfig: Path | None, removal: Removal, patience: float) -> list[str]:
    async with await connect(kubeconfig, user_agent="kueuelib-uninstall") as client:
        await wait_for_server(client, patience, starting=False)
        return await uninstall(client, removal, patience)
