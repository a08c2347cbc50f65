"""What a simulation shows in a terminal: progress and small pictures."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kueuelib.cli.simulate import command, text
from kueuelib.cli.simulate.command import ProgressLine
from kueuelib.cli.simulate.text import PLAIN, line
from kueuelib.cli.syntax import app
from kueuelib.simulator.cluster import cluster_of, default_cluster
from kueuelib.simulator.driver import Driver
from kueuelib.simulator.trace import Trace, TraceJob, pods

JOBS = [TraceJob(f"j{at}", 3600 * at, 1800, (pods({"cpu": 1}),), "q") for at in range(10)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO) -> list[str]:
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(command, "PAUSE", 0.0)
    with Trace(JOBS) as trace, ProgressLine("baseline", trace) as listener:
        Driver(cluster_of(default_cluster(trace, {})), [listener]).run(trace)
    return screen.getvalue().split("\r\x1b[K")


def test_progress_says_virtual_time_jobs_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = shown(monkeypatch, Terminal())
    begins = "baseline: 1:30:00 simulated, 2 of 10 jobs arrived, 2 ended, about "
    (found,) = [one for one in lines if one.startswith(begins)]
    assert re.fullmatch(r"0:\d\d:\d\d left", found.removeprefix(begins))
    assert lines[-1] == "", "the line is removed at the end"


def test_progress_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = shown(monkeypatch, Terminal())
    assert len(lines) > 10
    assert {len(one) for one in lines if one} == {39}


def test_there_is_no_progress_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == [""]


def test_blocks_are_as_high_as_their_values() -> None:
    assert line([0, 0.01, 1, 4, 7.9, 8, 9, None], 8) == " ▁▁▄███ "
    assert line([0, 1, 8], 8, PLAIN) == " .@"
    assert line([0, 0], 0) == "  "


def simulate(tmp_path: Path, *lines: str) -> str:
    trace = tmp_path / "a.csv"
    trace.write_text("\n".join(("name,arrival,run_seconds,cpu,queue", *lines)))
    done = CliRunner().invoke(app, ["simulate", str(trace), "--output", str(tmp_path)])
    assert done.exit_code == 0
    return done.output


def test_pictures_show_use_and_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "WIDEST", 10)
    printed = simulate(tmp_path, "a,0,50,1,q", "b,50,50,1,q")
    rows = [re.split(" {2,}", row.rstrip()) for row in printed.splitlines()]
    assert ["default/cpu", "baseline", "▃▃▃▃▃▃▃▃▃▃", "up to 1 of 3"] in rows
    assert ["jobs that wait", "baseline", "up to 0"] in rows


def test_without_time_there_is_no_picture(tmp_path: Path) -> None:
    assert "Over time" not in simulate(tmp_path, "a,0,0,1,q")
