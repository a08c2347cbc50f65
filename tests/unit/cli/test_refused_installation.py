"""What `kueuelib install` says if the API server refuses what it writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from kueuelib.api import kinds
from kueuelib.api.kinds import MANAGER_NAMESPACE
from kueuelib.app.configuration import InternalCertManagement
from kueuelib.cli.install import InstallOptions, run
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ApiError
from kueuelib.runtime.connection import connect

URL, SECONDS = "https://127.0.0.1:9443", 60.0


async def refused(kubeconfig: Path) -> str:
    """What an installation ends with."""
    with pytest.raises(ApiError) as found:
        await asyncio.to_thread(
            run, kubeconfig, URL, MANAGER_NAMESPACE, SECONDS, InstallOptions(), print_only=False
        )
    return found.value.message


async def test_a_refusal_comes_with_the_command_that_helps(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    place = {"namespace": MANAGER_NAMESPACE}
    name = InternalCertManagement().webhook_secret_name
    async with ApiServer() as server:
        kubeconfig.write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(kubeconfig) as client:
            space = {"apiVersion": "v1", "kind": "Namespace"}
            await client.create(
                kinds.NAMESPACES, {**space, "metadata": {"name": MANAGER_NAMESPACE}}
            )
            secret = {"apiVersion": "v1", "kind": "Secret", "immutable": True}
            await client.create(kinds.SECRETS, {**secret, "metadata": {"name": name, **place}})
            assert (await refused(kubeconfig)).endswith(
                f"; kubectl -n {MANAGER_NAMESPACE} delete secret {name}  # it is immutable; then "
                "try again"
            )
