"""`kueuelib doctor` about pods of groups whose finalizer a manager keeps on purpose."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from place import Place, phase
from real_plane import lacking, real_cluster
from rest import Rest
from test_doctor_alive import embedded_cluster

from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.doctor.examining import examine
from kueuelib.app.doctor.finding import Finding, Severity
from kueuelib.app.doctor.reading import read
from kueuelib.runtime.connection import connect
from kueuelib.testing.processes import LocalCluster

LATER = 600.0
REAL = pytest.param(
    real_cluster,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
)


def stuck(cluster: LocalCluster) -> list[Finding]:
    """What would be found ten minutes later about finalizers of pods."""

    async def examined() -> list[Finding]:
        configuration = load_configuration(cluster.processes.folder / "config.yaml")
        async with await connect(cluster.kubeconfig) as client:
            report = examine(await read(client, configuration, now=time.time() + LATER))
        return [one for name, one in report.findings if name == "pod-finalizer-stuck"]

    return asyncio.run(examined())


@pytest.mark.parametrize("made", [embedded_cluster, REAL])
def test_groups_that_wait_or_still_run_are_no_errors(made: Any, tmp_path: Path) -> None:
    """Of one group a pod has succeeded and is deleted, of the other one a pod has failed."""
    with made(tmp_path) as cluster, Rest(cluster.kubeconfig) as rest:
        cluster.frameworks = ("batch/job", "pod")
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        place = Place(rest)
        place.queue(8)
        for name, exit_code, end in (("done", 0, "Succeeded"), ("lost", 1, "Failed")):
            first, other = place.group(name, 2)
            place.eventually(lambda one=first: phase(place.get(one)) == "Running")
            place.finish(first, exit_code=exit_code)
            place.eventually(lambda one=first, end=end: phase(place.get(one)) == end)
            place.delete(first)
            place.eventually(lambda one=first: "deletionTimestamp" in place.get(one)["metadata"])
            assert phase(place.get(other)) == "Running"
        (hint,) = stuck(cluster)
        assert hint.severity is Severity.HINT
        assert str(hint.subject).endswith("lost")
        assert hint.fix.startswith("create a pod in its place; or, to end the group and its other")
