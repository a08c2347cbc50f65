"""Processor time and memory of a process and its children, from `/proc`."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

_TICKS = os.sysconf("SC_CLK_TCK")


@attrs.define
class Usage:
    """Follows one process tree; `sample` it now and then, or short-lived children are missed.

    Args:
        pid: of the root.

    Attributes:
        cpu: seconds in user and kernel mode, since the root started.
        peak: megabytes (2**20) that were resident at most.
    """

    pid: int
    cpu: float = 0.0
    peak: float = 0.0
    _peaks: dict[int, float] = attrs.field(factory=dict)

    def sample(self) -> None:
        """Look at the tree; what has ended keeps its last figures."""
        tree = _tree(self.pid)
        spent = sum(_cpu(pid) for pid in tree)
        self.cpu = max(self.cpu, spent)
        for pid in tree:
            self._peaks[pid] = max(self._peaks.get(pid, 0.0), _peak(pid))
        self.peak = sum(self._peaks.values())


def _tree(root: int) -> list[int]:
    """The process and all below it."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    pids, todo = [], [root]
    while todo:
        pid = todo.pop()
        pids.append(pid)
        todo += below.get(pid, ())
    return pids


def _fields(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` behind the name; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu(pid: int) -> float:
    """Its own seconds and those of children that it has waited for."""
    return sum(map(int, _fields(pid)[11:15])) / _TICKS


def _peak(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)
