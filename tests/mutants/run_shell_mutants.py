"""Tries every mutant of `shell_mutants.yaml` in storms; each has to break a law.

    python tests/mutants/run_shell_mutants.py [--most NUMBER] [ID ...]
    python tests/mutants/run_shell_mutants.py [--most NUMBER] --drawn NUMBER [--seed SEED] [ID ...]

The second form tries faults that a seed draws from the code instead. Only storms that come to the
changed place are played; a place that none comes to is reported as such.

Only storms of the default test run count, and only such that break no law without the mutant.
Prints one line per mutant with the number of storms, their processor time, and the law that found
it; ends with exit code 1 when one survives, or has a place that no storm comes to.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from drawn import DrawnFault, drawn, equivalents, probed
from shell_mutants import SOURCES, ShellMutant, shell_mutants

HUNT = Path(__file__).with_name("hunt.py")
REACH = Path(__file__).with_name("reach.py")
ROUNDS = 4
"""How many times as many storms are asked whether they come to a place as are then played."""
SECONDS = 7200.0
"""After which a hunt counts as hung."""


def played(script: Path, package: Path, *args: str) -> dict[str, Any]:
    """What a script says after it has played storms with the package in a folder."""
    done = subprocess.run(
        [sys.executable, str(script), *args],
        env={
            **os.environ,
            "PYTHONPATH": str(package.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the storms could not be played: {done.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@functools.cache
def sound(run: str, seed: int) -> bool:
    """Whether a storm breaks no law without a mutant."""
    return "law" not in played(HUNT, SOURCES, f"{run}/{seed}")


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of the package, for changes."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "kueuelib"
        shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
        yield package


def reached(faults: list[DrawnFault], storms: int) -> dict[str, list[str]]:
    """The storms that come to the place of each fault, by its name.

    Args:
        faults: such as were drawn.
        storms: how many are asked.
    """
    with copied() as package:
        for path in {fault.edits[0].file for fault in faults}:
            (package / path).write_text(probed(path, faults))
        known = played(REACH, package, str(storms))
    return {fault.id: known.get(str(number), []) for number, fault in enumerate(faults)}


def tried(mutant: ShellMutant, most: int, storms: list[str] | None = None) -> dict[str, Any]:
    """What breaks a law only with the mutant; only how many storms were played when none does.

    Args:
        mutant: the fault.
        most: how many storms are played at most.
        storms: only these; None for those that the fault suggests.
    """
    with copied() as package:
        mutant.plant(package)
        count, cpu = 0, 0.0
        skipped: list[str] = []
        while True:
            if storms is None:
                args = [*mutant.first, str(most - count), *skipped]
            else:
                args = storms[count:most] or ["any", "any", "0"]
            report = played(HUNT, package, *args)
            count += report["played"]
            cpu += report["cpu"]
            if "law" not in report or not report["seed"] or sound(report["run"], report["seed"]):
                return {**report, "played": count, "cpu": cpu}
            skipped.append(f"{report['run']}/{report['seed']}")
            sys.stdout.write(f"          {skipped[-1]} breaks a law without a mutant\n")


def outcome(mutant: ShellMutant, most: int, storms: list[str] | None = None) -> str:
    """How the hunt for a mutant ends: `found`, `SURVIVES`, or why none is needed."""
    shown = mutant.id if storms is None else f"{mutant.id} ({mutant.why})"
    if mutant.id in equivalents():
        return f"equal     {shown}: {equivalents()[mutant.id]}"
    if storms == []:
        return f"UNREACHED {shown}"
    report = tried(mutant, most, None if storms is None else [s for s in storms if s != "boot"])
    spent = f"storm {report['played']:>3}, {report['cpu']:>5.0f} s"
    if "law" not in report and storms == ["boot"]:
        return f"UNREACHED {shown} after the start"
    if "law" not in report:
        return f"SURVIVES  {shown}: {spent}"
    where = f"seed {report['seed']} ({report['profile']})"
    return f"found     {shown}: {spent}, {where}, {report['law']}: {report['text']}"


def main(args: list[str]) -> int:
    """Tries the named mutants, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--drawn", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args(args)
    reach: dict[str, list[str]] = {}
    mutants: Sequence[ShellMutant]
    if asked.drawn is None:
        mutants = shell_mutants()
    else:
        mutants = faults = drawn(asked.drawn, asked.seed)
        reach = reached(faults, ROUNDS * asked.most)
    known = {one.id: one for one in mutants}
    chosen = [known[name] for name in asked.names or known]
    endings: Counter[str] = Counter()
    for mutant in chosen:
        told = outcome(mutant, asked.most, reach.get(mutant.id))
        endings[told.split()[0]] += 1
        sys.stdout.write(told + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{endings['found']} of {len(chosen)} found")
    sys.stdout.write(
        "".join(f", {count} {word}" for word, count in endings.items() if word != "found")
    )
    sys.stdout.write("\n")
    return 1 if endings["SURVIVES"] or endings["UNREACHED"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
