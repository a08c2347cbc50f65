"""Plays one seed from its plan to its report: the storm, the calm after it, a restart of
everything.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import re
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from kueuelib.checks.reconciler import LAST_PAUSE
from kueuelib.jobs.reconcile.plan import INVALID_RETRY
from kueuelib.machinery.options import ReflectorOptions
from kueuelib.runtime.watch import BOOKMARK_IDLE, STREAM_GRACE
from kueuelib.testing.storm.adversary import AMBUSHES, Hostile, Remaining
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.environment import LEASE_SECONDS, LawBook, StormEnvironment
from kueuelib.testing.storm.faults import FaultTarget, Injection
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws import Conduct, Violation
from kueuelib.testing.storm.laws.conduct import BOUNDED
from kueuelib.testing.storm.profiles import Disaster, perform
from kueuelib.testing.storm.seed_plan import Coverage, SeedPlan, SeedReport, tolerance
from kueuelib.testing.storm.users import FAILING, Act, insist, meddle
from kueuelib.testing.storm.users import perform as perform_act
from kueuelib.testing.storm.users.acts import RESTORE

__all__ = [
    "LIMIT",
    "QUIET",
    "WATCHES",
    "difference",
    "only_newer_amounts",
    "storm",
]


# ---- the difference made by a commit, for messages, and whether a restart may cause it -----------

_MESSAGE: Final = re.compile(r"\.status\.conditions\[\d+\]\.message")
_AMOUNT: Final = re.compile(r"(?<![\w-])\d+[a-zA-Z]*")


def difference(commit: Commit) -> str:
    """Return the changes of a commit: path, old and new value of each leaf."""
    changed = _changed(commit)
    return "; ".join(f"{path} {old!r} -> {new!r}" for path, (old, new) in changed.items())


def only_newer_amounts(commit: Commit) -> bool:
    """Return whether a commit only changed amounts in the messages of conditions.

    A message says how much was missing when the Workload was tried. It is not rewritten after
    changes of usage that cannot help the Workload, but a new manager tries it again.
    """
    changed = _changed(commit)
    return bool(changed) and all(
        _MESSAGE.fullmatch(path) and _worded(old) == _worded(new)
        for path, (old, new) in changed.items()
    )


def _worded(message: Any) -> str:
    """Return a message without its amounts."""
    return _AMOUNT.sub("#", str(message))


def _changed(commit: Commit) -> dict[str, tuple[Any, Any]]:
    """Return the old and the new value of each leaf that differs, by its path."""
    old, new = _leaves(commit.old or {}), _leaves(commit.new or {})
    changed = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
    shown = [path for path in changed if not path.startswith(".metadata.")] or changed
    return {path: (old.get(path), new.get(path)) for path in shown}


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return every value that is neither a list nor an object, by its path."""
    if isinstance(value, dict):
        parts = [(f"{path}.{key}", part) for key, part in value.items()]
    elif isinstance(value, list):
        parts = [(f"{path}[{number}]", part) for number, part in enumerate(value)]
    else:
        return {path: value}
    return {leaf: each for inner, part in parts for leaf, each in _leaves(part, inner).items()}


# --------------------------------------------------------------------------------------------------

QUIET: Final = BOOKMARK_IDLE + 20.0
"""Seconds without a write after which the cluster may be at rest, unless a watch is silent."""
WATCHES: Final = 2 * ReflectorOptions().watch_timeout + STREAM_GRACE
"""Seconds within which a program notices that its watches are silent."""
LIMIT: Final = WATCHES + INVALID_RETRY + LAST_PAUSE
"""Seconds of calm within which all laws have to hold: the longest waits, one after another."""
OVERSLEPT: Final = (1.05, 1.6)
"""Bounds of a pause beyond the Lease, in its duration."""
GRACE: Final = 120.0
"""Seconds that acts and disasters may take beyond the end of the storm."""
APART: Final = 5.0
"""Seconds between two changes at rest, for the consequences of each."""
REVIVAL: Final = 20.0
"""The maximum number of seconds between the death of a manager and its restart."""
READY: Final = 120.0
"""Seconds within which a manager has to be ready on a clean wire."""
MOST_COMMITS: Final = 6_000
"""The number of writes after which a storm counts as a hot loop."""
MOST_OF_ONE_LAW: Final = 5
"""Violations of one law that a report lists."""
EXPECTED: Final = (
    "LeadershipLost",
    "TransportError",
    "NotConnected",
    "ServerError",
    "Unavailable",
    "TooManyRequests",
    "ServerTimeout",
)
"""Errors with which a manager may end."""
UNREACHED: Final = ("could not be listed in time", "the API server did not answer within")
"""In the error of a manager that could not read required objects during its start."""
PASSING: Final = frozenset({"leases.coordination.k8s.io", "events", "events.events.k8s.io"})
"""Kinds that may be written at rest."""


