"""The faults and disasters that a storm may use, and the weather that a seed draws.

A swarm: each seed uses a random subset of the faults at random rates, so that one kind of fault
does not mask another.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs

from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.faults import CATALOGUE

__all__ = [
    "PROFILES",
    "Disaster",
    "DisasterTarget",
    "Outage",
    "Profile",
    "ServerTarget",
    "Weather",
    "disasters",
    "perform",
    "perform_on_server",
    "weather",
]


WORKLOADS: Final = "workloads.kueue.x-k8s.io"
RESOURCES: Final = (
    WORKLOADS,
    "jobs.batch",
    "pods",
    "clusterqueues.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "leases.coordination.k8s.io",
)
"""Resources of the bundled manager on which a seed may focus its faults."""

_WIRE: Final = frozenset(k.name for k in CATALOGUE.values() if k.place in {"connect", "call"})
_WATCH: Final = frozenset(k.name for k in CATALOGUE.values() if k.place in {"watch", "event"})
_WEBHOOK: Final = frozenset(k.name for k in CATALOGUE.values() if k.place == "webhook")
_MOMENTS: Final = frozenset(k.name for k in CATALOGUE.values() if k.place == "moment")
_SERVER: Final = frozenset({"server-restart", "server-amnesia"})
_RESTARTS: Final = _SERVER | {"kill", "kill-after-write", "stop", "stop-after-write"}
_SLOW: Final = frozenset({"delay", "slow-answer"})
_DELAYS: Final = frozenset({"delay", "slow-answer", "event-delay", "slow-connect"})


@attrs.frozen
class Profile:
    """A named family of storms.

    Attributes:
        name: The name on the command line.
        kinds: The faults that a seed may use.
        active: Bounds of the probability that a seed uses a kind.
        always: The kinds that each seed uses.
        rates: Bounds of the probability of an active fault per call or event.
        longest: The longest delays in seconds, one of which a seed draws.
        managers: Numbers of managers, one of which a seed draws.
        users: Whether hostile users take part.
        jobs: The least and the largest number of jobs.
        edits: Whether users edit templates of Jobs, and managers have settings that are rare.
        waits: Whether managers wait for ready pods, share by past use, and jobs have time limits.
        crowds: The probability of a crowd: many short jobs of all priorities that arrive in waves.
        disasters: The least and the largest number of disasters of each active kind.
        pauses: Bounds of the length of a pause in seconds.
        skew: The largest offset of a clock in seconds.
        rate: The largest deviation of a clock's rate from 1.
    """

    name: str
    kinds: frozenset[str] = frozenset(CATALOGUE) - _MOMENTS
    active: tuple[float, float] = (0.25, 0.5)
    always: frozenset[str] = frozenset()
    rates: tuple[float, float] = (0.1, 0.5)
    longest: tuple[float, ...] = (0.3, 1.0, 4.0, 15.0, 60.0, 120.0)
    managers: tuple[int, ...] = (1, 1, 1, 2)
    users: bool = True
    jobs: tuple[int, int] = (6, 14)
    edits: bool = False
    waits: bool = False
    crowds: float = 0.0
    disasters: tuple[int, int] = (1, 3)
    pauses: tuple[float, float] = (0.5, 60.0)
    skew: float = 30.0
    rate: float = 0.1


@attrs.frozen
class Outage:
    """A window in which every call of one owner for one resource fails.

    Attributes:
        label: Names it for suppression.
        owner: The manager that cannot reach the resource; empty for every client.
        resource: The resource.
        reads: Whether only reads fail; otherwise only writes.
        start: Seconds after the start of the storm.
        end: Seconds after the start of the storm.
    """

    label: str
    owner: str
    resource: str
    reads: bool
    start: float
    end: float


@attrs.frozen
class Weather:
    """The behaviour of one seed, drawn from its profile.

    Attributes:
        profile: The profile that it was drawn from.
        rates: The probability of each active fault.
        longest: The longest delay in seconds.
        focus: The resource with more faults, or an empty string.
        spared: Resources without faults.
        managers: How many managers run.
        outages: Windows in which a resource is unavailable.
        seconds: The shortest length of the storm in seconds.
    """

    profile: Profile
    rates: dict[str, float]
    longest: float
    focus: str
    spared: frozenset[str]
    managers: int
    outages: tuple[Outage, ...]
    seconds: float


def weather(
    draws: Draws, profile: Profile, *, resources: tuple[str, ...] = RESOURCES, replicas: int = 2
) -> Weather:
    """Draw the weather of one seed.

    Args:
        draws: The stream of the weather.
        profile: The family that the seed belongs to.
        resources: Resources on which faults may focus, and which may be unavailable.
        replicas: The largest number of managers.
    """
    share = draws.uniform("share", *profile.active)
    restarts = draws.chance("restarts", 0.5)
    rates: dict[str, float] = {}
    for name in sorted(profile.kinds | profile.always):
        wanted = name in profile.always
        if not wanted and name in _RESTARTS and not restarts:
            continue
        if wanted or draws.chance(f"active/{name}", share):
            rates[name] = draws.scaled(f"rate/{name}", *profile.rates)
    managers = min(draws.choice("managers", profile.managers), replicas)
    spared = set()
    if "leases" not in profile.name and draws.chance("spare-leases", 0.4):
        spared.add("leases.coordination.k8s.io")
    seconds = draws.uniform("seconds", 60.0, 240.0)
    return Weather(
        profile=profile,
        rates=rates,
        longest=draws.choice("longest", profile.longest),
        focus=draws.choice("focus", ("", *resources)),
        spared=frozenset(spared),
        managers=managers,
        outages=_outages(draws, managers, seconds, resources) if "outage" in rates else (),
        seconds=seconds,
    )


def _outages(
    draws: Draws, managers: int, seconds: float, resources: tuple[str, ...]
) -> tuple[Outage, ...]:
    outages = []
    for number in range(draws.integer("outages", 1, 3) if resources else 0):
        label = f"outage/{number}"
        start = draws.uniform(f"{label}/start", 0.0, seconds)
        outages.append(
            Outage(
                label=label,
                owner=f"manager-{draws.integer(f'{label}/owner', 1, managers)}",
                resource=draws.choice(f"{label}/resource", resources),
                reads=draws.chance(f"{label}/reads", 0.6),
                start=start,
                end=start + draws.scaled(f"{label}/length", 1.0, 90.0),
            )
        )
    return tuple(outages)


_STALE: Final = frozenset({"stale-list", "event-delay", "kill"})
_STOPS: Final = frozenset({"stop", "stop-after-write"})
_UNOBSERVED: Final = frozenset({"outage", "event-close", "event-gone"})

PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("swarm"),
        Profile("calm", kinds=frozenset(), users=False, managers=(1,)),
        Profile(
            "slow",
            kinds=_DELAYS,
            active=(0.6, 1.0),
            always=_SLOW,
            rates=(0.1, 0.5),
            managers=(1,),
            users=False,
            crowds=1.0,
        ),
        Profile(
            "lossy",
            kinds=_WIRE | _WATCH,
            always=_SLOW | {"lost-answer"},
            rates=(0.06, 0.3),
            managers=(1,),
            users=False,
        ),
        Profile(
            "stale",
            kinds=_STALE | _DELAYS,
            always=_STALE | _SLOW,
            rates=(0.1, 0.5),
            longest=(15.0, 60.0),
        ),
        Profile("unobserved", kinds=_UNOBSERVED, always=_UNOBSERVED | _SLOW, rates=(0.1, 0.5)),
        Profile(
            "intermediate",
            kinds=frozenset({"kill-after-write", "lost-answer"}) | _DELAYS,
            always=_SLOW | {"kill-after-write"},
            rates=(0.05, 0.2),
        ),
        Profile(
            "leaders",
            kinds=_DELAYS | {"pause", "skew", "429", "503", "outage", "overtaken"} | _STOPS,
            always=_SLOW | {"pause"} | _STOPS,
            managers=(2,),
            pauses=(5.0, 90.0),
        ),
        Profile(
            "crash",
            kinds=_DELAYS | _STOPS | {"kill", "kill-after-write", "jobs-held", "jobs-late"},
            always=_SLOW | {"kill"},
        ),
        Profile(
            "server",
            kinds=_SERVER | _WATCH | {"410"},
            always=_SERVER | _SLOW | {"too-large-version"},
            managers=(1,),
        ),
        Profile("webhooks", kinds=_WEBHOOK | _DELAYS, always=_WEBHOOK | _SLOW, rates=(0.1, 0.5)),
        Profile(
            "users",
            kinds=_DELAYS,
            always=_SLOW | {"jobs-held", "jobs-late", "overtaken", "event-delay"},
            jobs=(8, 15),
            managers=(1,),
            crowds=0.8,
        ),
        Profile(
            "edits",
            kinds=_DELAYS | _RESTARTS | {"lost-answer", "409", "jobs-held", "jobs-late"},
            always=_SLOW | {"kill", "kill-after-write"},
            jobs=(8, 15),
            edits=True,
        ),
        Profile(
            "waits",
            kinds=_DELAYS | _STOPS | {"kill", "kill-after-write", "jobs-held", "jobs-late"},
            always=_SLOW | {"kill", "jobs-held", "jobs-late"},
            longest=(0.3, 1.0, 4.0, 15.0),
            jobs=(8, 15),
            waits=True,
            crowds=0.3,
        ),
        Profile(
            "moments",
            kinds=_DELAYS - {"slow-connect"} | _MOMENTS | {"jobs-late"},
            active=(0.0, 0.3),
            always=_MOMENTS | {"jobs-late"},
            rates=(0.1, 0.4),
            longest=(0.3, 1.0, 4.0),
            managers=(1, 2),
            jobs=(6, 10),
            crowds=0.5,
        ),
        Profile(
            "topology",
            kinds=_WIRE | _WATCH | {"kill", "kill-after-write"},
            always=_SLOW | {"kill-after-write", "lost-answer"},
            rates=(0.05, 0.2),
            longest=(0.3, 1.0, 4.0, 15.0),
            users=False,
        ),
    )
}
"""Every profile, by name."""


# ---- disasters as data: processes that die, pause or have wrong clocks, servers that restart -----

RESTART_AFTER = (0.0, 30.0)
"""Seconds between the death of a manager and its restart."""
PATIENCE = 20.0
"""Seconds for which a disaster waits for a write."""
STANDSTILL = (2.0, 60.0)
"""Seconds for which the Job controller is paused, or lags, or the garbage collector is paused."""
LAG = (2.0, 30.0)
"""Seconds between the moment when the Job controller reads a Job, and its writes."""


_OF_SERVER = ("server-restart", "server-amnesia", "jobs-held", "jobs-late", "garbage-late")
_DRAWN = ("kill", "stop", "pause", "skew", *_OF_SERVER)


@attrs.frozen
class Disaster:
    """One scheduled disaster.

    Attributes:
        at: Seconds after the start of the storm.
        label: Names it for suppression.
        kind: The kind of fault.
        target: The process that it strikes.
        seconds: How long it lasts; 0 for instantaneous ones.
        lag: For how many seconds the Job controller acts on what it has read.
        offset: The error of a clock in seconds.
        rate: The rate of a clock.
        after_write: Whether it waits for the next write of the process.
    """

    at: float
    label: str
    kind: str
    target: str
    seconds: float = 0.0
    lag: float = 0.0
    offset: float = 0.0
    rate: float = 1.0
    after_write: bool = False


class ServerTarget(Protocol):
    """The part of the world that disasters of the server act on."""

    async def restart_server(self, *, history: bool) -> None:
        """Restart the API server."""
        ...

    def hold_jobs(self, *, held: bool) -> None:
        """Pause or resume the Job controller."""
        ...

    def hold_garbage(self, *, held: bool) -> None:
        """Pause or resume the garbage collector."""
        ...

    def delay_jobs(self, seconds: float) -> None:
        """Let the Job controller write that long after it has read."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait in the time of the world."""
        ...


