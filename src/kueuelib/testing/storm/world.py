"""A world: the real API server and real managers on one wire, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import attrs
import orjson

from kueuelib.api.kinds import EVENTS, LEASES
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.server import ApiServer
from kueuelib.embedded.storage import StorageEvent
from kueuelib.errors import StopTimeout
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.manager import STOP_DEADLINE
from kueuelib.runtime.transport import Transport
from kueuelib.testing.storm import substitutes
from kueuelib.testing.storm.api import Api
from kueuelib.testing.storm.bundled import BundledManager
from kueuelib.testing.storm.environment import (
    INSTALLER,
    RESPAWN_SECONDS,
    SERVER_PORT,
    USER,
    Process,
    WorldProgram,
)
from kueuelib.testing.storm.exchange import Witness
from kueuelib.testing.storm.faults import Adversary
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.inside import Believes, judge
from kueuelib.testing.storm.laws import Violation
from kueuelib.testing.storm.loop import (
    ACTOR,
    OWNER,
    STORM,
    ListenAddress,
    SimulatedProcess,
    StormLoop,
)
from kueuelib.testing.storm.network import SERVER, SERVER_HOST, Network
from kueuelib.testing.storm.over_http import past_list

# ---- one start of a manager: its process is restarted until it is killed, as by a kubelet --------

READY = 120.0
"""Seconds within which a process has to be ready."""


class ProcessEnvironment(Protocol):
    """The part of a `World` that a process needs; see there."""

    wire: Network
    endings: list[str]

    @property
    def now(self) -> float:
        """Seconds since the beginning of the world."""

    def tell(self, line: str) -> None:
        """Write a line into the trace."""


@attrs.define(eq=False)
class Started:
    """One start of a manager.

    Attributes:
        world: its world.
        owner: its name, clocks and chance.
        process: the program's process.
        task: the running task.
    """

    world: ProcessEnvironment
    owner: SimulatedProcess
    process: Process
    task: asyncio.Task[Any] | None = None

    async def live(self) -> None:
        """Run the process, and restart it when it ends by itself, like a kubelet."""
        world, name = self.world, self.owner.name
        while not self.process.stopped:
            if world.wire.witness is not None:
                world.wire.witness.reborn(name)
            try:
                await self.process.run()
                why = "stopped"
            except Exception as error:  # noqa: BLE001 - a program that ends is reported
                why = f"{type(error).__name__}: {error}"
                if not (isinstance(error, StopTimeout) and self._overslept()):
                    world.endings.append(f"{name}: {why}")
            world.tell(f"{name} ended: {why}")
            await asyncio.sleep(RESPAWN_SECONDS)

    async def until_ready(self, limit: float) -> None:
        """Wait until all parts that may run are ready.

        Raises:
            TimeoutError: they are not in time.
        """
        end = self.world.now + limit
        while not self.process.ready:
            if self.world.now > end:
                why = "".join(f"; {text}" for text in self.world.endings[-1:])
                raise TimeoutError(f"{self.owner.name} is not ready after {limit:g} s{why}")
            await asyncio.sleep(0.05)

    def _overslept(self) -> bool:
        """Whether a stopping process may have missed its deadline because it was paused."""
        return self.world.now - self.owner.woken_at <= STOP_DEADLINE


# ---- records every write that the store accepted, in the form for the laws -----------------------


class Chronicle:
    """Records writes, and passes them on.

    Args:
        loop: the time of the world.
        server: the owner of the server, whose clock stamps the writes.
        tell: gets a line for each write.

    Attributes:
        history: all writes.
        revisions: when the store reached each revision.
        listeners: called with every write.
        last_write: when an object other than a Lease or an Event was last written.
    """

    def __init__(
        self, loop: StormLoop, server: SimulatedProcess, tell: Callable[[str], None]
    ) -> None:
        self.history: list[Commit] = []
        self.revisions: list[tuple[float, int]] = []
        self.listeners: list[Callable[[Commit], None]] = []
        self.last_write = 0.0
        self._loop = loop
        self._server = server
        self._tell = tell
        self._decoded: dict[tuple[str, str, str], Any] = {}

    def note(self, kind: Kind, change: StorageEvent) -> None:
        """Note one write; a listener of the store."""
        now = self._loop.now
        resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        namespace, name = change.after.key
        key = (resource, namespace, name)
        new = orjson.loads(change.after.raw)
        old = self._decoded.get(key)
        if old is None and change.before is not None:
            old = change.before.obj()
        if change.removed:
            self._decoded.pop(key, None)
        else:
            self._decoded[key] = new
        commit = Commit(
            self._server.wall(now),
            change.revision,
            ACTOR.get() or SERVER,
            resource,
            namespace,
            name,
            old,
            None if change.removed else new,
        )
        self.history.append(commit)
        self.revisions.append((now, change.revision))
        if kind.plural not in (LEASES.plural, EVENTS.plural):
            self.last_write = now
        verb = "removes" if change.removed else "changes" if old is not None else "creates"
        self._tell(f"= {commit.actor} {verb} {commit.title} at {change.revision}")
        for listener in self.listeners:
            listener(commit)


# --------------------------------------------------------------------------------------------------


class _Server(ApiServer):
    """The API server, on the wire instead of a socket."""

    def _listen(self) -> Any:
        return ListenAddress(SERVER_HOST, SERVER_PORT)


class World:
    """One simulated cluster. A process can have only one, and must not be used for anything else.

    Args:
        seed: of all random numbers.
        disorder: the share of callbacks that run out of order.
        program: of the managers; None for the bundled manager.
        companions: further programs, by the names of their processes. They are installed first,
            and have no faults.
        log: whether log lines of the managers get into the trace.

    Attributes:
        loop: the event loop.
        wire: the network.
        history: every write that the store accepted.
        listeners: called with every commit.
        trace: receives all events, line by line; None: dropped.
        endings: how managers ended by themselves, as text.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        disorder: float = 0.0,
        program: WorldProgram | None = None,
        companions: Mapping[str, WorldProgram] | None = None,
        log: bool = False,
    ) -> None:
        self.seed = seed
        self.loop = StormLoop(seed, disorder)
        asyncio.set_event_loop(self.loop)
        self.wire = Network(self.loop)
        self.wire.clean |= {INSTALLER, USER, *(companions or {})}
        self.wire.stale = lambda call, seconds: past_list(
            self.server.service, self.revisions, call, self.now - seconds
        )
        self.trace: Callable[[str], None] | None = None
        self.endings: list[str] = []
        self.program: WorldProgram = program or BundledManager()
        self.companions: Mapping[str, WorldProgram] = companions or {}
        self._lives: dict[str, int] = {}
        self._owners: list[SimulatedProcess] = []
        self.managers: dict[str, Started] = {}
        self._minds: dict[str, Believes] = {}
        self._beside: dict[str, Started] = {}
        self._started: list[Started] = []
        self._server_owner = self._new_owner(SERVER)
        self._chronicle = Chronicle(self.loop, self._server_owner, self.tell)
        self.history = self._chronicle.history
        self.listeners = self._chronicle.listeners
        self.revisions = self._chronicle.revisions
        substitutes.install(self.loop, self._logged if log else None)
        services = {
            name: address for each in self._programs() for name, address in each.services.items()
        }
        self.server: ApiServer = _Server(port=SERVER_PORT, simulate=True, services=services)
        self._endpoint: Endpoint | None = None

    # ---- the run

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine as the storm until it ends."""
        return self.loop.run_until_complete(work)

    def reseed(self, seed: int, disorder: float = 0.0) -> None:
        """Restart all random sequences with another seed."""
        self.seed = seed
        self.loop.schedule.seed(seed)
        self.loop.disorder = disorder
        for owner in (STORM, *self._owners):
            owner.reseed(seed)

    async def boot(self, *managers: str) -> None:
        """Start the server, install everything, and start managers until they are ready."""
        self.wire.tell = self.tell
        await self.loop.spawn(self._server_owner, self.server.__aenter__())
        self.server.service.commits.listen(self._chronicle.note)
        self._endpoint = Endpoint(
            url=f"http://{SERVER_HOST}:{SERVER_PORT}",
            authorization=f"Bearer {self.server.token}",
            source="storm",
        )
        for name, program in self.companions.items():
            await self._install(program)
            self._beside[name] = self._start(name, program)
            await self._beside[name].until_ready(READY)
        await self._install(self.program)
        for name in managers or ("manager-1",):
            await self.start_manager(name)
            await self.ready(name)

    async def _install(self, program: WorldProgram) -> None:
        assert self._endpoint is not None
        api = self.user(INSTALLER)

        async def install(endpoint: Endpoint) -> None:
            async with Client(Transport(endpoint), field_manager="kueue") as client:
                await program.install(client, api)

        await self.loop.spawn(self._new_owner(INSTALLER), install(self._endpoint))

    def _programs(self) -> tuple[WorldProgram, ...]:
        return (*self.companions.values(), self.program)

    @property
    def now(self) -> float:
        """Seconds since the beginning of the world."""
        return self.loop.now

    def tell(self, line: str) -> None:
        """Write a line into the trace."""
        if self.trace is not None:
            self.trace(f"{self.loop.now:12.6f} {line}")

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    @property
    def behind(self) -> bool:
        """Whether some process may not know of all events yet: a watch is silent, or an event is
        late.
        """
        return self.wire.behind

    async def quiet(self, seconds: float, limit: float) -> bool:
        """Wait until only Leases and Events have been written for some time.

        Args:
            seconds: without a write.
            limit: the time limit in seconds.

        Returns:
            whether it became quiet.
        """
        end = self.now + limit
        begun = self.now
        while self.now < end:
            last = max(self._chronicle.last_write, begun)
            if self.now - last >= seconds:
                return True
            await self.sleep(min(last + seconds, end) - self.now + 0.001)
        return False

    # ---- managers

    async def start_manager(self, name: str) -> None:
        """Start a manager; one of that name must be dead or never started."""
        earlier = self.managers.get(name)
        if earlier is not None and earlier.owner.alive:
            raise ValueError(f"{name} runs already")
        self.managers[name] = self._start(name, self.program)
        self._started.append(self.managers[name])

    async def ready(self, name: str, limit: float = READY) -> None:
        """Wait until all parts of a manager that may run are ready.

        Raises:
            TimeoutError: they are not in time.
        """
        await self.managers[name].until_ready(limit)

    def _start(self, name: str, program: WorldProgram) -> Started:
        assert self._endpoint is not None, "boot the world first"
        started = Started(self, self._new_owner(name), program.process(self._endpoint))
        self.tell(f"{name} starts")
        started.task = self.loop.spawn(started.owner, started.live())
        return started

    # ---- disasters

    def kill(self, name: str) -> None:
        """End a process at whatever await it is; nothing of it still runs."""
        owner = self.owner(name)
        self.tell(f"{name} is killed")
        self.wire.drop(owner)
        self.loop.kill(owner)

    def pause(self, name: str) -> None:
        """Pause a process; its connections stay open."""
        self.tell(f"{name} is paused")
        self.owner(name).paused = True

    def resume(self, name: str) -> None:
        """Let a paused process continue."""
        self.tell(f"{name} continues")
        if self.wire.witness is not None:
            self.wire.witness.woken(name, self.now)
        self.loop.resume(self.owner(name))

    async def next_write(self, name: str, limit: float) -> None:
        """Wait until a process writes an object other than a Lease, or for a number of seconds."""
        written = asyncio.Event()

        def listen(commit: Commit) -> None:
            if commit.actor == name and commit.resource != "leases.coordination.k8s.io":
                written.set()

        self.listeners.append(listen)
        try:
            async with asyncio.timeout(limit):
                await written.wait()
        except TimeoutError:
            pass
        finally:
            self.listeners.remove(listen)

    def skew(self, name: str, offset: float, rate: float) -> None:
        """Set the clock of a process wrong.

        Args:
            name: of the process.
            offset: seconds by which its wall clock is ahead.
            rate: seconds of its clocks in one of the world.
        """
        self.tell(f"the clock of {name} is {offset:+g} s off and runs at {rate:g}")
        owner = self.owner(name)
        owner.skew(self.now, offset, rate)
        self.loop.retime(owner)

    async def stop_manager(self, name: str, limit: float = 60.0) -> bool:
        """Stop a manager gracefully; return whether it ended in time."""
        running = self.managers[name]
        self.tell(f"{name} is asked to stop")
        self.loop.call_soon(running.process.stop)
        assert running.task is not None
        done, _ = await asyncio.wait((running.task,), timeout=limit)
        self.kill(name)
        return bool(done)

    async def replace_program(self, program: WorldProgram) -> None:
        """Restart every manager with another program."""
        self.program = program
        for name in tuple(self.managers):
            await self.stop_manager(name)
            await self.start_manager(name)
            await self.ready(name)

    async def restart_server(self, *, history: bool, down: float = 0.5) -> None:
        """Break all connections of the server, and refuse new ones for a while.

        Args:
            history: whether watches can be resumed; otherwise all old resource versions are gone.
            down: seconds for which connections are refused.
        """
        self.tell(f"the server restarts {'with' if history else 'without'} its history")
        self.wire.down = True
        self.wire.reset(self._server_owner)
        await self.sleep(down)
        if not history:
            self.compact()
        self.wire.down = False
        self.tell("the server is back")

    def hold_jobs(self, *, held: bool) -> None:
        """Pause or resume the Job controller."""
        self.tell(f"the Job controller {'stands still' if held else 'continues'}")
        self.server.cluster.hold_jobs(held)

    def hold_garbage(self, *, held: bool) -> None:
        """Pause or resume the garbage collector."""
        self.tell(f"the garbage collector {'stands still' if held else 'continues'}")
        self.server.cluster.hold_garbage(held)

    def delay_jobs(self, seconds: float) -> None:
        """Let the Job controller write that long after it has read."""
        self.tell(f"the Job controller lags by {seconds:g} s")
        self.server.cluster.delay_jobs(seconds)

    def compact(self) -> None:
        """Forget all old resource versions, as etcd does; open watches continue where they can."""
        self.server.service.storage.compact()

    def set_witness(self, witness: Witness | None) -> None:
        """Choose the observer of calls and of answers that arrive."""
        self.wire.witness = witness

    def set_adversary(self, adversary: Adversary | None) -> None:
        """Choose the owner of the wire; None: no faults."""
        self.wire.adversary = adversary

    # ---- looking

    def alive(self, name: str) -> bool:
        """Whether a manager was started and not killed since."""
        return self.managers[name].owner.alive

    @property
    def problems(self) -> list[str]:
        """Uncaught exceptions of callbacks and tasks."""
        return self.loop.problems

    def owner(self, name: str) -> SimulatedProcess:
        """The present process of that name.

        Raises:
            ValueError: there is none.
        """
        for owner in reversed(self._owners):
            if owner.name == name:
                return owner
        raise ValueError(f"there is no process {name}")

    def user(self, name: str = USER) -> Api:
        """Calls without faults, in the name of a user."""
        return Api(self.loop, self.server.service, self._server_owner, name)

    def objects(self, resource: str) -> list[dict[str, Any]]:
        """The stored objects of one kind, named `plural.group`."""
        plural, _, group = resource.partition(".")
        kind = self.server.service.registry.by_plural(group, plural)
        if kind is None:
            return []
        return [entry.obj() for entry in self.server.service.storage.table(kind.table).entries()]

    def metrics(self, name: str) -> dict[str, float]:
        """The metrics of a manager: from `name{label="value"}` to a number."""
        telemetries = self.managers[name].process.telemetries
        values: dict[str, float] = {}
        for line in telemetries[-1].render().decode().splitlines() if telemetries else ():
            if line and not line.startswith("#"):
                key, _, value = line.rpartition(" ")
                values[key] = float(value)
        return values

    def mind(self, name: str) -> Believes | None:
        """The mind of a manager: the same one until it ends or restarts."""
        one = self.managers.get(name)
        root = one.process.root if one is not None and one.owner.alive else None
        known = self._minds.get(name)
        if known is None or known.root is not root:
            known = self._minds[name] = Believes(root)
        return None if root is None else known

    def inside(self) -> list[Violation]:
        """The violations in the memory of running managers, at rest."""
        return judge(
            {name: one.process.root for name, one in self.managers.items() if one.owner.alive},
            self.objects,
            self.history,
            [(one.owner.name, each) for one in self._started for each in one.process.telemetries],
            self.now,
        )

    def forget_ended(self) -> None:
        """Drop what is kept of managers that were started again since, with all their metrics."""
        self._started = list(self.managers.values())

    def _new_owner(self, name: str) -> SimulatedProcess:
        life = self._lives.get(name, 0)
        self._lives[name] = life + 1
        owner = SimulatedProcess(name, life)
        owner.reseed(self.seed)
        self._owners.append(owner)
        return owner

    def _logged(self, line: str) -> None:
        self.tell(f"{OWNER.get().name}: {line}")
