"""Writes a tape to files: compressed, flushed every second, rotated by size."""

from __future__ import annotations

import asyncio
import re
import threading
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import attrs
import orjson

from kueuelib import __version__
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.workload_state import has_quota
from kueuelib.errors import ConfigError
from kueuelib.recording.facts import (
    fact_data,
    is_last,
    plan_data,
    plan_hash,
    preemptions_data,
    subject_of,
    workload_data,
)
from kueuelib.recording.reader import FORMAT, put_aside
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import CycleInput, Plan
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.events import Effects, Event
from kueuelib.scheduler.settings import DEFAULTS, Settings

# ---- an engine that records all its input and decisions ------------------------------------------

Rename = Callable[[Obj], Obj]
"""Replaces the names in a line."""


class Tape:
    """Lines of JSON, without line ends, kept until they are taken.

    Args:
        rename: replaces the names in every line before it is written.

    Attributes:
        hash: of all plans so far.
        number: how many lines there were so far.
    """

    def __init__(self, rename: Rename = lambda line: line) -> None:
        self.hash = ""
        self.number = 0
        self._rename = rename
        self._open = True
        self._lines: list[bytes] = []
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when the first line is ready; it must be quick and not raise."""
        self._wake = wake

    def write(self, line: Obj) -> None:
        """Adds a line."""
        self._add(self._rename(line))

    def plan(self, line: Obj) -> None:
        """Adds a line with a plan, and the hash of it and all plans before."""
        line = self._rename(line)
        self.hash = plan_hash(self.hash, line["plan"])
        self._add({**line, "hash": self.hash})

    def _add(self, line: Obj) -> None:
        if not self._open:
            return
        self.number += 1
        self._lines.append(orjson.dumps(line))
        if len(self._lines) == 1:
            self._wake()

    def close(self) -> None:
        """Drops all lines, present and future."""
        self._open = False
        self._lines.clear()

    def take(self) -> list[bytes]:
        """Takes all lines."""
        lines, self._lines = self._lines, []
        return lines


class RecordedEngine(Engine):
    """The decision engine, with a tape of everything that changes it.

    `advance` is not on the tape, because the next line has the same effect.

    Args:
        settings: the administrator's choices.
        tape: records.
    """

    def __init__(self, settings: Settings = DEFAULTS, tape: Tape | None = None) -> None:
        super().__init__(settings)
        self.tape = tape or Tape()
        self._latest: dict[tuple[str, ObjectKey], Event] = {}
        self._assumed: dict[ObjectKey, events.Assumed] = {}

    def observe(self, event: Event, now: float) -> Effects:
        """Takes in one fact, and records it."""
        if isinstance(event, events.WorkloadSet):
            before = self.workload(event.workload.key)
            if has_quota(event.workload):
                self._assumed.pop(event.workload.key, None)
            of: Any = workload_data(event.workload, before, self.tape.number)
        else:
            of = fact_data(event)
        self.tape.write({"at": now, "fact": type(event).__name__, "of": of})
        self._remember(event)
        return super().observe(event, now)

    def _remember(self, event: Event) -> None:
        subject = subject_of(event)
        if subject is None:
            return
        if is_last(event):
            self._latest.pop(subject, None)
        else:
            self._latest[subject] = event

    def latest(self) -> tuple[Event, ...]:
        """The facts about all present objects, for a recording that begins here."""
        held = {key: self.cache.holder(key) for key in self._assumed}
        self._assumed = {
            key: event
            for key, event in self._assumed.items()
            if (holder := held[key]) is not None and holder.assumed
        }
        return (*self._latest.values(), *self._assumed.values())

    def next_cycle(self, now: float) -> CycleInput | None:
        """The heads that are worth a try; their number is recorded."""
        cycle = super().next_cycle(now)
        self.tape.write({"at": now, "heads": None if cycle is None else len(cycle.heads)})
        return cycle

    def settle(self, plan: Plan, now: float) -> Settled:
        """Carries out a plan, and records it."""
        self.tape.plan({"at": now, "plan": plan_data(plan)})
        settled = super().settle(plan, now)
        for admit in settled.admissions:
            self._assumed[admit.key] = events.Assumed(admit.key, admit.admission)
        return settled

    def make_room(self, key: ObjectKey) -> Settled:
        """Marks the victims of a reservation, and records it."""
        settled = super().make_room(key)
        plan = preemptions_data(settled.preemptions)
        self.tape.plan({"at": self._now, "room": list(key), "plan": plan})
        return settled


# ---- replaces the names of objects in a recording ------------------------------------------------
# The alphabetical order of names decides ties, so pseudonyms sort like the names that they replace,
# and the plans stay the same. They reveal nothing else, and differ from recording to recording.
# Names of resources, pod sets and nodes, labels of nodes, and UIDs, stay.

_STEP = 1000
_LIMIT = 10**6
_NAME = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_TOKEN = re.compile(_NAME)
_INTRODUCED = re.compile(
    rf'(?:\bflavor |\b(?:Flavor|topology) "|\b(?:Cluster|Local)Queue (?!selector)'
    rf"|\bworkload (?={_NAME}/))"
    rf"({_NAME})(?:/({_NAME}))?"
)
"""The places of names in messages that the scheduler compares with its verdict."""

_NAMED = ("metadata.name", "metadata.namespace", "metadata.labels.*")
_FLAVORS = "spec.resourceGroups.*.flavors.*.name"
_PATHS: Mapping[str, tuple[str, ...]] = {
    "ClusterQueueSet": (
        *("spec.cohortName", _FLAVORS, "spec.admissionChecksStrategy.admissionChecks.*.name"),
        "spec.admissionChecksStrategy.admissionChecks.*.onFlavors.*",
        "spec.namespaceSelector.matchLabels.*",
        "spec.namespaceSelector.matchExpressions.*.values.*",
    ),
    "CohortChanged": ("spec.parentName", _FLAVORS),
    "FlavorSet": ("spec.topologyName",),
    "ForeignPod": ("key.*",),
    "LocalQueueSet": ("spec.clusterQueue",),
    "NamespaceSet": ("name", "labels.*"),
    "WorkloadSet": (
        *("spec.queueName", "spec.podSets.*.template.spec.runtimeClassName"),
        *("status.admission.clusterQueue", "status.admission.podSetAssignments.*.flavors.*"),
        "status.admissionChecks.*.name",
    ),
    "Assumed": ("key.*", "admission.clusterQueue", "admission.podSetAssignments.*.flavors.*"),
    "Forgotten": ("key.*",),
    "NotPlaced": ("key.*",),
    "EvictionFailed": ("key.*",),
}
"""The places of names besides the metadata, by kind of fact; `*` is every item or value."""


class Pseudonyms:
    """Gives every name a fixed pseudonym."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._names: list[str] = []
        self._places: list[tuple[int, ...]] = []

    def of(self, name: str) -> str:
        """The pseudonym of a name."""
        pseudonym = self._known.get(name)
        if pseudonym is None:
            index = bisect_left(self._names, name)
            before = self._places[index - 1] if index else ()
            after = self._places[index] if index < len(self._places) else None
            place = between(before, after)
            self._names.insert(index, name)
            self._places.insert(index, place)
            pseudonym = self._known[name] = "n" + "-".join(f"{part:06d}" for part in place)
        return pseudonym

    def rename(self, line: Obj) -> Obj:
        """A line of a recording with pseudonyms; parts of the line may be changed."""
        if "fact" in line:
            return {**line, "of": self._fact(line["fact"], line["of"])}
        if "plan" in line:
            line = {**line, "plan": self._plan(line["plan"])}
            if "room" in line:
                line["room"] = [self._name(part) for part in line["room"]]
        return line

    def _fact(self, kind: str, of: Any) -> Any:
        if isinstance(of, str):
            return of if kind == "NodeGone" else self._name(of)
        if isinstance(of, list):
            return [self._name(part) for part in of]
        paths = (*(_NAMED if "metadata" in of else ()), *_PATHS.get(kind, ()))
        for path in paths:
            of = _changed(of, path.split("."), self._name)
        if kind in ("EvictionFailed", "Unreadable"):  # words of the API server may name anything
            of = _changed(of, ["why"], lambda text: text and "refused")
        return _changed(of, ["status", "conditions", "*", "message"], self._text)

    def _plan(self, plan: Obj) -> Obj:
        renamed: Obj = {}
        if "admit" in plan:
            renamed["admit"] = [
                [self._key(key), self._name(queue), self._sets(sets), *rest]
                for key, queue, sets, *rest in plan["admit"]
            ]
        if "preempt" in plan:
            renamed["preempt"] = [
                [self._key(key), [[self._key(victim), why] for victim, why in victims]]
                for key, victims in plan["preempt"]
            ]
        if "wait" in plan:
            renamed["wait"] = [
                [self._key(key), self._name(queue), *rest] for key, queue, *rest in plan["wait"]
            ]
        return renamed

    def _sets(self, sets: list[Any]) -> list[Any]:
        return [
            [
                *(name, count),
                {resource: self._name(flavor) for resource, flavor in flavors.items()},
                *domains,
            ]
            for name, count, flavors, *domains in sets
        ]

    def _name(self, text: str) -> str:
        return self.of(text) if text else text

    def _key(self, text: str) -> str:
        return "/".join(map(self._name, text.split("/")))

    def _text(self, text: str) -> str:
        """A message with its names replaced, including those of objects that appear later."""
        for match in _INTRODUCED.finditer(text):
            for name in filter(None, match.groups()):
                self.of(name)
        return _TOKEN.sub(lambda token: self._known.get(token[0], token[0]), text)


