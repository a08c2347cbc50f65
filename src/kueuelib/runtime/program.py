"""Programs without a configuration file: a manager with caches and events, and its election."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType

from kueuelib.api.kinds import LEASES
from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ApiError, ConfigError, Forbidden, TransportError
from kueuelib.machinery.options import ElectionOptions
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import wait_for_server
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.leader import Elector, default_identity
from kueuelib.runtime.manager import Group, Manager, ProgramRun, run_until_signal

LEASE_DURATION = 15.0
"""Seconds after which another replica takes over from one that died."""
RENEW_SHARE = 2 / 3
"""Part of the lease duration for which a leader that cannot renew continues."""
RETRY_SHARE = 2 / 15
"""Part of the lease duration between two renewals."""
_NOTHING: Mapping[str, str] = MappingProxyType({})

Assemble = Callable[[Manager, Cache, Client, EventRecorder], Awaitable[None]]
"""Adds the parts of a program to its manager."""


def candidacy(
    lease: ObjectKey,
    lease_duration: float = LEASE_DURATION,
    *,
    labels: Mapping[str, str] = _NOTHING,
    annotations: Mapping[str, str] = _NOTHING,
) -> ElectionOptions:
    """The options of an election, with one identity for all lives of the process.

    Args:
        lease: namespace and name of the Lease.
        lease_duration: seconds after which another replica takes over from one that died.
        labels: of the Lease.
        annotations: of the Lease.

    Raises:
        ConfigError: the duration is not whole, or less than 2.
    """
    if lease_duration < 2 or lease_duration != int(lease_duration):
        raise ConfigError(
            "lease_duration", f"{lease_duration} is not valid", "give whole seconds, at least 2"
        )
    return ElectionOptions(
        lease=lease,
        identity=default_identity(),  # of all lives, so that the next one knows its lost Lease
        lease_duration=lease_duration,
        renew_deadline=lease_duration * RENEW_SHARE,
        retry_period=lease_duration * RETRY_SHARE,
        release_on_cancel=True,  # cancelled last, when nothing decides
        labels=labels,
        annotations=annotations,
    )


async def serve(
    connect: Callable[[], Awaitable[Client]],
    election: ElectionOptions | None,
    component: str,
    assemble: Assemble,
    server_timeout: float,
) -> None:
    """Runs a program until SIGTERM or SIGINT, or until cancelled; see `live_once`.

    Args:
        connect: makes a client.
        election: None for none.
        component: that reports the events.
        assemble: adds the parts.
        server_timeout: seconds to wait for the API server at the start.
    """
    await run_until_signal(
        partial(live_once, connect, election, component, assemble), server_timeout
    )


async def live_once(
    connect: Callable[[], Awaitable[Client]],
    election: ElectionOptions | None,
    component: str,
    assemble: Assemble,
    life: ProgramRun,
    patience: float,
) -> None:
    """One life of a program, for `run_until_signal`.

    Args:
        connect: makes a client; the election gets one of its own, so that other calls cannot delay
            a renewal.
        election: None for none.
        component: that reports the events.
        assemble: adds the parts.
        life: this one.
        patience: seconds to wait for the API server.

    Raises:
        ConfigError: `assemble` failed, or the Lease may not be read.
    """
    async with await connect() as client, _elector(connect, election) as elector:
        await wait_for_server(client, patience)
        manager, cache = Manager(elector=elector), Cache(client)
        recorder = EventRecorder(client, component)
        manager.add(Group.EVENTS, recorder, "event recorder")
        await assemble(manager, cache, client, recorder)
        manager.add(Group.CACHES, cache, "caches")
        if election is not None:
            await _may_read(client, election.lease)
        await life.run(manager)


@asynccontextmanager
async def _elector(
    connect: Callable[[], Awaitable[Client]], options: ElectionOptions | None
) -> AsyncIterator[Elector | None]:
    if options is None:
        yield None
        return
    async with await connect() as client:
        yield Elector(client, options)


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
