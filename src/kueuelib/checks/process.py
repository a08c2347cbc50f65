"""Runs checks in their own process, in addition to any manager."""

from __future__ import annotations

import os
from functools import partial

from kueuelib.api.kinds import MANAGER_NAMESPACE
from kueuelib.api.meta import ObjectKey
from kueuelib.checks.assembly import setup
from kueuelib.checks.definition import Check
from kueuelib.checks.heartbeats import lease_annotations, lease_labels, lease_name
from kueuelib.errors import ConfigError
from kueuelib.runtime import program
from kueuelib.runtime.addresses import own_namespace
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import WAIT_FOR_SERVER, connect
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.program import LEASE_DURATION, candidacy
from kueuelib.workload.served import queueing_version


async def serve(
    *checks: Check,
    kubeconfig: str | os.PathLike[str] | Endpoint | None = None,
    context: str | None = None,
    server_timeout: float = WAIT_FOR_SERVER,
    namespace: str = "",
    leader_elect: bool = True,
    lease_duration: float = LEASE_DURATION,
) -> None:
    """Runs checks until SIGTERM or SIGINT, or until cancelled.

    If there are several replicas, the one that holds the Lease decides. A manager in the same
    namespace shows in the AdmissionChecks that a Lease is no longer renewed.

    Args:
        checks: the checks to run.
        kubeconfig: a file, found by kubectl's rules when None; or where the server is.
        context: the context of the kubeconfig.
        server_timeout: seconds to wait for the API server at the start.
        namespace: of the Lease; when empty the pod's, or `kueue-system` outside a cluster.
        leader_elect: whether to wait for the Lease; without it only one replica may run.
        lease_duration: seconds after which another replica takes over from one that died, whole
            and at least 2.

    Raises:
        ConfigError: there is no check, no cluster, or the cluster has no queueing API; the Lease
            may not be read; `lease_duration` is too short.
    """
    if not checks:
        raise ConfigError("checks", "there is nothing to run", "pass the decorated functions")
    key = ObjectKey(
        namespace or own_namespace(MANAGER_NAMESPACE), lease_name(checks[0].controller_name)
    )
    election = candidacy(
        key,
        lease_duration,
        labels=lease_labels(),
        annotations=lease_annotations([check.controller_name for check in checks]),
    )
    first = checks[0]

    async def reach() -> Client:
        return await connect(
            kubeconfig,
            context,
            user_agent=f"kueuelib-check/{first.controller_name}",
            field_manager=first.field_manager,
        )

    async def assemble(
        manager: Manager, cache: Cache, client: Client, recorder: EventRecorder
    ) -> None:
        version = await queueing_version(client)
        setup(manager, cache, client, recorder, checks, version=version)

    await program.serve(
        reach,
        election if leader_elect else None,
        first.controller_name,
        assemble,
        server_timeout,
    )


def run(
    *checks: Check,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    namespace: str = "",
    leader_elect: bool = True,
    lease_duration: float = LEASE_DURATION,
) -> None:
    """Runs checks until SIGTERM or SIGINT; the last line of a program. See `serve`."""
    from kueuelib.runtime.entry import run_logged

    run_logged(
        partial(
            serve,
            *checks,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            leader_elect=leader_elect,
            lease_duration=lease_duration,
        )
    )
