"""`kueuelib apiserver`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio

from kueuelib.api.meta import Obj
from kueuelib.api.yaml_text import to_yaml
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ConfigError
from kueuelib.runtime.entry import run_program

MARK = "# Written by kueuelib apiserver; overwritten at its next start.\n"


def run(
    port: int,
    kubeconfig: Path,
    data_dir: Path | None,
    manifests: Path | None = None,
    *,
    simulate: bool,
    authorization: str = "always",
    services: Mapping[str, str] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT; writes the kubeconfig once the server answers.

    Raises:
        ConfigError: the port or the data folder is in use, the kubeconfig cannot be written, the
            manifests cannot be loaded.
    """
    objects = []
    if manifests is not None:
        from kueuelib.embedded.loading import read_manifests

        objects = read_manifests(manifests)
    server = ApiServer(
        port, simulate, authorization=authorization, data_dir=data_dir, services=services
    )
    run_program(_serve, server, kubeconfig, manifests, objects)


async def _serve(
    server: ApiServer, kubeconfig: Path, manifests: Path | None, objects: list[Obj]
) -> None:
    async with server:
        if manifests is not None:
            from kueuelib.embedded.loading import load

            await load(server.service, objects, str(manifests))
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            # From now on, the server may be asked to end.
            _write_kubeconfig(kubeconfig, to_yaml(server.kubeconfig()))
            what = "with a simulated cluster" if server.simulated else "without a cluster"
            sys.stdout.write(f"serving {server.url} {what}; kubeconfig: {kubeconfig}\n")
            sys.stdout.flush()
            async for _ in received:
                return


def _is_ours(path: Path) -> bool:
    """Whether the file is one that an earlier server wrote."""
    try:
        return path.is_file() and path.read_text().startswith(MARK)
    except (OSError, UnicodeDecodeError):
        return False


def _write_kubeconfig(path: Path, text: str) -> None:
    """Replaces the file in one step, readable by its owner only: it holds credentials."""
    if path.exists() and not _is_ours(path):
        raise ConfigError(
            str(path), "holds something else, which would be lost", "give another file, or move it"
        )
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.touch(mode=0o600)
        draft.write_text(MARK + text)
        draft.replace(path)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(path), problem, "give a file that can be written") from error
