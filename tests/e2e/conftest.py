"""Processes: `kueuelib apiserver`, `install` and `manager`, as `warm` starts them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rest import Rest
from warm import Processes

from kueuelib.testing import processes
from kueuelib.testing.processes import LocalCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """An API server with a simulated cluster and a manager, all up."""
    with Processes(tmp_path) as started:
        local_cluster = LocalCluster(started)
        local_cluster.start()
        yield local_cluster


@pytest.fixture(params=[True, False], ids=["elected", "alone"])
def elects(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether managers of `LocalCluster` elect a leader."""
    if request.param:
        election = 'leaderElect: true, retryPeriod: "1s"'
        config = processes.CONFIG.replace("leaderElect: false", election)
        monkeypatch.setattr(processes, "CONFIG", config)
    return bool(request.param)


@pytest.fixture
def rest(cluster: LocalCluster) -> Iterator[Rest]:
    """A plain client of the cluster."""
    with Rest(cluster.kubeconfig) as client:
        yield client
