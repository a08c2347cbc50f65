"""Runs checks in their own process, in addition to any manager."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs

from kueuelib.api.kinds import LEASES, MANAGER_NAMESPACE
from kueuelib.api.meta import ObjectKey
from kueuelib.checks.assembly import setup
from kueuelib.checks.definition import Check
from kueuelib.checks.heartbeats import lease_annotations, lease_labels, lease_name
from kueuelib.errors import ApiError, ConfigError, Forbidden, TransportError
from kueuelib.machinery.election import ElectionOptions
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import WAIT_FOR_SERVER, connect, wait_for_server
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.leader import Elector, default_identity
from kueuelib.runtime.lives import Life, live
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.namespace import own_namespace
from kueuelib.workload.served import queueing_version

LEASE_DURATION = 15.0
"""Seconds after which another replica takes over from one that died."""
RENEW_SHARE = 2 / 3
"""Part of the lease duration for which a leader that cannot renew continues."""
RETRY_SHARE = 2 / 15
"""Part of the lease duration between two renewals."""


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
    if lease_duration < 2 or lease_duration != int(lease_duration):
        raise ConfigError(
            "lease_duration", f"{lease_duration} is not valid", "give whole seconds, at least 2"
        )
    key = ObjectKey(
        namespace or own_namespace(MANAGER_NAMESPACE), lease_name(checks[0].controller_name)
    )
    election = ElectionOptions(
        lease=key,
        identity=default_identity(),  # of all lives, so that the next one knows its lost Lease
        lease_duration=lease_duration,
        renew_deadline=lease_duration * RENEW_SHARE,
        retry_period=lease_duration * RETRY_SHARE,
        release_on_cancel=True,  # cancelled last, when nothing decides
        labels=lease_labels(),
        annotations=lease_annotations([check.controller_name for check in checks]),
    )
    server = _Server(checks, kubeconfig, context)
    await live(partial(_serve_once, server, election if leader_elect else None), server_timeout)


def run(
    *checks: Check,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    namespace: str = "",
    leader_elect: bool = True,
    lease_duration: float = LEASE_DURATION,
) -> None:
    """Runs checks until SIGTERM or SIGINT; the last line of a program. See `serve`."""
    from kueuelib.runtime import logs
    from kueuelib.runtime.entry import run_script

    async def main() -> None:
        await serve(
            *checks,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            leader_elect=leader_elect,
            lease_duration=lease_duration,
        )

    logs.configure("console", "info")
    run_script(main)


@attrs.frozen
class _Server:
    """Where to connect, and for which checks."""

    checks: Sequence[Check]
    kubeconfig: str | os.PathLike[str] | Endpoint | None
    context: str | None

    async def connect(self) -> Client:
        first = self.checks[0]
        return await connect(
            self.kubeconfig,
            self.context,
            user_agent=f"kueuelib-check/{first.controller_name}",
            field_manager=first.field_manager,
        )


async def _serve_once(
    server: _Server, election: ElectionOptions | None, life: Life, patience: float
) -> None:
    checks = server.checks
    async with await server.connect() as client, _elector(server, election) as elector:
        await wait_for_server(client, patience)
        version = await queueing_version(client)
        if election is not None:
            await _may_read(client, election.lease)
        manager, cache = Manager(elector=elector), Cache(client)
        recorder = EventRecorder(client, checks[0].controller_name)
        manager.add(Group.EVENTS, recorder, "event recorder")
        leading = client.guarded(manager.require_leadership)
        setup(manager, cache, leading, recorder, checks, version=version)
        manager.add(Group.CACHES, cache, "caches")
        life.manager = manager
        try:
            await manager.run()
        finally:
            life.manager = None


@asynccontextmanager
async def _elector(
    server: _Server, election: ElectionOptions | None
) -> AsyncIterator[Elector | None]:
    """The elector with a client of its own, so that other calls cannot delay a renewal."""
    if election is None:
        yield None
        return
    async with await server.connect() as client:
        yield Elector(client, election)


async def _may_read(client: Client, lease: ObjectKey) -> None:
    """Stop early if permission is missing; the election itself retries all other failures."""
    try:
        await client.get(LEASES, lease)
    except Forbidden as error:
        raise ConfigError(
            f"Lease {lease}",
            f"may not be read ({error})",
            "grant get, create and update of leases there, or turn leader election off",
        ) from error
    except (ApiError, TransportError):
        return