class DisasterTarget(ServerTarget, Protocol):
    """The part of the world that disasters act on."""

    def kill(self, name: str) -> None:
        """End a process at once."""
        ...

    async def stop_manager(self, name: str) -> bool:
        """End a process with grace."""
        ...

    def pause(self, name: str) -> None:
        """Hold a process."""
        ...

    def resume(self, name: str) -> None:
        """Let a process continue."""
        ...

    def skew(self, name: str, offset: float, rate: float) -> None:
        """Set the clock of a process."""
        ...

    def alive(self, name: str) -> bool:
        """Return whether a process runs."""
        ...

    async def start_manager(self, name: str) -> None:
        """Start a manager."""
        ...

    async def next_write(self, name: str, limit: float) -> None:
        """Wait until a process writes an object, or for a number of seconds."""
        ...


def disasters(draws: Draws, weather: Weather) -> tuple[Disaster, ...]:
    """Draw the disasters of one seed, in the order of time."""
    drawn = []
    profile = weather.profile
    for kind in _DRAWN:
        if kind not in weather.rates:
            continue
        for number in range(draws.integer(f"{kind}/count", *profile.disasters)):
            label = f"disaster/{kind}/{number}"
            manager = f"manager-{draws.integer(f'{label}/target', 1, weather.managers)}"
            disaster = Disaster(
                at=draws.uniform(f"{label}/at", 0.0, weather.seconds),
                label=label,
                kind=kind,
                target="server" if kind in _OF_SERVER else manager,
            )
            if kind in ("kill", "stop"):
                seconds = draws.uniform(f"{label}/seconds", *RESTART_AFTER)
                disaster = attrs.evolve(disaster, seconds=seconds)
            elif kind == "pause":
                disaster = attrs.evolve(
                    disaster,
                    seconds=draws.scaled(f"{label}/seconds", *profile.pauses),
                    after_write=draws.chance(f"{label}/after-write", 0.7),
                )
            elif kind in ("jobs-held", "jobs-late", "garbage-late"):
                seconds = draws.uniform(f"{label}/seconds", *STANDSTILL)
                lag = draws.scaled(f"{label}/lag", *LAG) if kind == "jobs-late" else 0.0
                disaster = attrs.evolve(disaster, seconds=seconds, lag=lag)
            elif kind == "skew":
                disaster = attrs.evolve(
                    disaster,
                    offset=draws.uniform(f"{label}/offset", -profile.skew, profile.skew),
                    rate=1 + draws.uniform(f"{label}/rate", -profile.rate, profile.rate),
                )
            drawn.append(disaster)
    return tuple(sorted(drawn, key=lambda disaster: (disaster.at, disaster.label)))


