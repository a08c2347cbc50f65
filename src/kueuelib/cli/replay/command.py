"""`kueuelib replay`: the command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import orjson

from kueuelib.api.meta import format_micro_time
from kueuelib.app.recording import recorded_settings
from kueuelib.cli.question import question
from kueuelib.cli.replay.questions import answer
from kueuelib.cli.replay.scenario import scenario_of
from kueuelib.cli.replay.sides import show_difference, show_summary
from kueuelib.cli.replay.what_if import simulate
from kueuelib.errors import ConfigError
from kueuelib.recording.history import Lives, Objects
from kueuelib.recording.reader import Begin, FactLine, Line, Notes, read
from kueuelib.recording.rerun import Difference, Rerun, event_of
from kueuelib.recording.writer import WATCHES
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import Settings
from kueuelib.simulator.faults import BadValue
from kueuelib.simulator.parsing import moment
from kueuelib.simulator.play import Question


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
        self.objects = Objects()
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
                    self.objects = Objects()
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

    def lives(self) -> Lives:
        """What happened to the Workloads after the requested time.

        Raises:
            ConfigError: a line cannot be read.
        """
        lives = Lives(self.objects.world().workloads.values(), self.at)
        rest = Objects()
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
