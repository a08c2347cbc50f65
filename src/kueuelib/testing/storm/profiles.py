"""The faults that a storm may use, and the weather that a seed draws from them.

A swarm: each seed uses a random subset of the faults at random rates, so that one kind of fault
does not mask another.
"""

from __future__ import annotations

from typing import Final

import attrs

from .draws import Draws
from .faults import CATALOGUE

__all__ = ["PROFILES", "Outage", "Profile", "Weather", "weather"]

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
        crowds: The probability of a crowd: many short jobs of all priorities that arrive in waves.
        disasters: The least and the largest number of disasters of each active kind.
        pauses: Bounds of the length of a pause in seconds.
        skew: The largest offset of a clock in seconds.
        rate: The largest deviation of a clock's rate from 1.
    """

    name: str
    kinds: frozenset[str] = frozenset(CATALOGUE)
    active: tuple[float, float] = (0.25, 0.5)
    always: frozenset[str] = frozenset()
    rates: tuple[float, float] = (0.1, 0.5)
    longest: tuple[float, ...] = (0.3, 1.0, 4.0, 15.0, 60.0, 120.0)
    managers: tuple[int, ...] = (1, 1, 1, 2)
    users: bool = True
    jobs: tuple[int, int] = (6, 14)
    edits: bool = False
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
        owner: The manager that cannot reach the resource.
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
    )
}
"""Every profile, by name."""
