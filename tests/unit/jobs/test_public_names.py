"""What programs import from `kueuelib.jobs` is there, under this path and the older ones."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import kueuelib.jobs

OLDER = {
    "capabilities": ("ComposableJob", "JobWithCustomStop", "Stop", "StopReason"),
    "declarative": ("AtMost", "Condition", "Done", "Pods", "declare", "enough", "never"),
    "generic_job": ("GenericJob", "JobEnd", "PodSet"),
    "podset_info": ("PodSetInfo", "check_count", "merge", "restore"),
}


@pytest.mark.parametrize("name", kueuelib.jobs.__all__)
def test_every_public_name_leads_to_something_with_a_docstring(name: str) -> None:
    assert getattr(kueuelib.jobs, name).__doc__
    assert name in dir(kueuelib.jobs)


@pytest.mark.parametrize("module", OLDER)
def test_older_paths_lead_to_the_same(module: str) -> None:
    older = importlib.import_module(f"kueuelib.jobs.{module}")
    for name in OLDER[module]:
        assert getattr(older, name) is getattr(kueuelib.jobs, name)


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'kueuelib.jobs' has no attribute 'Cronjob'"):
        _ = kueuelib.jobs.Cronjob


def test_the_package_alone_imports_no_room() -> None:
    seen = "import sys, kueuelib.jobs; print([m for m in sys.modules if 'kueuelib.jobs.' in m])"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
