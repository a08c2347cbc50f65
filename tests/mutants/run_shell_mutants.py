"""Tries every mutant of `shell_mutants.yaml` in storms; each has to break a law.

    python tests/mutants/run_shell_mutants.py [--seeds FIRST:LAST] [--most NUMBER] [ID ...]

Only seeds of the default test run count, and only such that break no law without the mutant. Prints
one line per mutant with the seed and the law that found it, and ends with exit code 1 when one
survives.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shell_mutants import SOURCES, ShellMutant, shell_mutants

HUNT = Path(__file__).with_name("hunt.py")
SECONDS = 7200.0
"""After which a hunt counts as hung."""


def hunted(package: Path, *args: str) -> dict[str, Any]:
    """What `hunt.py` finds with the package in a folder."""
    done = subprocess.run(
        [sys.executable, str(HUNT), *args],
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
def sound(seed: int, profile: str) -> bool:
    """Whether a seed breaks no law without a mutant."""
    return "law" not in hunted(SOURCES, f"{seed}:{seed}", profile, "any", "1")


def tried(mutant: ShellMutant, seeds: str, most: int) -> dict[str, Any]:
    """What breaks a law only with the mutant; only how many storms were played when none does."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "kueuelib"
        shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.plant(package)
        played, skipped = 0, []
        while True:
            report = hunted(package, seeds, *mutant.first, str(most - played), *skipped)
            played += report["played"]
            if "law" not in report or not report["seed"] or sound(report["seed"], mutant.first[0]):
                return {**report, "played": played}
            sys.stdout.write(f"          seed {report['seed']} breaks a law without a mutant\n")
            skipped.append(str(report["seed"]))


def main(args: list[str]) -> int:
    """Tries the named mutants, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds")
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args(args)
    known = {one.id: one for one in shell_mutants()}
    chosen = [known[name] for name in asked.names or known]
    survivors = 0
    for mutant in chosen:
        report = tried(mutant, asked.seeds or mutant.seeds, asked.most)
        storms = f"storm {report['played']:>3}"
        if "law" in report:
            told = f"found     {mutant.id}: {storms}, seed {report['seed']} ({report['profile']})"
            told += f", {report['law']}: {report['text']}"
        else:
            survivors += 1
            told = f"SURVIVES  {mutant.id}: {storms}"
        sys.stdout.write(told + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} found\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
