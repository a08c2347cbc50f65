"""The plan of one seed, as data, and its report."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .coverage import Cell
from .disasters import Disaster, disasters
from .draws import Draws
from .faults import CATALOGUE
from .laws import Tolerance, Violation
from .profiles import PROFILES, RESOURCES, Profile, Weather, weather
from .users import Scenario, scenario

__all__ = ["Report", "SeedPlan", "plan_of", "tolerance"]

BASE_LAG = 3.0
"""Seconds between a decision and its commit, or a commit and its event, without any fault."""
BLIND = 630.0
"""Seconds after which a client notices that a watch without bookmarks is silent."""
RETRIES = 90.0
"""Seconds for which a client may repeat a refused call."""
_BLINDING = frozenset(k.name for k in CATALOGUE.values() if k.place in {"watch", "event"})
_REFUSING = frozenset(k.name for k in CATALOGUE.values() if k.place in {"connect", "call"})


@attrs.frozen
class SeedPlan:
    """Everything that is decided before a storm starts.

    Attributes:
        seed: The seed.
        profile: The family of storms.
        weather: Which faults are active.
        scenario: The objects and the acts of users.
        disasters: The disasters of processes, in the order of time.
        only: The labels of the faults, disasters and acts that may happen; `None` means all.
        fifo: Whether callbacks run in the order they became ready.
    """

    seed: int
    profile: Profile
    weather: Weather
    scenario: Scenario
    disasters: tuple[Disaster, ...]
    only: frozenset[str] | None = None
    fifo: bool = False

    @property
    def disorder(self) -> float:
        """The share of steps (0 to 1) that run any ready callback instead of the first."""
        if self.fifo:
            return 0.0
        return Draws(self.seed).stream("schedule").choice("disorder", (0.0, 0.05, 0.3, 1.0))

    def permits(self, label: str) -> bool:
        """Return whether the fault, disaster or act with this label may happen."""
        return self.only is None or label in self.only


def plan_of(
    seed: int,
    profile: str,
    *,
    only: frozenset[str] | None = None,
    fifo: bool = False,
    users: Callable[[Draws, Profile], Scenario] = scenario,
    resources: tuple[str, ...] = RESOURCES,
    replicas: int = 2,
) -> SeedPlan:
    """Draw the plan of a seed.

    Args:
        seed: Any whole number.
        profile: The name of a profile.
        only: The labels of what may happen; `None` means all.
        fifo: Whether callbacks run in the order they became ready.
        users: Draws the acts of users.
        resources: Resources on which faults may focus.
        replicas: The largest number of managers.

    Raises:
        KeyError: There is no profile of that name.
    """
    family = PROFILES[profile]
    draws = Draws(seed)
    acts = users(draws.stream("users"), family)
    focus = (*resources, *acts.resources)
    drawn = weather(draws.stream("weather"), family, resources=focus, replicas=replicas)
    return SeedPlan(
        seed=seed,
        profile=family,
        weather=drawn,
        scenario=acts,
        disasters=disasters(draws.stream("disasters"), drawn),
        only=only,
        fifo=fifo,
    )


def tolerance(drawn: Weather) -> Tolerance:
    """Return how late decisions may be under a weather.

    A delayed or repeated request is not fenced, and a decision is as old as the view that it is
    based on.
    """
    active = drawn.rates.keys()
    lag = BASE_LAG
    if active & {"delay", "event-delay", "slow-answer", "slow-connect"}:
        lag += 2 * drawn.longest
    if active & _REFUSING:
        lag += RETRIES
    if active & _BLINDING:
        lag += BLIND
    if "pause" in active:
        lag += drawn.profile.pauses[1]
    if "skew" in active:
        lag += drawn.profile.skew
    wait = drawn.longest if "slow-connect" in active else 0.0
    return Tolerance(lag=lag, patience=BASE_LAG + wait)


@attrs.frozen
class Report:
    """The report of one seed.

    Attributes:
        seed: The seed.
        profile: The name of the profile.
        violations: The broken laws.
        faults: How many faults of each kind were injected.
        sometimes: How often each rare situation was reached.
        labels: The labels of all faults, disasters and acts that happened, in their order.
        trace: The hash of the trace: equal for equal runs.
        lines: The lines of the trace, if they were requested.
        commits: How many writes the store accepted.
        seconds: The virtual time that passed.
        cells: How often each combination of `coverage.Cell` occurred.
    """

    seed: int
    profile: str
    violations: tuple[Violation, ...]
    faults: dict[str, int]
    sometimes: dict[str, int]
    labels: tuple[str, ...]
    trace: str
    lines: tuple[str, ...] = ()
    commits: int = 0
    seconds: float = 0.0
    cells: dict[Cell, int] = attrs.field(factory=dict)
