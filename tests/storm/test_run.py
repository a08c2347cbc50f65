"""A run plays its plan and judges it; the world is a double that notes what happens to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kueuelib.testing.storm.adversary import Hostile
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws import Violation
from kueuelib.testing.storm.profiles import Disaster
from kueuelib.testing.storm.run import LIMIT, MOST_COMMITS, QUIET, storm
from kueuelib.testing.storm.seed_plan import SeedPlan, SeedReport, plan_of
from kueuelib.testing.storm.users import Act


class Api:
    """Accepts everything."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def anything(*args: Any, **_: Any) -> dict[str, Any]:
            self._notes.append(f"user {name} {args[0] if args else ''}".rstrip())
            return {"metadata": {}, "spec": {}}

        return anything


class World:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.trace: Callable[[str], None] | None = None
        self.listeners: list[Callable[[Commit], None]] = []
        self.endings: list[str] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.living = {"manager-1"}
        self.managers: dict[str, object] = {"manager-1": None}
        self.noisy = False
        self.behind_until = 0.0
        self.restart_writes: list[Commit] = []
        self._calmed = False

    @property
    def behind(self) -> bool:
        return self.now < self.behind_until

    def set_witness(self, witness: object) -> None:
        self.witness = witness

    def set_adversary(self, adversary: object) -> None:
        self._calmed = not isinstance(adversary, Hostile)
        self.notes.append("calm" if self._calmed else "storm")

    def user(self) -> Api:
        return Api(self.notes)

    def objects(self, resource: str) -> list[dict[str, Any]]:
        del resource
        return []

    def mind(self, name: str) -> None:
        del name

    def inside(self) -> list[Violation]:
        return []

    def kill(self, name: str) -> None:
        self.notes.append(f"kill {name}")
        self.living.discard(name)

    async def stop_manager(self, name: str) -> bool:
        self.notes.append(f"stop {name}")
        self.living.discard(name)
        return True

    def pause(self, name: str) -> None:
        self.notes.append(f"pause {name}")

    def resume(self, name: str) -> None:
        self.notes.append(f"resume {name}")

    def skew(self, name: str, offset: float, rate: float) -> None:
        self.notes.append(f"skew {name} {offset:g} {rate:g}")

    def alive(self, name: str) -> bool:
        return name in self.living

    async def start_manager(self, name: str) -> None:
        self.notes.append(f"start {name}")
        self.living.add(name)
        self.managers[name] = None
        if self._calmed:
            for commit in self.restart_writes:
                self.commit(commit)

    async def next_write(self, name: str, limit: float) -> None:
        del name
        await self.sleep(limit)

    def hold_garbage(self, *, held: bool) -> None:
        assert not held

    def hold_jobs(self, *, held: bool) -> None:
        assert not held

    def delay_jobs(self, seconds: float) -> None:
        assert seconds == 0

    async def restart_server(self, *, history: bool) -> None:
        self.notes.append(f"restart {history}")

    async def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            await asyncio.sleep(0)
            self.now = min(self.now + 1.0, end)

    async def quiet(self, seconds: float, limit: float) -> bool:
        self.now += limit if self.noisy else seconds
        await asyncio.sleep(0)
        return not self.noisy

    def commit(self, commit: Commit) -> None:
        for listener in self.listeners:
            listener(commit)

    def tell(self, line: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now:g} {line}")


class Laws:
    """Finds what it was told to find."""

    def __init__(self, *, at_commit: str = "", at_rest: str = "", until: float = 1e9) -> None:
        self.sometimes: Counter[str] = Counter({"preempted": 2})
        self._at_commit = at_commit
        self._at_rest = at_rest
        self._until = until

    def commit(self, commit: Commit) -> list[Violation]:
        found = [Violation(self._at_commit, commit.at, commit.name, "wrong")]
        return found if self._at_commit else []

    def at_rest(
        self, objects: Callable[[str], list[dict[str, Any]]], now: float
    ) -> list[Violation]:
        objects("pods")
        found = [Violation(self._at_rest, now, "", "wrong")]
        return found if self._at_rest and now < self._until else []


def plan(**changes: Any) -> SeedPlan:
    drawn = plan_of(3, "calm")
    weather = attrs.evolve(drawn.weather, seconds=20.0)
    scenario = attrs.evolve(drawn.scenario, setup=(), acts=(), calm=())
    return attrs.evolve(drawn, weather=weather, scenario=scenario, **changes)


def commit(actor: str = "manager-1", resource: str = "pods") -> Commit:
    return Commit(1000.0, 7, actor, resource, "default", "one", None, {"metadata": {"name": "one"}})