async def perform(disaster: Disaster, stage: DisasterTarget) -> None:
    """Perform one disaster to its end."""
    match disaster.kind:
        case "kill":
            stage.kill(disaster.target)
            await stage.sleep(disaster.seconds)
            if not stage.alive(disaster.target):
                await stage.start_manager(disaster.target)
        case "stop":
            if stage.alive(disaster.target):
                await stage.stop_manager(disaster.target)
            await stage.sleep(disaster.seconds)
            if not stage.alive(disaster.target):
                await stage.start_manager(disaster.target)
        case "pause":
            if disaster.after_write:  # before its answer comes: what follows it waits
                await stage.next_write(disaster.target, PATIENCE)
            stage.pause(disaster.target)
            await stage.sleep(disaster.seconds)
            stage.resume(disaster.target)
        case "skew":
            stage.skew(disaster.target, disaster.offset, disaster.rate)
        case _:
            await perform_on_server(disaster, stage)


async def perform_on_server(disaster: Disaster, stage: ServerTarget) -> None:
    """Perform one disaster of the server or of the simulated cluster to its end."""
    match disaster.kind:
        case "server-restart":
            await stage.restart_server(history=True)
        case "server-amnesia":
            await stage.restart_server(history=False)
        case "garbage-late":
            stage.hold_garbage(held=True)
            await stage.sleep(disaster.seconds)
            stage.hold_garbage(held=False)
        case "jobs-held":
            stage.hold_jobs(held=True)
            await stage.sleep(disaster.seconds)
            stage.hold_jobs(held=False)
        case "jobs-late":
            stage.delay_jobs(disaster.lag)
            await stage.sleep(disaster.seconds)
            stage.delay_jobs(0.0)
        case kind:
            raise ValueError(f"disaster {disaster.label}: unknown kind {kind!r}")
