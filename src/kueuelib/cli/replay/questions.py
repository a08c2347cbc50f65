"""Questions about single Workloads at a time of a recording."""

from __future__ import annotations

import re

from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.app.explaining.asking import Answer
from kueuelib.cli.explain.text import show
from kueuelib.cli.terminal import terminal
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.world import World
from kueuelib.simulator.play import Question


def answer(asked: Question, world: World) -> None:
    """Prints why a job waits in a world."""
    console = terminal()
    console.print(f"At {format_time(asked.at)}:", style="bold", highlight=False)
    keys = matching(asked.job, world)
    if not keys:
        console.print(f"{asked.job} did not exist", highlight=False)
    for key in keys:
        show([Answer(f"Workload {key.name}", True, explain(world, key, asked.at))])
    console.print()


def matching(job: ObjectKey, world: World) -> list[ObjectKey]:
    """The Workloads of a name, or else those whose names were made from the name of a job."""
    near = [key for key in world.workloads if job.namespace in ("", key.namespace)]
    made = re.compile(rf"[a-z]+-{re.escape(job.name)}-[0-9a-z]{{5}}")
    exact = [key for key in near if key.name == job.name]
    return sorted(exact or [key for key in near if made.fullmatch(key.name)])