def _changed(data: Any, path: list[str], change: Callable[[str], str]) -> Any:
    """The data with the texts at a path replaced; a missing path is ignored."""
    if not path:
        return change(data) if isinstance(data, str) else data
    first, *rest = path
    if first == "*" and isinstance(data, list):
        return [_changed(one, rest, change) for one in data]
    if first == "*" and isinstance(data, dict):
        return {key: _changed(one, rest, change) for key, one in data.items()}
    if isinstance(data, dict) and first in data:
        return {**data, first: _changed(data[first], rest, change)}
    return data


def between(before: tuple[int, ...], after: tuple[int, ...] | None) -> tuple[int, ...]:
    """A tuple that sorts between two others and does not end with 0.

    Args:
        before: the smaller one; empty for the beginning.
        after: the larger one; None for the end.
    """
    digits: tuple[int, ...] = ()
    while True:
        depth = len(digits)
        low = before[depth] if depth < len(before) else 0
        high = after[depth] if after is not None and depth < len(after) else _LIMIT
        if high - low > 1:
            return (*digits, low + min(_STEP, (high - low) // 2))
        digits = (*digits, low)
        if low < high:
            after = None


# --------------------------------------------------------------------------------------------------

FLUSH = 1.0
"""The longest delay, in seconds, until a line is in the file."""
LEVEL = 1
"""The compression level of zlib: lines are alike, so a higher one gains little."""
MEBI = 2**20
MANAGER, WATCHES = "manager", "watches"


@attrs.frozen
class RecordingOptions:
    """How to record.

    Attributes:
        path: the file.
        configuration: the manager's settings for decisions and times, in the form of its file.
        by: `manager`, or `watches` if nothing is decided.
        size: bytes after which another file begins.
        files: how many files are kept.
        hash_names: whether names are replaced.
    """

    path: Path
    configuration: Obj = attrs.field(factory=dict)
    by: str = MANAGER
    size: int = 64 * MEBI
    files: int = 8
    hash_names: bool = False


class Recorder:
    """Records the input and the decisions of one engine; a part of a `Manager`.

    A file that can no longer be written ends the recording, not the manager.

    Args:
        options: how to record.
        settings: those of the engine.
        clock: decides when parts begin, and waits.

    Attributes:
        engine: the engine.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(
        self, options: RecordingOptions, settings: Settings, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._rename = Pseudonyms().rename if options.hash_names else _as_it_is
        self._tape = Tape(self._rename)
        self.engine = RecordedEngine(settings, self._tape)
        self._options = options
        self._clock = clock
        self._life = uuid4().hex
        self._part = 0
        self._something = asyncio.Event()
        self._writing = threading.Lock()
        self._log = get_logger("recorder")
        self._tape.listen(self._something.set)
        try:
            self._file = _File(options, [self._header()])
        except OSError as error:
            problem = error.strerror or str(error)
            fix = "give a file in a folder that can be written"
            raise ConfigError(str(options.path), problem, fix) from error

    def _header(self) -> bytes:
        self._part += 1
        options = self._options
        return orjson.dumps(
            {
                "recording": FORMAT,
                "version": __version__,
                "at": self._clock.now(),
                "life": self._life,
                "part": self._part,
                "by": options.by,
                "hash": self._tape.hash,
                "hashed": options.hash_names,
                "configuration": options.configuration,
            }
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Writes until cancelled, then writes the rest."""
        ready()
        try:
            while True:
                await self._something.wait()
                await self._clock.sleep(FLUSH)
                self._something.clear()
                await asyncio.to_thread(self._write, self._tape.take())
                if self._file.size >= self._options.size:
                    rest = self._tape.take()
                    again = self._again(self._header(), self.engine.latest())
                    await asyncio.to_thread(self._rotate, rest, again)
        finally:
            self._write(self._tape.take())
            self._close()

    def _write(self, lines: list[bytes]) -> None:
        with self._writing:
            try:
                self._file.write(lines)
            except OSError as error:
                self._ends(error)

    def _again(self, header: bytes, latest: tuple[Event, ...]) -> Iterator[bytes]:
        """The first lines of a part: all facts that hold at its beginning."""
        yield header
        at = self._clock.now()
        for event in latest:
            line = {"at": at, "fact": type(event).__name__, "of": fact_data(event), "again": True}
            yield orjson.dumps(self._rename(line))

    def _close(self) -> None:
        with self._writing:
            try:
                self._file.close()
            except OSError as error:
                self._ends(error)

    def _rotate(self, rest: list[bytes], again: Iterable[bytes]) -> None:
        with self._writing:
            try:
                self._file.write(rest)
                self._file.close()
                self._file = _File(self._options, again)
            except OSError as error:
                self._ends(error)

    def _ends(self, error: OSError) -> None:
        self._tape.close()
        self._log.error("the recording has ended", file=str(self._options.path), why=str(error))


def _as_it_is(line: Obj) -> Obj:
    return line


class _File:
    """One part of a recording."""

    def __init__(self, options: RecordingOptions, lines: Iterable[bytes]) -> None:
        put_aside(options.path, options.files)
        self._file: IO[bytes] = options.path.open("xb")
        self._stream = zlib.compressobj(LEVEL, wbits=31)
        self.size = 0
        self.write(lines)

    def write(self, lines: Iterable[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        if data and not self._file.closed:
            packed = self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)
            self._file.write(packed)
            self._file.flush()
            self.size += len(packed)

    def close(self) -> None:
        if not self._file.closed:
            self._file.write(self._stream.flush())
            self._file.close()