async def play(world: World, plan: SeedPlan, laws: Laws | None = None, **more: Any) -> SeedReport:
    return await storm(world, plan, laws or Laws(), **more)


async def test_a_quiet_seed_breaks_nothing_and_restarts_the_manager_at_the_end() -> None:
    world = World()
    report = await play(world, plan(), keep_lines=True)
    assert report.violations == ()
    assert report.sometimes == {"preempted": 2, "user acted": 0}
    assert world.notes == [
        "storm",
        "calm",
        "resume manager-1",
        "skew manager-1 0 1",
        "kill manager-1",
        "start manager-1",
    ]
    assert any("calm: at rest" in line for line in report.lines)


@pytest.mark.parametrize("wrong", [False, True])
async def test_what_changes_at_rest_has_to_become_right_before_the_restart(*, wrong: bool) -> None:
    class Found(Laws):
        """Finds something once the change has happened."""

        def at_rest(
            self, objects: Callable[[str], list[dict[str, Any]]], now: float
        ) -> list[Violation]:
            found = super().at_rest(objects, now)
            return found if wrong and "user delete pods" in world.notes else []

    world, drawn = World(), plan()
    change = Act(0.0, "change", "delete", "pods", "default", "one")
    scenario = attrs.evolve(drawn.scenario, rest=(change,))
    report = await play(world, attrs.evolve(drawn, scenario=scenario), Found(at_rest="law"))
    assert [found.law for found in report.violations] == (["law"] if wrong else [])
    restart = [] if wrong else ["kill manager-1", "start manager-1"]
    assert world.notes[-len(restart) - 1 :] == ["user delete pods", *restart]


async def test_disasters_happen_and_are_counted_and_labelled() -> None:
    world = World()
    blow = Disaster(5.0, "disaster/pause/0", "pause", "manager-1", seconds=3.0)
    report = await play(world, plan(disasters=(blow,)))
    assert world.notes[:3] == ["storm", "pause manager-1", "resume manager-1"]
    assert report.faults == {"pause": 1}
    assert report.labels == ("disaster/pause/0",)


async def test_what_is_not_permitted_does_not_happen() -> None:
    world = World()
    blow = Disaster(5.0, "disaster/pause/0", "pause", "manager-1", seconds=3.0)
    report = await play(world, plan(disasters=(blow,), only=frozenset({"other"})))
    assert "pause manager-1" not in world.notes
    assert report.faults == {}


async def test_acts_of_users_happen_in_their_time() -> None:
    world = World()
    made = plan()
    act = Act(4.0, "act/0", "delete", "jobs.batch", "default", "one", None)
    made = attrs.evolve(made, scenario=attrs.evolve(made.scenario, acts=(act,)))
    report = await play(world, made, keep_lines=True)
    assert any("user: act/0: delete jobs.batch default/one" in line for line in report.lines)
    assert report.labels == ("act/0",)


async def test_a_manager_that_is_dead_in_the_calm_is_started_again() -> None:
    world = World()
    world.living.clear()
    await play(world, plan())
    calm = world.notes.index("calm")
    assert world.notes.index("start manager-1") > calm


async def test_a_second_manager_is_started_before_the_storm() -> None:
    world = World()
    made = plan()
    await play(world, attrs.evolve(made, weather=attrs.evolve(made.weather, managers=2)))
    assert world.notes[:2] == ["start manager-2", "storm"]


async def test_a_broken_law_of_commits_is_reported() -> None:
    class Writing(World):
        async def sleep(self, seconds: float) -> None:
            if seconds == 20.0:
                self.commit(commit())
            await super().sleep(seconds)

    report = await play(Writing(), plan(), Laws(at_commit="quota"))
    assert [(found.law, found.object) for found in report.violations] == [("quota", "one")]
    assert report.commits == 1


async def test_a_law_of_rest_may_take_its_time_but_not_for_ever() -> None:
    world = World()
    soon = await play(world, plan(), Laws(at_rest="all run", until=world.now + LIMIT))
    assert soon.violations == ()
    never = await play(World(), plan(), Laws(at_rest="all run"))
    assert [found.law for found in never.violations] == ["all run"]


async def test_a_cluster_that_never_rests_is_reported() -> None:
    world = World()
    world.noisy = True
    report = await play(world, plan())
    assert [found.law for found in report.violations] == ["comes to rest"]


async def test_nothing_is_at_rest_while_somebody_cannot_know_what_happened() -> None:
    world = World()
    world.behind_until = world.now + 400.0
    report = await play(world, plan(), keep_lines=True)
    assert report.violations == ()
    (rest,) = [line for line in report.lines if "calm: at rest" in line]
    assert float(rest.split()[0]) >= world.behind_until + QUIET


