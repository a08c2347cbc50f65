"""Logs of containers: lines with times, rotation, the last lines, following."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from kueuelib.node.containers import LogOptions
from kueuelib.node.log_files import ContainerLog, last_text, read_log


async def text(path: Path, log: ContainerLog | None = None, **options: Any) -> str:
    pieces = [piece async for piece in read_log(path, LogOptions(**options), log)]
    return b"".join(pieces).decode()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    log = ContainerLog(tmp_path / "logs" / "0.log")
    log.write("stdout", b"one\ntw")
    log.write("stderr", b"bad\n")
    log.write("stdout", b"o\nthree")
    log.close()
    return log.path


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "one\nbad\ntwo\nthree"),
        ({"tail_lines": 2}, "two\nthree"),
        ({"tail_lines": 0}, ""),
        ({"tail_lines": 9}, "one\nbad\ntwo\nthree"),
        ({"limit_bytes": 5}, "one\nb"),
        ({"stream": "Stderr"}, "bad\n"),
        ({"since": 4e9}, ""),
        ({"follow": True}, "one\nbad\ntwo\nthree"),
    ],
)
async def test_the_wanted_part_of_a_log(
    written: Path, options: dict[str, Any], wanted: str
) -> None:
    assert await text(written, **options) == wanted


async def test_every_line_has_its_time(written: Path) -> None:
    first = (await text(written, timestamps=True)).splitlines()[0]
    assert first.endswith("Z one")
    assert len(first.partition(" ")[0]) == len("2026-01-01T00:00:00.000000000Z")
    assert last_text(written) == "one\nbad\ntwo\nthree"


async def test_two_files_are_kept_of_a_long_log(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", most=2000)
    for number in range(100):
        log.write("stdout", f"line {number}\n".encode())
    log.close()
    sizes = [each.stat().st_size for each in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 2000
    lines = (await text(log.path)).splitlines()
    assert lines == [f"line {number}" for number in range(100 - len(lines), 100)]
    for tail in (1, 10, len(lines) - 1, len(lines)):
        assert (await text(log.path, tail_lines=tail)).splitlines() == lines[-tail:]


async def test_a_follower_sees_everything_across_rotations(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", most=2000)
    seen: list[str] = []

    async def follow() -> None:
        seen.append(await text(log.path, log, follow=True))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        for number in range(100):
            log.write("stdout", f"line {number}\n".encode())
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
        log.close()
    assert seen[0].splitlines() == [f"line {number}" for number in range(100)]


async def test_one_who_writes_too_much_has_to_wait(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    assert log.write("stdout", b"x\n") == 0
    assert log.write("stdout", b"x" * 2**26) > 1
    log.close()
