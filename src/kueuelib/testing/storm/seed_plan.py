"""The plan of one seed, as data, its report, and the faults that it covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.faults import CATALOGUE, Injection
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws import Tolerance, Violation, never
from kueuelib.testing.storm.laws.reading import (
    LEASES,
    WORKLOADS,
    active,
    admitted,
    finished,
    holds,
    leaving,
    reserving,
)
from kueuelib.testing.storm.profiles import (
    PROFILES,
    RESOURCES,
    Disaster,
    Profile,
    Weather,
    disasters,
    weather,
)
from kueuelib.testing.storm.users import Scenario, scenario

__all__ = [
    "Cell",
    "Coverage",
    "SeedPlan",
    "SeedReport",
    "counts",
    "coverage",
    "plan_of",
    "summary",
    "tables",
    "timeline",
    "tolerance",
]


# ---- counts faults by call, phase of the Workload, and leader ------------------------------------

NONE = "-"
PHASES = (NONE, "new", "waiting", "reserved", "admitted", "evicted", "inactive", "ended", "leaving")
"""Phases of the Workload that a call is about; `-` without one."""
LEADERS = (NONE, "leads", "follows", "vacant")
"""Whether the affected process leads; `vacant`: no process does."""


@attrs.frozen(order=True)
class Cell:
    """One combination.

    Attributes:
        fault: The kind of fault.
        verb: The verb of the call; `event` for an event of a watch, `-` for faults without a call.
        resource: The resource of the call.
        phase: One of `PHASES`.
        leader: One of `LEADERS`.
    """

    fault: str
    verb: str
    resource: str
    phase: str
    leader: str


class Coverage:
    """Follows one storm and counts its combinations.

    Attributes:
        cells: How often each combination occurred.
    """

    def __init__(self) -> None:
        self.cells: Counter[Cell] = Counter()
        self._phases: dict[tuple[str, str], str] = {}
        self._leaders: dict[str, str] = {}

    def commit(self, commit: Commit) -> None:
        """Take in a commit."""
        if commit.resource == WORKLOADS:
            phase = _phase(commit)
            owners = commit.present["metadata"].get("ownerReferences") or ()
            for name in (commit.name, *(owner["name"] for owner in owners)):
                self._phases[commit.namespace, name] = phase
        elif commit.resource == LEASES and commit.actor.startswith("manager"):
            holder = ((commit.new or {}).get("spec") or {}).get("holderIdentity")
            self._leaders[commit.name] = commit.actor if holder else ""

    def injected(self, injection: Injection) -> None:
        """Count a fault."""
        subject = injection.subject
        cell = Cell(
            injection.kind,
            subject.verb or NONE,
            subject.resource or NONE,
            self._phases.get((subject.namespace, subject.name), NONE),
            self._leader(subject.owner),
        )
        self.cells[cell] += 1

    def _leader(self, owner: str) -> str:
        if not owner.startswith("manager"):
            return NONE
        leaders = {actor for actor in self._leaders.values() if actor}
        if not leaders:
            return "vacant"
        return "leads" if owner in leaders else "follows"


def _phase(commit: Commit) -> str:
    new = commit.new
    if new is None:
        return NONE
    phases = {
        "leaving": leaving(new),
        "ended": finished(new),
        "inactive": not active(new),
        "evicted": holds(new, "Evicted"),
        "admitted": admitted(new),
        "reserved": reserving(new),
        "waiting": bool((new.get("status") or {}).get("conditions")),
    }
    return next((phase for phase, is_so in phases.items() if is_so), "new")


def tables(cells: Mapping[Cell, int]) -> Iterator[str]:
    """Yield tables: faults by phase, faults by leader, and uncovered combinations.

    Args:
        cells: How often each combination occurred.
    """
    yield f"{len(cells)} combinations of fault, call, phase and leader"
    for title, columns, part in (("phase", PHASES, "phase"), ("leader", LEADERS, "leader")):
        yield f"faults by {title}:"
        yield f"  {'':<18}" + "".join(f"{column:>9}" for column in columns)
        for fault in CATALOGUE:
            counts: Counter[str] = Counter()
            for cell, number in cells.items():
                if cell.fault == fault:
                    counts[getattr(cell, part)] += number
            yield f"  {fault:<18}" + "".join(f"{counts[column]:>9}" for column in columns)
    yield from _never(cells)


def _never(cells: Mapping[Cell, int]) -> Iterator[str]:
    """The calls that had some fault, but not every possible one."""
    met = {(cell.fault, cell.verb, cell.resource) for cell in cells}
    calls = sorted({(verb, resource) for _fault, verb, resource in met})
    for fault, kind in CATALOGUE.items():
        missed = [
            f"{verb} {resource}"
            for verb, resource in calls
            if verb in kind.verbs and (fault, verb, resource) not in met
        ]
        if missed:
            yield f"{fault} never met: {', '.join(missed)}"


# --------------------------------------------------------------------------------------------------

BASE_LAG = 3.0
"""Seconds between a decision and its commit, or a commit and its event, without any fault."""
BLIND = 630.0
"""Seconds after which a client notices that a watch without bookmarks is silent."""
RETRIES = 90.0
"""Seconds for which a client may repeat a refused call."""
MOMENT = 60.0
"""Seconds for which an ambush keeps a client from seeing or writing anything."""
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

    @property
    def streams(self) -> bool:
        """Whether managers that get settings of their own fill their stores from watches."""
        drawn = Draws(self.seed).stream("lists").chance("stream", 0.5)
        return self.profile.name == "waits" and drawn

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
    if "trickle" in active:  # and all that strikes at a moment
        lag += MOMENT
    wait = drawn.longest if "slow-connect" in active else 0.0
    return Tolerance(lag=lag, patience=BASE_LAG + wait)


@attrs.frozen
class SeedReport:
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


# ---- prints the events of a storm, for people ----------------------------------------------------

_LEASES = "leases"


def timeline(report: SeedReport, *, about: str = "", leases: bool = False) -> Iterator[str]:
    """Yield the lines of a storm, and then its violations.

    Args:
        report: A report that contains its trace.
        about: Only lines that contain this text, and those of violations; empty for all.
        leases: Whether to show the renewals of Leases.
    """
    for line in report.lines:
        wrong = " violation: " in line
        hidden = not leases and _LEASES in line and " fault: " not in line
        if wrong or (about in line and not hidden):
            yield line
    yield from summary(report)


def summary(report: SeedReport) -> Iterator[str]:
    """Yield one line per violation of a report."""
    for violation in report.violations:
        about = f" {violation.object}:" if violation.object else ""
        yield (f"seed {report.seed} ({report.profile}): {violation.law}:{about} {violation.text}")


def counts(reports: Sequence[SeedReport]) -> Iterator[str]:
    """Yield tables of injected faults and reached states over several reports."""
    faults: Counter[str] = Counter()
    sometimes: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
        sometimes.update(report.sometimes)
    for title, counter in (("faults", faults), ("sometimes", sometimes)):
        yield f"{title}:"
        for name, number in sorted(counter.items()):
            yield f"  {number:>10,}  {name}"


def coverage(reports: Sequence[SeedReport]) -> Iterator[str]:
    """Yield tables of fault coverage over several reports, and of uncovered combinations."""
    cells: Counter[Cell] = Counter()
    sometimes: Counter[str] = Counter()
    for report in reports:
        cells.update(report.cells)
        sometimes.update(report.sometimes)
    yield from tables(cells)
    for situation in never(sometimes):
        yield f"never reached: {situation}"