async def test_somebody_who_never_learns_what_happened_is_reported() -> None:
    world = World()
    world.behind_until = world.now + 3 * LIMIT
    report = await play(world, plan())
    assert [found.law for found in report.violations] == ["a silent watch is given up"]


async def test_what_a_restart_changes_is_reported_but_leases_are_not() -> None:
    world = World()
    world.restart_writes = [commit(), commit(resource="leases.coordination.k8s.io")]
    report = await play(world, plan())
    (found,) = report.violations
    assert found.law == "a restart changes nothing"
    assert found.object == "pods default/one"
    assert found.text.endswith("wrote revision 7: .metadata.name None -> 'one'")


@pytest.mark.parametrize(
    ("ending", "laws"),
    [
        ("manager-1: KeyError: 'spec'", ["a manager ends only when it may"]),
        ("manager-1: LeadershipLost: somebody else has it", []),
        ("manager-1: Unavailable: the server is away", []),
        ("manager-1: ConfigError: jobs: could not be listed in time (no answer)", []),
        ("manager-1: ConfigError: queues: unknown key", ["a manager ends only when it may"]),
    ],
)
async def test_an_ending_of_a_manager_is_judged(ending: str, laws: list[str]) -> None:
    world = World()
    world.endings.append(ending)
    report = await play(world, plan())
    assert [found.law for found in report.violations] == laws


@pytest.mark.parametrize(
    ("message", "laws"),
    [
        ("2 more needed in flavor spot-1", []),
        ("1500m more needed in flavor spot-1", []),
        ("it is larger than flavor spot", ["a restart changes nothing"]),
        ("3 more needed in flavor spot-2", ["a restart changes nothing"]),
    ],
)
async def test_a_restart_may_change_amounts_in_a_message(message: str, laws: list[str]) -> None:
    def state(version: str, text: str) -> dict[str, Any]:
        status = {"conditions": [{"type": "QuotaReserved", "message": text}]}
        return {"metadata": {"name": "one", "resourceVersion": version}, "status": status}

    world = World()
    old, new = state("1", "3 more needed in flavor spot-1"), state("2", message)
    world.restart_writes = [attrs.evolve(commit(), old=old, new=new)]
    report = await play(world, plan())
    assert [found.law for found in report.violations] == laws


async def test_what_nobody_caught_is_reported() -> None:
    world = World()
    world.problems.append("Task exception was never retrieved: boom")
    report = await play(world, plan())
    assert [found.law for found in report.violations] == ["every error is handled"]


async def test_a_disaster_that_fails_is_reported_as_a_fault_of_the_storm() -> None:
    blow = Disaster(5.0, "disaster/flood/0", "flood", "server")
    report = await play(World(), plan(disasters=(blow,)))
    assert [found.law for found in report.violations] == ["the storm itself works"]


async def test_the_same_run_has_the_same_trace_and_another_one_has_another() -> None:
    one, same = [await play(World(), plan()) for _ in range(2)]
    blow = Disaster(5.0, "disaster/pause/0", "pause", "manager-1", seconds=3.0)
    other = await play(World(), plan(disasters=(blow,)))
    assert one.trace == same.trace
    assert one.trace != other.trace


def after_a_write(kind: str) -> tuple[World, SeedPlan]:
    """A world in which a manager writes once, and a plan in which that has a consequence."""

    class Writing(World):
        async def sleep(self, seconds: float) -> None:
            if seconds == 20.0:
                self.commit(commit())
            await super().sleep(seconds)

    made = plan()
    weather = attrs.evolve(made.weather, rates={kind: 3.0})
    return Writing(), attrs.evolve(made, weather=weather)


@pytest.mark.parametrize(
    ("kind", "note"), [("kill-after-write", "kill"), ("stop-after-write", "stop")]
)
async def test_a_process_ends_after_a_write_and_comes_back(kind: str, note: str) -> None:
    for seed in range(20):
        world, made = after_a_write(kind)
        report = await play(world, attrs.evolve(made, seed=seed))
        if report.faults:
            break
    assert report.faults == {kind: 1}
    assert world.notes[:3] == ["storm", f"{note} manager-1", "start manager-1"]


async def test_a_hot_loop_ends_the_run() -> None:
    class Hot(World):
        async def sleep(self, seconds: float) -> None:
            while True:
                self.commit(commit())
                await asyncio.sleep(0)

    report = await play(Hot(), plan())
    assert [found.law for found in report.violations] == ["writes are bounded"]
    assert report.commits == MOST_COMMITS
