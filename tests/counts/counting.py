"""Counts what one small, fixed run costs: `python tests/counts/counting.py` prints it as JSON.

The whole manager plays a small copy of upstream's benchmark in virtual time, without faults, so
every run makes the same calls on every machine. A step of the event loop takes no time: how many
asyncio takes differs between versions of Python, and what happens when would differ with it. All
numbers are per admission. With `--accept` they become the expected ones.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from baseline.shape import BASELINE, CLASS_LABEL, Shape, workload
from expected_counts import FILE, written

import kueuelib
from kueuelib.api.meta import find_condition, format_time, is_true
from kueuelib.controllers import admission
from kueuelib.errors import Conflict
from kueuelib.testing.storm.world import World

SHAPE = Shape(BASELINE.classes, cohorts=2, queues=3).scaled(180)
WORKLOADS = "workloads.kueue.x-k8s.io"
MANAGER = "manager-1"
LIMIT = 600.0
"""Virtual seconds within which everything has to finish."""
SETTLE = 5.0
PASSING = ("leases.coordination.k8s.io",)
PACKAGES = ("scheduler", "workload", "controllers", "runtime", "machinery", "api")


class Counts:
    """Sees the manager's calls on the wire and the decisions of its engine."""

    def __init__(self, world):
        self.calls = Counter()
        self.made = Counter()
        decide = admission.decide_step_by_step

        def counted(cycle, now):
            plan = yield from decide(cycle, now)
            self.made["cycles"] += 1
            self.made["nominated heads"] += len(cycle.heads)
            decisions = (*plan.admissions, *plan.waits, *plan.preemptions)
            self.made["decisions"] += len(decisions)
            return plan

        admission.decide_step_by_step = counted
        world.set_witness(self)

    def sent(self, call, now):
        if call.peer == f"webhook@{MANAGER}":
            self.made["webhook reviews"] += 1
        if call.owner == MANAGER and call.peer == "server" and call.resource not in PASSING:
            part = f"/{call.subresource}" if call.subresource else ""
            self.calls[f"{call.verb} {call.resource.partition('.')[0]}{part}"] += 1

    def answered(self, call, status, body, now):
        pass

    def reborn(self, owner):
        pass

    def woken(self, owner, now):
        pass


class Jobs:
    """Plays the jobs behind the Workloads: each gives quota back when evicted, and ends in time."""

    def __init__(self, world):
        self.world = world
        self.seconds = {each.name: each.seconds for each in SHAPE.classes}
        self.admissions = 0
        self.finished = asyncio.Event()
        self.left = SHAPE.total
        self.tasks = set()
        world.listeners.append(self.committed)

    def committed(self, commit):
        new = commit.new
        if commit.resource != WORKLOADS or new is None or not is_true(new, "Admitted"):
            return
        if is_true(new, "Finished"):
            if not is_true(commit.old, "Finished"):
                self.left -= 1
                if not self.left:
                    self.finished.set()
            return
        seconds = self.seconds[new["metadata"]["labels"][CLASS_LABEL]]
        if commit.old is None or not is_true(commit.old, "Admitted"):
            self.admissions += 1
            self.spawn(self.play(new, seconds, "Finished"))
        elif is_true(new, "Evicted") and not is_true(commit.old, "Evicted"):
            self.spawn(self.play(new, 0.0, "Evicted"))

    def spawn(self, work):
        task = self.world.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def play(self, obj, seconds, what):
        admitted = find_condition(obj["status"]["conditions"], "Admitted")["lastTransitionTime"]
        await self.world.sleep(seconds)
        meta, user = obj["metadata"], self.world.user()
        while True:
            newest = await user.get(WORKLOADS, meta["namespace"], meta["name"])
            condition = find_condition(newest["status"]["conditions"], "Admitted")
            if condition["status"] != "True" or condition["lastTransitionTime"] != admitted:
                return
            if what == "Finished" and is_true(newest, "Evicted"):
                return
            status = newest["status"]
            if what == "Finished":
                change = {"Finished": "True"}
            else:
                change = {"QuotaReserved": "False", "Admitted": "False"}
                status.pop("admission", None)
            now = format_time(self.world.loop.wall())
            old = [each for each in status["conditions"] if each["type"] not in change]
            status["conditions"] = [*old, *(self.condition(*each, now) for each in change.items())]
            try:
                await user.replace(WORKLOADS, newest, "status")
            except Conflict:
                continue
            return

    def condition(self, type_, status, now):
        return {
            "type": type_,
            "status": status,
            "reason": "ByTest",
            "message": "By the test",
            "lastTransitionTime": now,
        }


async def play(world, profile):
    user = world.user()
    for resource, obj in SHAPE.queue_objects():
        await user.create(f"{resource.plural}.{resource.group}".rstrip("."), obj)
    await world.sleep(SETTLE)

    async def one(place, kind):
        for number in range(kind.count):
            await world.sleep(kind.interval)
            await user.create(WORKLOADS, workload(place, kind, number))

    jobs = Jobs(world)
    counts = Counts(world)
    profile.enable()
    async with asyncio.TaskGroup() as group:
        for place in SHAPE.places():
            for kind in SHAPE.classes:
                group.create_task(one(place, kind))
    async with asyncio.timeout(LIMIT):
        await jobs.finished.wait()
    await world.sleep(SETTLE)
    profile.disable()
    return jobs, counts


def functions(profile):
    """Calls of functions of kueuelib, by package.

    Comprehensions do not count: newer versions of Python do not call a function for them.
    """
    root = str(Path(kueuelib.__file__).parent)
    by_package = Counter()
    for (file, _, name), (_, calls, *_) in pstats.Stats(profile).stats.items():
        package = file.removeprefix(root).strip("/").partition("/")[0]
        if file.startswith(root) and package in PACKAGES and not name.startswith("<"):
            by_package[f"functions called in kueuelib.{package}"] += calls
    return by_package


def main():
    world = World()
    world.loop.cost = 0.0
    world.run(world.boot())
    profile = cProfile.Profile()
    jobs, counts = world.run(play(world, profile))
    assert not world.problems, world.problems
    assert not world.endings, world.endings
    total = {"API calls": counts.calls.total()}
    totals = counts.made | counts.calls | total | functions(profile)
    numbers = {name: number / jobs.admissions for name, number in totals.items()}
    text = written(numbers | {"admissions per Workload": jobs.admissions / SHAPE.total})
    if "--accept" in sys.argv[1:]:
        FILE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
