"""`kueuelib replay`: the command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

import attrs
import orjson
from rich.table import Table
from rich.text import Text

from kueuelib.api import meta as conditions
from kueuelib.api import names
from kueuelib.api.codec import encode
from kueuelib.api.kueue import Workload, WorkloadStatus
from kueuelib.api.meta import Obj, ObjectKey, format_micro_time, format_time
from kueuelib.app.explaining.asking import ObjectAnswer
from kueuelib.app.recording import recorded_settings
from kueuelib.cli.explain.text import show
from kueuelib.cli.replay.scenario import scenario_of
from kueuelib.cli.simulate.command import SimulateOptions, question, run_simulation
from kueuelib.cli.terminal import terminal
from kueuelib.errors import ConfigError
from kueuelib.recording.history import PresentObjects, WorkloadFates, WorkloadHistory
from kueuelib.recording.reader import Begin, FactLine, Line, Notes, read
from kueuelib.recording.rerun import Difference, Rerun, event_of
from kueuelib.recording.writer import WATCHES
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import Settings
from kueuelib.simulator.forecast import RunTimes, objects_of
from kueuelib.simulator.parsing import BadValue, moment
from kueuelib.simulator.play import Question
from kueuelib.simulator.readers.manifests import ARRIVAL_SECONDS, RUN_SECONDS

# ---- the results of a replay in the terminal -----------------------------------------------------

WIDTH = 160
"""Columns if the output is not a terminal."""
MOST_LINES = 40
"""The maximum number of lines shown that both sides have in common."""


def show_summary(rerun: Rerun, notes: Sequence[str], file: IO[str]) -> None:
    """Prints that every plan was the recorded one."""
    console = terminal(file, WIDTH)
    facts, cycles = _count(rerun.facts, "fact"), _count(rerun.cycles, "cycle")
    lives = "" if rerun.lives == 1 else f" of {rerun.lives} engines"
    until = format_micro_time(rerun.at)
    console.print(f"{facts} and {cycles}{lives}, until {until}", highlight=False)
    if rerun.cycles:
        text = f"Every plan is the recorded one; hash of all plans: {rerun.hash}"
        console.print(text, highlight=False)
    for note in notes:
        console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)


def show_difference(difference: Difference, rerun: Rerun, file: IO[str]) -> None:
    """Prints the first plan that differs from the recorded one, next to the recorded one."""
    console = terminal(file, WIDTH)
    when = format_micro_time(difference.at)
    text = (
        f"Cycle {difference.cycle} at {when} ({difference.at!r}, {difference.where}): "
        f"{difference.why}"
    )
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("recorded", ratio=1, overflow="fold")
    table.add_column("replayed", ratio=1, overflow="fold")
    for left, right in _rows(list(_lines(difference.recorded)), list(_lines(difference.replayed))):
        style = "" if left == right else "bold"
        table.add_row(Text(left, style=style), Text(right, style=style))
    console.print(table)
    if rerun.in_the_middle is not None:
        note = (
            f"Note: the parts before {rerun.in_the_middle.file} are missing; what the engine knew "
            "besides the objects is not known, and the difference may come from that"
        )
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def _rows(left: list[str], right: list[str]) -> Iterator[tuple[str, str]]:
    """Both sides line by line: first the differences, then the common lines."""
    mine, others = set(left), set(right)
    only_left = [line for line in left if line not in others]
    only_right = [line for line in right if line not in mine]
    yield from zip_longest(only_left, only_right, fillvalue="")
    both = [line for line in left if line in others]
    yield from ((line, line) for line in both[:MOST_LINES])
    if len(both) > MOST_LINES:
        more = f"and {len(both) - MOST_LINES:,} more on both sides"
        yield more, more
    if left != right and not only_left and not only_right:
        yield "in this order", "in another order"


def _lines(plan: Obj) -> Iterator[str]:
    """A plan in words, one decision per line."""
    for key, queue, sets, admitted, borrowing in plan.get("admit", ()):
        parts = "; ".join(map(_pods, sets))
        later = "" if admitted else ", after its checks"
        borrows = f", borrowing {borrowing} up" if borrowing else ""
        yield f"admit {key} in {queue}: {parts}{later}{borrows}"
    for key, victims in plan.get("preempt", ()):
        for victim, why in victims:
            yield f"preempt {victim} for {key}: {why}"
    for key, queue, reason, requeue in plan.get("wait", ()):
        yield f"wait {key} in {queue}: {reason} ({requeue})"


def _pods(assignment: Sequence[Any]) -> str:
    name, count, flavors = assignment
    chosen = ", ".join(f"{resource} of {flavor}" for resource, flavor in flavors.items())
    return f"{count} x {name} with {chosen}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


# ---- continues from a time of a recording with the same jobs under other rules, as input of ------
# `simulate`.
#
# The run time of a job is known if it ended in the recording. For other jobs, the median of similar
# jobs in the same queue is used, or the time that they have run at least, or that they may run at
# most.

SNAPSHOT, ARRIVALS, CONFIGURATION = "recorded.json", "recorded-later.json", "configuration.json"
"""The files in the folder of the results: the objects at the time, later arrivals, the settings."""


def simulate(
    world: World,
    lives: WorkloadFates,
    at: float,
    configuration: Obj,
    policies: Sequence[Path],
    output: Path,
) -> int:
    """Continues from a time with simulations, once without and once with each policy.

    Args:
        world: the objects at that time.
        lives: what happened to the Workloads later.
        at: the time, in seconds since the epoch.
        configuration: the manager's, as recorded.
        policies: files of objects that replace recorded ones.
        output: the folder for the results.

    Returns:
        The exit code of `simulate`.

    Raises:
        ConfigError: nothing is left to simulate, or an argument or a file is not valid.
    """
    guess = _Guess(lives, at)
    snapshot = [
        _timed(encode(each), at, guess.seconds(lives.by_uid[each.uid]))
        for each in world.workloads.values()
        if each.spec.active and not _withdrawn(lives.by_uid[each.uid])
    ]
    later = [
        _timed(encode(_fresh(past.first)), past.seen, guess.seconds(past))
        for past in lives.by_uid.values()
        if past.seen > at and past.first.spec.active and not _withdrawn(past)
    ]
    if not snapshot and not later:
        fix = "give an earlier --until"
        raise ConfigError("--with", f"there is no job at {format_time(at)} or later", fix)
    try:
        output.mkdir(parents=True, exist_ok=True)
        files = [
            _write(output / SNAPSHOT, [*objects_of(world), *snapshot]),
            *([_write(output / ARRIVALS, later)] if later else []),
        ]
        config = _write(output / CONFIGURATION, configuration) if configuration else None
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(output), problem, "give a folder that can be written") from error
    withdrawn = sum(map(_withdrawn, lives.by_uid.values()))
    if withdrawn:
        sys.stderr.write(f"Left out: {withdrawn} that were deleted while they waited\n")
    if guess.guessed:
        sys.stderr.write(f"Run times assumed: {guess.guessed} of jobs that did not end\n")
    return run_simulation(SimulateOptions(files, "yaml", policies, config, output))


class _Guess:
    """Run times of jobs, and how often one had to be guessed."""

    def __init__(self, lives: WorkloadFates, at: float) -> None:
        self.guessed = 0
        self._times = RunTimes()
        self._end = max((past.ended or past.seen for past in lives.by_uid.values()), default=at)
        for past in lives.by_uid.values():
            if past.ran is not None:
                self._times.add(past.workload, past.ran)

    def seconds(self, past: WorkloadHistory) -> float:
        if past.ran is not None:
            return past.ran
        self.guessed += 1
        since = conditions.since(past.workload.status.conditions, names.ADMITTED)
        least = 0.0 if since is None else max(0.0, self._end - since)
        return max(least, self._times.middle(past.workload) or 0.0)


def _withdrawn(past: WorkloadHistory) -> bool:
    return past.ended is not None and past.ran is None


def _fresh(workload: Workload) -> Workload:
    """The Workload as it was created: without its status, and without its job, which is not
    recorded.
    """
    meta = workload.metadata
    labels = {name: value for name, value in meta.labels.items() if name != names.JOB_UID_LABEL}
    meta = attrs.evolve(meta, labels=labels)
    return attrs.evolve(workload, metadata=meta, status=WorkloadStatus())


def _timed(raw: Obj, arrival: float, seconds: float) -> Obj:
    notes = {ARRIVAL_SECONDS: repr(arrival), RUN_SECONDS: repr(seconds)}
    return {**raw, "metadata": {**raw["metadata"], "annotations": notes}}


def _write(path: Path, content: Any) -> Path:
    path.write_bytes(orjson.dumps(content))
    return path


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


@attrs.frozen
class ReplayOptions:
    """The options of the command.

    Attributes:
        file: the recording.
        until: when to stop; None: at the end.
        explain: `JOB@TIME`.
        policies: files of objects to continue with as a simulation.
        output: the folder for the results of the simulation.
        scenario: whether to print a scenario.
    """

    file: Path
    until: str | None
    explain: Sequence[str]
    policies: Sequence[Path]
    output: Path | None
    scenario: bool


def run(options: ReplayOptions) -> int:
    """Replays a recording and prints the result.

    Returns:
        0: every plan is the recorded one; 1: one is not.

    Raises:
        ConfigError: a line cannot be read, or an argument or a file is not valid.
    """
    if bool(options.policies) is not (options.output is not None):
        raise ConfigError("kueuelib replay", "--with and --output go together", "give both")
    if options.policies and options.until is None:
        problem = "at the end of the recording, nothing is left to simulate"
        raise ConfigError("--with", problem, "give the time to start at with --until")
    replay = _Replay(options)
    different = replay.run()
    console = sys.stderr if options.scenario else sys.stdout
    if different is not None:
        show_difference(different, replay.rerun, console)
        return 1
    show_summary(replay.rerun, replay.notes(), console)
    if options.scenario:
        scenario, left_out = scenario_of(replay.objects.world(replay.settings()), replay.at)
        for text in left_out:
            sys.stderr.write(f"Left out of the scenario: {text}\n")
        sys.stdout.write(orjson.dumps(scenario).decode() + "\n")
    if options.output is not None:
        return simulate(
            replay.objects.world(replay.settings()),
            replay.lives(),
            replay.at,
            replay.begin().configuration,
            options.policies,
            options.output,
        )
    return 0


class _Replay:
    """Reads a recording up to a time, and answers the questions on the way."""

    def __init__(self, options: ReplayOptions) -> None:
        self._questions = sorted(map(question, options.explain), key=lambda each: each.at)
        self._until = None if options.until is None else _until(options.until)
        self._notes = Notes()
        self._lines = read(options.file, self._notes)
        self._file = options.file
        self._begin: Begin | None = None
        self._rest: list[Line] = []
        self.rerun = Rerun(lambda begin: Engine(recorded_settings(begin)))
        self.objects = PresentObjects()
        self.at = 0.0

    def begin(self) -> Begin:
        """The first line of the part that was read last.

        Raises:
            ConfigError: there is none.
        """
        if self._begin is None and self._rest:
            (first,) = self._rest
            problem = f"the recording begins at {format_micro_time(first.at)}"
            raise ConfigError("--until", problem, "give a later time")
        if self._begin is None:
            raise ConfigError(str(self._file), "holds no whole line", "give another recording")
        return self._begin

    def settings(self) -> Settings:
        """The settings of the engine that was recorded."""
        return recorded_settings(self.begin())

    def run(self) -> Difference | None:
        """Reads as far as requested; returns the first decision that differs, if any."""
        for line in self._lines:
            self._answer(line.at)
            if self._until is not None and line.at > self._until:
                self._rest.append(line)
                break
            different = self.rerun.take(line)
            if different is not None:
                return different
            self.at = line.at
            if isinstance(line, Begin):
                if self.rerun.fresh:
                    self.objects = PresentObjects()
                self._begin = line
            elif self.rerun.event is not None:
                self.objects.observe(self.rerun.event)
        self.begin()
        self._answer(None)
        if self._until is not None:
            self.at = max(self.at, self._until)
        return None

    def _answer(self, before: float | None) -> None:
        """Answers the questions about times before a given one, or all if it is None."""
        while self._questions and (before is None or self._questions[0].at < before):
            asked: Question = self._questions.pop(0)
            begun = self._begin is not None
            answer(asked, self.objects.world(self.settings()) if begun else World())

    def lives(self) -> WorkloadFates:
        """What happened to the Workloads after the requested time.

        Raises:
            ConfigError: a line cannot be read.
        """
        lives = WorkloadFates(self.objects.world().workloads.values(), self.at)
        rest = PresentObjects()
        for event in self.objects.world().events():
            rest.observe(event)
        for line in self._rest_of_lines():
            if isinstance(line, FactLine):
                event = event_of(line, rest.workload)
                rest.observe(event)
                lives.observe(event, line.at)
        return lives

    def _rest_of_lines(self) -> Iterator[Line]:
        yield from self._rest
        yield from self._lines

    def notes(self) -> list[str]:
        """What the reader of a report has to know about the recording, in sentences."""
        notes = list(self._notes.texts)
        begin = self.begin()
        if begin.by == WATCHES:
            notes.append("recorded from watches alone: there are no plans to compare")
        if begin.hashed:
            notes.append("names were replaced when it was recorded")
        return notes


def _until(text: str) -> float:
    try:
        return moment(text, "time")
    except BadValue as error:
        fix = "give seconds since the epoch, or a date and time"
        raise ConfigError(f"--until {text}", error.reason, fix) from error
