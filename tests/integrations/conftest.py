"""A cluster for tests of other people's packages, each of which has an environment of its own.

`nox -s integrations` makes these environments. Where a package is missing, its tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kueuelib
from kueuelib.testing.processes import READY_SECONDS, LocalCluster, Processes, stop_process

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parent))
from team import Team
from unprivileged import dropped, without_sandbox

FRAMEWORKS = ("batch/job", "pod")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A server with simulated nodes, and the manager; $KUBECONFIG names it meanwhile."""
    with Processes(tmp_path_factory.mktemp("cluster")) as processes:
        started = LocalCluster(processes, frameworks=FRAMEWORKS)
        started.start()
        before = os.environ.get("KUBECONFIG")
        os.environ["KUBECONFIG"] = str(started.kubeconfig)
        yield started
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before


@pytest.fixture
def team(cluster: LocalCluster) -> Team:
    """A namespace of one test."""
    return Team(cluster.kubeconfig)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pods of the node see where they mount the claim `shared`."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def node(
    cluster: LocalCluster, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """`kueuelib node`, whose image `local` is this environment and folder; the path of its log."""
    if problem := without_sandbox():
        pytest.skip(f"no node runs pods as processes here: {problem}")
    folder = tmp_path_factory.mktemp("node")
    image = f"local={sys.prefix}:{Path(kueuelib.__file__).parents[1]}:{Path(__file__).parent}"
    where = ("--kubeconfig", str(cluster.kubeconfig), "--folder", str(folder / "pods"))
    command = [*dropped(), sys.executable, "-m", "kueuelib", "node", *where, "--image", image]
    command += ["--claim", f"shared={shared}"]
    log = folder / "node.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while "is ready" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield log
    finally:
        stop_process(process)


@pytest.fixture
def real_team(cluster: LocalCluster, node: Path) -> Team:
    """A namespace of one test, whose pods are processes."""
    return Team(cluster.kubeconfig, flavor="processes")
