"""`kueuelib install`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from kueuelib.api.crd import to_yaml
from kueuelib.app.installation import Plan, checked_url, install
from kueuelib.runtime import logs
from kueuelib.runtime.connect import connect, wait_for_server


def run(
    kubeconfig: Path | None,
    webhook_url: str | None,
    namespace: str,
    server_timeout: float,
    *,
    print_only: bool,
) -> None:
    """Installs, or prints what would be installed.

    Raises:
        ConfigError: what was given cannot work, or the kinds are not served in time.
        ApiError: the server refused something.
    """
    plan = Plan(namespace, checked_url(webhook_url))
    if print_only:
        sys.stdout.write("---\n".join(to_yaml(obj) for obj in plan.manifests()))
        return
    logs.configure("console", "info")
    for line in anyio.run(_install, kubeconfig, plan, server_timeout):
        sys.stdout.write(f"{line}\n")


async def _install(kubeconfig: Path | None, plan: Plan, server_timeout: float) -> list[str]:
    async with await connect(kubeconfig, user_agent="kueuelib-install") as client:
        await wait_for_server(client, server_timeout)
        return await install(client, plan, server_timeout)
