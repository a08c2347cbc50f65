"""`kueuelib node`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from kueuelib.node.node import LocalNode, NodeOptions
from kueuelib.node.sandbox import ImageFolder, claim_folder
from kueuelib.runtime import logs
from kueuelib.runtime.connection import connect, wait_for_server
from kueuelib.runtime.entry import give_back, run_program


def run(
    kubeconfig: Path | None,
    name: str,
    images: Sequence[str],
    claims: Mapping[str, str],
    cpu: str,
    memory: str,
    labels: Mapping[str, str],
    *,
    no_sandbox: bool,
    folder: Path | None,
    port: int,
    log_format: str,
    log_level: str,
    server_timeout: float,
) -> int:
    """Runs a node until SIGTERM or SIGINT.

    Raises:
        ConfigError: an argument is not valid, or the node may not or cannot run here.
    """
    logs.configure(log_format, log_level)
    options = NodeOptions(
        name,
        tuple(map(ImageFolder.parse, images)),
        {name: claim_folder(name, path) for name, path in claims.items()},
        cpu,
        memory,
        labels=labels,
        sandbox=not no_sandbox,
        folder=folder,
        port=port,
    )
    run_program(_run, kubeconfig, options, server_timeout)
    return 0


async def _run(kubeconfig: Path | None, options: NodeOptions, server_timeout: float) -> None:
    async with await connect(kubeconfig, user_agent="kueuelib-node") as client:
        await wait_for_server(client, server_timeout)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async with LocalNode(client, options) as node:
                safety = "in a sandbox" if node.sandboxed else "WITHOUT a sandbox, as this user"
                sys.stdout.write(f"node {options.name} is ready; pods run {safety}\n")
                sys.stdout.flush()
                give_back()
                async for _ in received:
                    return
