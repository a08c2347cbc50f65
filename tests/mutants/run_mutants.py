"""Tries every mutant of the five lists on a copy of the sources; each has to make a test fail.

    python tests/mutants/run_mutants.py [ID ...]

Prints one line per mutant, and ends with exit code 1 when one survives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import attrs
import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "kueuelib"
TESTS = (
    "tests/scenarios",
    "tests/unit/scheduler",
    "tests/unit/workload/test_checks.py",
    "tests/properties/test_scheduler_preemption.py",
    "tests/properties/test_scheduler_parallel.py",
    "tests/properties/test_scheduler_refusals.py",
    "tests/properties/test_scheduler_owners.py",
    "tests/properties/test_scheduler_preemptors.py",
    "tests/properties/test_scheduler_rest.py",
    "tests/properties/test_scheduler_waking.py",
    "tests/properties/test_scheduler_histories.py",
    "tests/properties/test_scheduler_plans.py",
    "tests/properties/test_quota_trees.py",
    "tests/properties/test_fair_sharing.py",
    "tests/properties/test_topology.py",
)
FIRST = (
    "tests/unit/scheduler/test_quota_share.py",
    "tests/unit/scheduler/test_quota_bracket.py",
    "tests/properties/test_quota_trees.py",
    "tests/properties/test_fair_sharing.py",
    "tests/scenarios",
    "tests/unit/scheduler/test_preemption.py",
    "tests/unit/scheduler/test_parallel_preemptors.py",
    "tests/unit/scheduler/test_refused_evictions.py",
    "tests/unit/scheduler/test_late_preemption.py",
    "tests/unit/scheduler/engine",
)
"""What kills most of them within seconds; all the tests are run only where these do not."""
JOB_TESTS = (
    "tests/unit/jobs/reconcile/test_edits.py",
    "tests/unit/jobs/reconcile/test_ends_of_stops.py",
    "tests/unit/jobs/reconcile/test_equivalence.py",
    "tests/unit/jobs/reconcile/test_children.py",
    "tests/unit/jobs/reconcile/test_leaving.py",
    "tests/unit/jobs/reconcile/test_plan.py",
    "tests/unit/jobs/reconcile/test_executor.py",
    "tests/unit/jobs/contract/test_capabilities.py",
    "tests/unit/jobs/reconcile/test_settled.py",
    "tests/unit/jobs/test_job_mistakes.py",
    "tests/unit/jobs/kinds/test_kind_follower.py",
    "tests/unit/jobs/pods/test_edits.py",
    "tests/unit/jobs/pods/test_group.py",
    "tests/unit/jobs/pods/test_later_groups.py",
    "tests/unit/jobs/pods/test_looks.py",
    "tests/unit/jobs/pods/test_shapes.py",
    "tests/unit/jobs/pods/test_roster.py",
    "tests/unit/jobs/pods/test_single.py",
    "tests/unit/jobs/pods/test_webhook.py",
    "tests/unit/jobs/declared/test_declarative.py",
    "tests/unit/jobs/declared/test_declared_kinds.py",
    "tests/unit/jobs/test_job_conformance.py",
    "tests/properties/test_job_edits.py",
)
OF_PACKAGES = {
    "jobs": JOB_TESTS,
    "checks": ("tests/unit/checks",),
    "workload": ("tests/unit/workload", "tests/unit/jobs/pods/test_single.py"),
}
LISTS = (
    ("mutants.yaml", "scheduler"),
    ("job_mutants.yaml", "jobs"),
    ("check_mutants.yaml", "checks"),
    ("workload_mutants.yaml", "workload"),
    ("topology_mutants.yaml", ""),
)
"""The lists, and the packages that they are about; empty for any, and each mutant names a test."""
SECONDS = 3600
"""After which tests count as hung."""


@attrs.frozen
class Mutant:
    """One fault.

    Attributes:
        id: its name.
        file: where it is, below its package.
        old: what the file says.
        new: what it says with the fault.
        package: `scheduler`, `jobs`, `checks` or `workload`; empty for any.
        test: what finds it, below `tests`; empty if that is not known.
    """

    id: str
    file: str
    old: str
    new: str
    package: str
    test: str = ""

    @property
    def path(self) -> Path:
        """The file, below `kueuelib`."""
        return Path(self.package) / self.file

    @property
    def tests(self) -> tuple[tuple[str, ...], ...]:
        """What may find it, in this order."""
        named = ((f"tests/{self.test}",),) if self.test else ()
        if self.package == "scheduler":
            return (*named, FIRST, TESTS)
        if not self.package:
            return named
        return (*named, OF_PACKAGES[self.package])


def mutants() -> list[Mutant]:
    """All of the lists."""
    return [
        Mutant(**one, package=package)
        for name, package in LISTS
        for one in yaml.load((Path(__file__).parent / name).read_text(), yaml.CSafeLoader)
    ]


class Tests:
    """Runs tests on a copy of the sources.

    Args:
        copy: the folder of the copy.
    """

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._passed: set[str] = set()

    def require(self, tests: Iterable[str]) -> None:
        """Runs tests without a mutant, all at once; they have to pass."""
        together = tuple(sorted({*tests} - self._passed))
        if together:
            if failed := self._run(together):
                raise SystemExit(f"{failed} fails without any mutant")
            self._passed |= {*together}

    def finds(self, mutant: Mutant) -> str:
        """The test that fails with the fault in place; empty if none does."""
        for tests in mutant.tests:
            self.require(tests)
            file = self._copy / "kueuelib" / mutant.path
            sound = file.read_text()
            file.write_text(sound.replace(mutant.old, mutant.new))
            try:
                failed = self._run(tests)
            finally:
                file.write_text(sound)
            if failed:
                return failed
        return ""

    def _run(self, tests: tuple[str, ...]) -> str:
        """The first test that fails, or what hangs; empty if all pass."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._copy),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._copy / "examples"),
            "LAW_EXAMPLES": "300",
        }
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"the tests could not run: {done.stdout[-2000:]}")
        if not done.returncode:
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        return failed[1] if failed else " ".join(tests)


def main(names: list[str]) -> int:
    """Tries the named mutants, or all."""
    chosen = [one for one in mutants() if not names or one.id in names]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(SOURCES, copy / "kueuelib", ignore=shutil.ignore_patterns("__pycache__"))
        tests = Tests(copy)
        tests.require(f"tests/{one.test}" for one in chosen if one.test)
        for mutant in chosen:
            test = tests.finds(mutant)
            survivors += not test
            sys.stdout.write(f"{'killed  ' if test else 'SURVIVES'}  {mutant.id}  {test}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} killed\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
