"""Leader election on a Lease: the shell around `ElectionCore`."""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import attrs

from kueuelib.api.kinds import LEASES
from kueuelib.errors import ApiError, ConfigError, LeadershipLost, NotFound, TransportError
from kueuelib.machinery.election import (
    Cancelled,
    Command,
    CreateLease,
    ElectionCore,
    ElectionOver,
    ElectionTick,
    Failed,
    Fetched,
    GetLease,
    Input,
    LeaderChanged,
    Pause,
    StartedLeading,
    StoppedLeading,
    UpdateLease,
    Written,
)
from kueuelib.machinery.options import ElectionOptions
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import until_set

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry


def default_identity() -> str:
    """Host name and a random part, so that two processes on one host differ."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """Stands for election; a part of a `Manager`, which starts elected parts once it leads.

    Give it a separate client, so that other calls cannot delay a renewal. Give the parts that write
    as the leader `client.guarded(manager.require_leadership)`: a blocked event loop delays
    renewals, too, and a guarded client asks `is_leader()` right before each write.

    An elector stands for election from the start of `run`, unless `hold` was called before.

    Args:
        client: reads and writes the Lease.
        options: the Lease, our identity, and the durations.
        clock: time.
        telemetry: where `leader_election_*` is reported.
    """

    def __init__(
        self,
        client: Client,
        options: ElectionOptions,
        *,
        clock: Clock = SYSTEM_CLOCK,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._core = ElectionCore(options)
        self._stood = asyncio.Event()
        self._log = get_logger("leader", identity=options.identity)
        self._report = self._reporter(telemetry)
        self._slow = (
            None
            if telemetry is None
            else telemetry.counter(
                "leader_election_slowpath_total", "Renewals that had to read the lease.", ("name",)
            ).labels(options.lease.name)
        )

    @property
    def identity(self) -> str:
        """The holder of the Lease while this process leads."""
        return self._options.identity

    @property
    def leading(self) -> bool:
        """Whether this process led when the Lease was last looked at."""
        return self._core.leading

    def is_leader(self) -> bool:
        """Whether this process may act as the leader at this moment."""
        return self._core.is_leader(self._clock.monotonic())

    def hold(self) -> None:
        """Only observe the Lease until `stand` is called; call it before `run`."""
        self._core.standing = False

    def stand(self) -> None:
        """Acquire the Lease as soon as it is free; calling again does nothing."""
        self._core.standing = True
        self._stood.set()

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation to the Lease when it is acquired or renewed next."""
        options = self._core.options
        annotations = {**options.annotations, key: value}
        self._core.options = attrs.evolve(options, annotations=annotations)

    async def run(self, ready: Callable[[], None]) -> None:
        """Acquire, then renew until cancelled; `ready` is called once this process leads.

        Raises:
            LeadershipLost: the Lease could not be renewed, or another process holds it.
        """
        commands: Sequence[Command] = self._core.start(self._clock.monotonic())
        why, cancelled = "", None
        while True:
            for command in commands:
                match command:
                    case StartedLeading():
                        self._log.info("became leader")
                        self._report(1)
                        ready()
                    case StoppedLeading(why):
                        self._report(0)
                    case LeaderChanged(identity):
                        self._log.info("leader changed", leader=identity)
            last = commands[-1] if commands else None
            if isinstance(last, ElectionOver):
                if cancelled is not None and why in ("cancelled", ""):
                    raise cancelled
                self._log.error("leadership lost", why=why)
                raise LeadershipLost(why)
            assert last is not None, "an election always does something"
            try:
                with anyio.CancelScope(shield=cancelled is not None):  # gives the Lease back
                    event = await self._perform(last)
            except asyncio.CancelledError as error:
                event, cancelled = Cancelled(), error
            commands = self._core.step(
                event, self._clock.monotonic(), self._clock.now(), random.random()
            )

    async def _perform(self, command: Command) -> Input:
        """Carry out a call or a wait; give up when leadership ends meanwhile."""
        deadline = self._core.deadline
        left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.0)
        try:
            with anyio.fail_after(left) as limit:
                if isinstance(command, Pause):
                    await self._pause(command.seconds)
                    return ElectionTick()
                return await self._call(command)
        except TimeoutError:
            if not limit.cancelled_caught:
                raise
            return ElectionTick()

    async def _pause(self, seconds: float) -> None:
        """Sleep; an elector that only observes wakes up when `stand` is called."""
        if self._core.standing:
            await self._clock.sleep(seconds)
            return
        async with until_set(self._stood):
            await self._clock.sleep(seconds)

    async def _call(self, command: Command) -> Input:
        if self._slow is not None and self._core.leading and isinstance(command, GetLease):
            self._slow.inc()
        try:
            with anyio.fail_after(self._options.request_timeout):
                match command:
                    case GetLease():
                        return await self._get()
                    case CreateLease(lease):
                        return Written(await self._client.create(LEASES, lease))
                    case UpdateLease(lease):
                        return Written(await self._client.replace(LEASES, lease))
        except (ApiError, TransportError, ConfigError, TimeoutError) as error:
            self._log.warning(
                "the lease is out of reach", error=with_fix(error) or "no answer in time"
            )
            return Failed(error)
        raise AssertionError(f"{command} is not a call")

    async def _get(self) -> Input:
        try:
            return Fetched(await self._client.get(LEASES, self._options.lease))
        except NotFound:
            return Fetched(None)

    def _reporter(self, telemetry: Telemetry | None) -> Callable[[float], None]:
        if telemetry is None:
            return lambda _: None
        gauge = telemetry.gauge(
            "leader_election_master_status", "Whether this process leads.", ("name",)
        ).labels(self._options.lease.name)
        gauge.set(0)
        return gauge.set
