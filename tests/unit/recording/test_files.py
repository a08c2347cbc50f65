"""Files of a recording: flushed, rotated, killed in the middle, damaged."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import ConfigError
from kueuelib.recording.reader import Begin, Notes, parts_of, read
from kueuelib.recording.rerun import Rerun
from kueuelib.recording.writer import Recorder, RecordingOptions
from kueuelib.runtime.clock import SystemClock
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.settings import DEFAULTS
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)


class Quick(SystemClock):
    """Waits for nothing, so that every line is flushed at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def facts() -> list[events.Event]:
    return [
        events.NamespaceSet("ns", {"kubernetes.io/metadata.name": "ns"}),
        events.FlavorSet(make_flavor("f")),
        events.ClusterQueueSet(make_cluster_queue("cq", {"f": {"cpu": 3}})),
        events.LocalQueueSet(make_local_queue("q", "cq")),
    ]


class Life:
    """An engine that is recorded, and work for it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.recorder = Recorder(RecordingOptions(path, **options), DEFAULTS, clock=Quick())
        self.engine = self.recorder.engine
        self.now = 1000.0
        for fact in facts():
            self.engine.observe(fact, self.now)

    def arrives(self, name: str) -> None:
        self.now += 1
        self.engine.observe(events.WorkloadSet(make_workload(name, "q", {"cpu": 1})), self.now)
        self.cycles()

    def goes(self, name: str) -> None:
        self.now += 1
        self.engine.observe(events.WorkloadGone(ObjectKey("ns", name)), self.now)
        self.cycles()

    def cycles(self) -> None:
        while (found := self.engine.next_cycle(self.now)) is not None:
            self.engine.settle(decide(found, self.now), self.now)

    async def start(self) -> asyncio.Task[None]:
        ready = asyncio.Event()
        task = asyncio.create_task(self.recorder.run(ready.set))
        await ready.wait()
        return task


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def replayed(path: Path) -> tuple[Rerun, Notes]:
    notes = Notes()
    found = Rerun(lambda _: Engine(DEFAULTS))
    for line in read(path, notes):
        assert found.take(line) is None
    return found, notes


def content(path: Path) -> list[dict[str, Any]]:
    data = zlib.decompressobj(31).decompress(path.read_bytes())
    return [orjson.loads(line) for line in data.splitlines()]


async def flushed(path: Path, text: str) -> None:
    """Waits until a line is in the file, as a reader sees it while it is written."""
    async with asyncio.timeout(60):
        while text not in json.dumps(content(path)):
            await asyncio.sleep(0.01)


async def test_what_was_flushed_can_be_read_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    life = Life(path)
    task = await life.start()
    life.arrives("one")
    await flushed(path, "one")
    killed = path.read_bytes()  # as the file is when the process dies now
    life.arrives("two")
    await end(task)
    found, notes = replayed(path)
    assert (found.lives, found.cycles, notes.texts) == (1, 2, [])
    path.write_bytes(killed)
    found, notes = replayed(path)
    assert found.cycles == 1
    assert [text.partition(": ")[2] for text in notes.texts] == [
        f"ends in the middle, after line {len(content(path))}, as when a manager is killed"
    ]


@pytest.mark.parametrize("hash_names", [False, True])
async def test_a_full_file_is_followed_by_one_that_can_be_read_alone(
    tmp_path: Path, hash_names: bool
) -> None:
    path = tmp_path / "r"
    life = Life(path, size=200, files=3, hash_names=hash_names)
    task = await life.start()
    for number in range(12):
        life.arrives(f"w{number}")
        async with asyncio.timeout(60):
            while len(life.recorder._tape._lines):
                await asyncio.sleep(0.01)
        if number < 6:
            life.goes(f"w{number}")
    await end(task)
    parts = parts_of(path)
    assert len(parts) == 3
    assert parts[-1] == path
    numbers = [int(part.suffix[1:]) for part in parts[:-1]]
    assert numbers == [numbers[1] - 1, numbers[1]]
    assert numbers[0] > 1
    found, notes = replayed(path)
    assert notes.texts == []
    assert found.lives == 1
    assert found.in_the_middle is not None
    assert found.engine is not None
    assert len(found.engine.cache.holders) == len(life.engine.cache.holders) == 3
    assert len(found.engine.pending(found.engine.cache.names[0])) == len(life.engine.pending("cq"))
    assert ('"name": "w11"' in json.dumps(content(path))) is not hash_names


async def test_another_life_goes_on_in_another_file(tmp_path: Path) -> None:
    path = tmp_path / "r"
    for name in ("one", "two"):
        life = Life(path)
        task = await life.start()
        life.arrives(name)
        await end(task)
    assert [part.name for part in parts_of(path)] == ["r.1", "r"]
    found, _ = replayed(path)
    assert found.lives == 2
    alone, _ = replayed(tmp_path / "r.1")
    assert alone.lives == 1


async def test_a_disk_that_is_full_ends_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "r")

    def full(lines: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(life.recorder._file, "write", full)
    task = await life.start()
    life.arrives("one")
    async with asyncio.timeout(60):
        while life.recorder._tape._open:
            await asyncio.sleep(0.01)
    life.arrives("two")
    assert life.recorder._tape.take() == []
    assert len(life.engine.cache.holders) == 2
    await end(task)


def test_a_folder_that_does_not_exist_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"r: No such file or directory; give a file in a folder"):
        Life(tmp_path / "missing" / "r")


HEADER = {
    "recording": 1,
    "version": "9.9",
    "at": 1.0,
    "life": "x",
    "part": 1,
    "by": "manager",
    "hash": "",
    "hashed": False,
    "configuration": {},
}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", ": is not valid JSON"),
        ("[1]", ": is not a JSON object"),
        ({"fact": "NamespaceGone", "of": "x"}, ": at: is missing"),
        ({"at": "soon", "heads": 1}, ": at: is not a number of seconds"),
        ({"at": 1e18, "heads": 1}, ": at: 1e+18 is not a time from 1970 to 9998"),
        ({"at": 1, "heads": "many"}, ": heads: is not a whole number"),
        ({"at": 1}, ": has neither fact nor heads nor plan"),
        ({"at": 1, "fact": "Rain", "of": 1}, ": fact: 'Rain' is not a known kind of fact"),
        ({"at": 1, "fact": "NamespaceGone"}, ": of: is missing"),
        ({"at": 1, "fact": "WorkloadGone", "of": "x"}, ": of.key: is not a list of namespace"),
        ({"at": 1, "fact": "NamespaceSet", "of": {"name": "x"}}, ": of: is not an object with"),
        ({"at": 1, "fact": "FlavorSet", "of": {"spec": 1}}, ": of.spec: "),
        ({"at": 1, "fact": "WorkloadSet", "of": {"metadata": {}}}, ": of.spec: Workload  was"),
        ({"at": 1, "plan": {}, "hash": ""}, ": plan: comes without the line that says how many"),
        ({"at": 1, "plan": [], "hash": ""}, ": plan: is not an object"),
        ({"at": 1, "plan": {}, "hash": "", "room": "x"}, ": room: is not a list of namespace"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_field(
    tmp_path: Path, line: object, problem: str
) -> None:
    path = tmp_path / "r"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_text(f"{json.dumps(HEADER)}\n{text}\n")
    with pytest.raises(ConfigError) as raised:
        replayed(path)
    assert f"{path}:2{problem}" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"recording": 3}, "recording: form 3 is newer than 1; replay it with kueuelib 9.9"),
        ({"recording": None}, "recording: the first line of a recording has the version"),
        ({"life": 1}, "life: is not a text"),
        ({"configuration": "x"}, "configuration: is not an object"),
    ],
)
def test_a_first_line_of_another_form_is_refused(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    path = tmp_path / "r"
    path.write_text(json.dumps({**HEADER, **change}) + "\n")
    with pytest.raises(ConfigError) as raised:
        list(read(path, Notes()))
    assert f"{path}:1: {problem}" in str(raised.value)


def test_damaged_data_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r"
    packed = zlib.compressobj(1, wbits=31)
    data = packed.compress(orjson.dumps(HEADER) + b"\n") + packed.flush(zlib.Z_SYNC_FLUSH)
    path.write_bytes(data + b"\xff" * 2000)
    with pytest.raises(ConfigError, match=r"r:\d+: the compressed data is damaged from here on"):
        list(read(path, Notes()))


def test_a_part_in_the_middle_begins_with_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "r"
    told = {"at": 2, "fact": "NamespaceGone", "of": "x", "again": True}
    path.write_text(f"{json.dumps({**HEADER, 'part': 4})}\n{json.dumps(told)}\n")
    begin, line = read(path, Notes())
    assert isinstance(begin, Begin)
    found = Rerun(lambda _: Engine(DEFAULTS))
    assert found.take(begin) is None
    assert found.take(line) is None
    assert found.facts == 1
    assert found.in_the_middle == begin.where