async def storm(
    world: StormEnvironment,
    plan: SeedPlan,
    laws: LawBook,
    *,
    keep_lines: bool = False,
    limit: float = LIMIT,
    conduct: bool = True,
) -> SeedReport:
    """Play one seed in a world that was booted, and judge it.

    Args:
        world: A booted world with one manager.
        plan: The plan of the seed.
        laws: New laws.
        keep_lines: Whether the report contains the trace.
        limit: Seconds of calm within which all laws have to hold.
        conduct: Whether the calls of managers have to keep the laws of the bundled manager.
    """
    run = _Run(world, plan, laws, keep_lines=keep_lines, limit=limit)
    if conduct:
        run.watch_conduct()
    try:
        await run.play()
    except asyncio.CancelledError:
        if not run.over:
            raise
    return run.report()


class _Run:
    def __init__(
        self,
        world: StormEnvironment,
        plan: SeedPlan,
        laws: LawBook,
        *,
        keep_lines: bool,
        limit: float,
    ) -> None:
        self._limit = limit
        self._world = world
        self._plan = plan
        self._laws = laws
        self._start = world.now
        self._lines: list[str] | None = [] if keep_lines else None
        self._hash = hashlib.blake2b(digest_size=16)
        self._violations: list[Violation] = []
        self._counts: Counter[str] = Counter()
        self._coverage = Coverage()
        self._labels: list[str] = []
        self._acts = 0
        self.over = False
        self._commits = 0
        self._writes: list[Commit] = []
        self._storming = False
        self._draws = Draws(plan.seed).stream("run")
        self._hostile = Hostile(
            Draws(plan.seed).stream("faults"),
            plan.weather,
            start=world.now,
            only=plan.only,
            seen=self._injected,
            meddlers=plan.scenario.meddling,
        )
        self._context = contextvars.copy_context()
        main = asyncio.current_task()
        assert main is not None, "a storm runs in a task"
        self._main: asyncio.Task[Any] = main
        self._tasks: list[asyncio.Task[None]] = []

    def watch_conduct(self) -> None:
        """Also judge the calls of managers."""
        world, allowed = self._world, tolerance(self._plan.weather)
        conduct = Conduct(allowed, LEASE_SECONDS, world.now, self._misconduct, world.mind)
        world.set_witness(conduct)
        world.listeners.append(conduct.committed)

    async def play(self) -> None:
        """Play all parts, one after another."""
        world = self._world
        world.trace = self._write
        world.listeners.append(self._committed)
        await self._set_up()
        self._note(f"storm: begins, {self._forecast()}")
        self._storming = True
        world.set_adversary(self._hostile)
        await self._rage()
        self._storming = False
        drawn = self._plan.weather
        lags = drawn.rates.keys() >= {"too-large-version", "server-amnesia"}
        conflicts = "409" in drawn.profile.kinds and self._draws.chance("conflicts", 0.5)
        some = lags or conflicts
        world.set_adversary(Remaining(lags=lags, conflicts=conflicts) if some else None)
        await self._calm()
        if await self._come_to_rest() and await self._change_at_rest():
            await self._restart()
        for text in world.endings:
            why = text.partition(": ")[2]
            if not why.startswith(EXPECTED) and not any(each in why for each in UNREACHED):
                self._accuse("a manager ends only when it may", "", text)
        for text in world.problems:
            self._accuse("every error is handled", "", text)

    def report(self) -> SeedReport:
        """Return the report."""
        return SeedReport(
            seed=self._plan.seed,
            profile=self._plan.profile.name,
            violations=tuple(self._violations),
            faults=dict(sorted(self._counts.items())),
            sometimes=dict(sorted({**self._laws.sometimes, "user acted": self._acts}.items())),
            labels=tuple(dict.fromkeys(self._labels)),
            trace=self._hash.hexdigest(),
            lines=tuple(self._lines or ()),
            commits=self._commits,
            seconds=self._world.now - self._start,
            cells=dict(self._coverage.cells),
        )

    async def _set_up(self) -> None:
        user = self._world.user()
        for act in self._plan.scenario.setup:
            self._note(f"setup: {act.label}: {await perform_act(act, user)}")
        for number in range(2, self._plan.weather.managers + 1):
            name = f"manager-{number}"
            await self._world.start_manager(name)

    async def _rage(self) -> None:
        """Play acts and disasters at their times; keep managers alive."""
        plan = self._plan
        acts = [act for act in plan.scenario.acts if plan.permits(act.label)]
        strikes = [one for one in plan.disasters if plan.permits(one.label)]
        self._labels.extend(act.label for act in acts)
        end = max([plan.weather.seconds, *(act.at for act in acts), *(one.at for one in strikes)])
        for act in acts:
            self._spawn(act.label, self._act(act))
        for one in strikes:
            self._spawn(one.label, self._strike(one))
        await self._world.sleep(end)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=GRACE)
            for task in sorted(late, key=asyncio.Task.get_name):
                self._note(f"storm: {task.get_name()} did not end in time")
                task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                self._accuse("the storm itself works", "", repr(outcome))

    async def _calm(self) -> None:
        """Heal everything and let users restore the queues."""
        world = self._world
        self._note("calm: begins")
        for name in world.managers:
            world.resume(name)
            world.skew(name, 0.0, 1.0)
        world.hold_jobs(held=False)
        world.hold_garbage(held=False)
        world.delay_jobs(0.0)
        if "server-amnesia" in self._plan.weather.rates:
            await world.restart_server(history=False)
        await self._revive()
        for act in self._plan.scenario.calm:
            await self._insist(act)

    async def _insist(self, act: Act) -> None:
        outcome = await insist(act, self._world.user(), self._world.sleep)
        self._note(f"calm: {act.label}: {outcome}")
        if outcome in FAILING or (act.verb == RESTORE and outcome != "done"):
            self._accuse("the storm itself works", act.label, outcome)

    async def _come_to_rest(self) -> bool:
        """Wait until all is quiet and all laws hold; note violations when the time is up.

        A silent watch without bookmarks is abandoned after minutes. Until then its manager cannot
        know what it missed.
        """
        world = self._world
        end = world.now + self._limit
        while True:
            behind, left = world.behind, end - world.now
            quiet = await world.quiet(QUIET, max(left, 0.0) + QUIET + 1.0)
            over = world.now >= end or self._commits > MOST_COMMITS
            wrong = self._laws.at_rest(world.objects, world.now)
            if not wrong and (over or (quiet and not behind)):
                wrong = world.inside()
            if quiet and not wrong and not behind:
                self._note("calm: at rest")
                return True
            if over:
                break
        if not quiet:
            self._accuse("comes to rest", "", f"still writing {self._limit:g} s after the storm")
        if behind:
            text = f"a watch that is silent is still open {self._limit:g} s after the storm"
            self._accuse("a silent watch is given up", "", text)
        self._judge(wrong)
        return False

    async def _change_at_rest(self) -> bool:
        """Let users change objects while nothing else happens; all laws have to hold again."""
        for act in self._plan.scenario.rest:
            await self._insist(act)
            await self._world.sleep(APART)
        return not self._plan.scenario.rest or await self._come_to_rest()

    async def _restart(self) -> None:
        """Restart every manager; nothing may change."""
        world = self._world
        before = self._commits
        self._writes.clear()
        for name in world.managers:
            world.kill(name)
        await self._revive()
        await world.quiet(QUIET, self._limit)
        for commit in self._writes:
            if not only_newer_amounts(commit):
                self._accuse(
                    "a restart changes nothing",
                    commit.title,
                    f"{commit.actor} wrote revision {commit.revision}: {difference(commit)}",
                )
        self._judge(self._laws.at_rest(world.objects, world.now))
        self._note(f"calm: {self._commits - before} commits after the restart")

    async def _act(self, act: Act) -> None:
        await self._world.sleep(act.at)
        self._note(f"user: {act.label}: {act.verb} {act.resource} {act.namespace}/{act.name}")
        outcome = await perform_act(act, self._world.user())
        self._acts += 1
        self._note(f"user: {act.label}: {outcome}")

    async def _strike(self, disaster: Disaster) -> None:
        await self._world.sleep(disaster.at)
        subject = FaultTarget(disaster.target)
        self._injected(Injection(disaster.label, disaster.kind, self._world.now, subject))
        await perform(disaster, self._world)

    async def _revive(self) -> None:
        """Start every dead manager and wait until all are ready."""
        world = self._world
        for name in sorted(world.managers):
            if not world.alive(name):
                await world.start_manager(name)

    async def _die(self, name: str, label: str) -> None:
        """Kill a process right after its write, and restart it a little later."""
        await self._world.sleep(self._draws.uniform(label, 0.0, REVIVAL))
        if not self._world.alive(name):
            await self._world.start_manager(name)

    async def _leave(self, name: str, label: str) -> None:
        """Ask a process to stop right after its write, and restart it a little later."""
        await self._world.stop_manager(name)
        await self._die(name, label)

    def _committed(self, commit: Commit) -> None:
        self._commits += 1
        self._judge(self._laws.commit(commit))
        self._coverage.commit(commit)
        if commit.resource not in PASSING:
            self._writes.append(commit)
        if self._commits == MOST_COMMITS:
            self._accuse("writes are bounded", commit.title, f"{MOST_COMMITS} writes, this is one")
            self._end()
        manager = commit.actor in self._world.managers
        if not self._storming or not manager:
            return
        name, label = commit.actor, f"revival/{len(self._tasks)}"
        written = commit.resource, commit.namespace, commit.name
        end = self._hostile.wrote(name, *written, self._world.now)
        if end == "kill-after-write":
            self._world.kill(name)
            self._spawn(label, self._die(name, label))
        elif end == "stop-after-write" and self._world.alive(name):
            self._spawn(label, self._leave(name, label))

    def _injected(self, injection: Injection) -> None:
        self._counts[injection.kind] += 1
        self._coverage.injected(injection)
        self._labels.append(injection.label)
        self._note(f"fault: {injection.kind}: {injection.label}")
        if injection.kind == "overslept":
            self._spawn(f"{injection.label}/pause", self._oversleep(injection))
        elif injection.kind in ("overtaken", *AMBUSHES):
            self._meddle(injection)

    async def _oversleep(self, injection: Injection) -> None:
        """Suspend a process right after its write, for longer than its Lease."""
        seconds = self._draws.uniform(injection.label, *OVERSLEPT) * LEASE_SECONDS
        owner = injection.subject.owner
        await perform(
            Disaster(0.0, injection.label, "pause", owner, seconds, after_write=True), self._world
        )

    def _meddle(self, injection: Injection) -> None:
        """Let users write an object that a manager is writing."""
        target = injection.subject
        where = target.resource, target.namespace, target.name
        acts = self._plan.scenario.acts
        draws = self._draws.stream("meddling")
        for act in meddle(draws, injection.label, where, acts, injection.kind):
            self._spawn(act.label, self._act(act))

    def _judge(self, violations: list[Violation]) -> None:
        for violation in violations:
            self._note(f"violation: {violation.law}: {violation.object}: {violation.text}")
            same = sum(other.law == violation.law for other in self._violations)
            if same < MOST_OF_ONE_LAW:
                self._violations.append(violation)

    def _misconduct(self, violation: Violation) -> None:
        self._judge([violation])
        if violation.law == BOUNDED.name:  # a hot loop: what follows is more of it
            self._end()

    def _end(self) -> None:
        """Abort the storm."""
        if self.over:
            return
        self.over = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self._main.cancel, context=self._context)

    def _accuse(self, law: str, obj: str, text: str) -> None:
        self._judge([Violation(law=law, at=self._world.now, object=obj, text=text)])

    def _note(self, text: str) -> None:
        self._world.tell(text)

    def _write(self, line: str) -> None:
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if self._lines is not None:
            self._lines.append(line)

    def _forecast(self) -> str:
        drawn = self._plan.weather
        rates = ", ".join(f"{name} {rate:.3f}" for name, rate in drawn.rates.items())
        return (
            f"{drawn.managers} managers, delays up to {drawn.longest:g} s, {rates or 'no faults'}"
        )

    def _spawn(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        """Run a task as the storm, even if the server's code starts it."""
        self._tasks.append(
            asyncio.get_running_loop().create_task(part, name=name, context=self._context)
        )
