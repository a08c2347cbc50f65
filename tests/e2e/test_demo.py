"""`kueuelib demo` as a newcomer types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

DEMO = [sys.executable, "-m", "kueuelib", "demo", "--plain"]


def test_the_demo_ends_by_itself_with_a_summary(tmp_path: Path) -> None:
    demo = [*DEMO, "--picture", str(tmp_path / "demo.svg")]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 Jobs finished" in done.stdout
    assert "all as expected" in done.stdout
    assert "job-01 running" in done.stdout
    assert "rack rack-1 has room for 3 of 4 pods" in done.stdout
    assert "train runs in rack-" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "more needed" in (tmp_path / "demo.svg").read_text().replace("&#160;", " ")


def test_the_demo_fails_when_the_manager_dies() -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "job-01 running" in line:
                os.kill(child(process.pid, "manager"), signal.SIGKILL)
        code = process.wait(60)
    assert code == 1, "".join(seen)
    assert "manager" in "".join(seen)


def child(parent: int, command: str) -> int:
    """The process id of the parent's child that runs `kueuelib COMMAND`."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            words = path.with_name("cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(fields[1]) == parent and command.encode() in words:
            return int(path.parent.name)
    raise AssertionError(f"no {command} below {parent}")
