"""`kueuelib apiserver`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from kueuelib.api.meta import Obj
from kueuelib.api.yaml_text import to_yaml
from kueuelib.embedded.server import ADMIN, ADMIN_GROUP, ApiServer
from kueuelib.errors import ConfigError
from kueuelib.runtime.entry import run_program

if TYPE_CHECKING:
    from kueuelib.testing.storm.over_http import HostileServer

SPARED = "spared"
"""The context of the kubeconfig without faults."""
MARK = "# Written by kueuelib apiserver; overwritten at its next start.\n"


def run(
    port: int,
    kubeconfig: Path,
    data_dir: Path | None,
    manifests: Path | None,
    *,
    simulate: bool,
    nodes: Path | None,
    racks: str,
    authorization: str,
    services: Mapping[str, str],
    hostile: str,
    seed: int,
    calm_after: float | None,
) -> None:
    """Serves until SIGTERM or SIGINT; writes the kubeconfig once the server answers.

    Raises:
        ConfigError: the port or the data folder is in use, the kubeconfig cannot be written, the
            manifests cannot be loaded, the nodes are not valid, there is no such hostile profile.
    """
    adversary = None
    if hostile:
        from kueuelib.testing.storm.over_http import HostileServer

        adversary = HostileServer(hostile, seed, _note)
    objects = []
    if manifests is not None:
        from kueuelib.embedded.loading import read_manifests

        objects = read_manifests(manifests)
    server = ApiServer(
        port,
        simulate or bool(nodes or racks),
        authorization=authorization,
        data_dir=data_dir,
        services=services,
        nodes=_nodes(nodes, racks),
        middleware=None if adversary is None else adversary.interpose,
    )
    run_program(_serve, server, kubeconfig, manifests, objects, adversary, calm_after)


def _note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _nodes(file: Path | None, racks: str) -> list[Obj]:
    """The nodes that a user asks for, in a file, in racks, or both."""
    from kueuelib.embedded.cluster.nodes import declared_nodes, nodes_in_racks

    made = nodes_in_racks(racks) if racks else []
    if file is None:
        return made
    from kueuelib.embedded.loading import read_manifests

    return [*made, *declared_nodes(read_manifests(file), str(file))]


async def _serve(
    server: ApiServer,
    kubeconfig: Path,
    manifests: Path | None,
    objects: list[Obj],
    hostile: HostileServer | None,
    calm_after: float | None,
) -> None:
    async with server, AsyncExitStack() as stack:
        if manifests is not None:
            from kueuelib.embedded.loading import load

            await load(server.service, objects, str(manifests))
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            # From now on, the server may be asked to end.
            config = server.kubeconfig()
            if hostile is not None:
                server.add_user(ADMIN, ADMIN_GROUP, token=hostile.spared)
                _add_spared(config, server.kubeconfig(hostile.spared))
                cluster = server.cluster if server.simulated else None
                stack.callback(hostile.begin(cluster, calm_after))
            _write_kubeconfig(kubeconfig, to_yaml(config))
            what = "with a simulated cluster" if server.simulated else "without a cluster"
            sys.stdout.write(f"serving {server.url} {what}; kubeconfig: {kubeconfig}\n")
            sys.stdout.flush()
            async for _ in received:
                return


def _add_spared(config: Obj, spared: Obj) -> None:
    """Add the context `spared`, whose requests have no faults."""
    (context,), (user,) = spared["contexts"], spared["users"]
    config["users"].append({**user, "name": SPARED})
    named = {**context["context"], "user": SPARED}
    config["contexts"].append({"name": SPARED, "context": named})


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
