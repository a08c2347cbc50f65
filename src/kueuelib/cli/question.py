"""The option `--explain JOB@TIME` of commands that go through a time that is over."""

from __future__ import annotations

import re

from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.app.explaining.asking import ObjectAnswer
from kueuelib.cli.explain.text import show
from kueuelib.cli.terminal import terminal
from kueuelib.errors import ConfigError
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.world import World
from kueuelib.simulator.parsing import BadValue, moment
from kueuelib.simulator.play import Question

# ---- questions about single Workloads at a time of a recording -----------------------------------


def answer(asked: Question, world: World) -> None:
    """Prints why a job waits in a world."""
    console = terminal()
    console.print(f"At {format_time(asked.at)}:", style="bold", highlight=False)
    keys = matching(asked.job, world)
    if not keys:
        console.print(f"{asked.job} did not exist", highlight=False)
    for key in keys:
        show([ObjectAnswer(f"Workload {key.name}", True, explain(world, key, asked.at))])
    console.print()


def matching(job: ObjectKey, world: World) -> list[ObjectKey]:
    """The Workloads of a name, or else those whose names were made from the name of a job."""
    near = [key for key in world.workloads if job.namespace in ("", key.namespace)]
    made = re.compile(rf"[a-z]+-{re.escape(job.name)}-[0-9a-z]{{5}}")
    exact = [key for key in near if key.name == job.name]
    return sorted(exact or [key for key in near if made.fullmatch(key.name)])


# --------------------------------------------------------------------------------------------------


def question(text: str, namespace: str = "") -> Question:
    """The question in `--explain`.

    Args:
        text: the value of the option.
        namespace: of a job that is named without one.

    Raises:
        ConfigError: it does not name a job and a time.
    """
    job, at, when = text.rpartition("@")
    named, _, name = job.rpartition("/")
    fix = "write [NAMESPACE/]JOB@TIME"
    if not at or not name:
        raise ConfigError(f"--explain {text}", "does not name a job and a time", fix)
    try:
        return Question(ObjectKey(named or namespace, name), moment(when, "time"))
    except BadValue as error:
        raise ConfigError(f"--explain {text}", error.reason, fix) from error
