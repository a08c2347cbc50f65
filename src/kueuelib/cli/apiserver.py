"""`kueuelib apiserver`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import yaml

from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ConfigError


def run(
    port: int,
    kubeconfig: Path,
    data_dir: Path | None,
    *,
    simulate: bool,
    authorization: str = "always",
) -> None:
    """Serves until SIGTERM or SIGINT; writes the kubeconfig once the server answers.

    Raises:
        ConfigError: the port is in use, or the kubeconfig cannot be written.
    """
    if data_dir is not None:
        raise ConfigError(
            "--data-dir",
            "state on disk is not available in this version",
            "leave it out: the state is kept in memory (see docs/missing.md)",
        )
    anyio.run(_serve, port, kubeconfig, simulate, authorization)


async def _serve(port: int, kubeconfig: Path, simulate: bool, authorization: str) -> None:
    async with ApiServer(port=port, simulate=simulate, authorization=authorization) as server:
        _write_kubeconfig(kubeconfig, yaml.safe_dump(server.kubeconfig(), sort_keys=False))
        what = "with a simulated cluster" if simulate else "without a cluster"
        sys.stdout.write(f"serving {server.url} {what}; kubeconfig: {kubeconfig}\n")
        sys.stdout.flush()
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async for _ in received:
                return


def _write_kubeconfig(path: Path, text: str) -> None:
    """Replaces the file in one step, readable by its owner only: it holds credentials."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.touch(mode=0o600)
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(path), problem, "give a file that can be written") from error
