"""A port that one test was given is not given to another before its server has bound it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kueuelib.testing import processes


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    port = processes.free_port()
    monkeypatch.setattr(processes, "PORTS", range(port, port + 1))
    monkeypatch.setattr(processes.random.SystemRandom, "sample", lambda _self, ports, _k: ports)
    with pytest.raises(OSError, match=f"no free port found from {port} to {port}"):
        processes.free_port()


def test_a_port_is_not_given_to_another_process() -> None:
    port = processes.free_port()
    program = f"""
from kueuelib.testing import processes
processes.PORTS = range({port}, {port} + 1)
processes.random.SystemRandom.sample = lambda self, ports, k: ports
processes.free_port()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert f"no free port found from {port} to {port}" in done.stderr


def test_a_mark_goes_after_many_more(monkeypatch: pytest.MonkeyPatch) -> None:
    port = processes.free_port()
    for _ in range(processes.KEPT_PORTS):
        processes.free_port()
    monkeypatch.setattr(processes, "PORTS", range(port, port + 1))
    monkeypatch.setattr(processes.random.SystemRandom, "sample", lambda _self, ports, _k: ports)
    assert processes.free_port() == port
