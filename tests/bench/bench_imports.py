"""How long public modules take to import, and the command line to answer `--help`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from figures import show

STABILITY = Path(__file__).parents[2] / "docs/stability.md"
ROUNDS = 7


def best(code: str) -> float:
    """Milliseconds from the start of an interpreter to the end of its code, best of `ROUNDS`."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def test_imports() -> None:
    names = re.findall(r"^\| `(kueuelib[.\w]*)`", STABILITY.read_text(), re.MULTILINE)
    nothing = best("pass")
    rows = [("an interpreter that does nothing", f"{nothing:.0f} ms")]
    for name in names:
        own = best(f"import {name}") - nothing
        every = best(f"import {name} as m; [getattr(m, each) for each in m.__all__]") - nothing
        rows.append((name, f"import {own:>4.0f} ms, with all of its names {every:>4.0f} ms"))
    called = best("import sys; sys.argv[1:] = ['--help']; from kueuelib.cli import main; main()")
    show(
        f"imports, best of {ROUNDS}",
        [*rows, ("kueuelib --help, with its interpreter", f"{called:.0f} ms")],
    )
