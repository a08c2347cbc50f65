"""Commands without `--config` decide as the manager that runs, on a real control plane as well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from place import Place
from real_plane import lacking, real_cluster
from rest import Rest
from test_doctor_alive import embedded_cluster
from warm import kueuelib

from kueuelib.testing.processes import LocalCluster

DONGLE = "example.com/dongle"
RULES = f"resources: {{excludeResourcePrefixes: [{DONGLE}]}}"
FOUND = "decided by the manager's configuration, from Lease kueue-system/c1f6bfd2.kueue.x-k8s.io"
DEFAULT = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
REAL = pytest.param(
    real_cluster,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
    id="real",
)


@pytest.fixture(params=[pytest.param(embedded_cluster, id="embedded"), REAL])
def cluster(request: pytest.FixtureRequest, elects: bool, tmp_path: Path) -> Iterator[LocalCluster]:
    """A manager that does not count a resource, and writes so on its Lease."""
    with request.param(tmp_path) as found:
        found.settings = RULES
        found.install()
        found.start_manager()
        found.wait_for_manager()
        yield found


def test_they_read_what_the_manager_says(cluster: LocalCluster, rest: Rest) -> None:
    place = Place(rest)
    place.queue(1)
    first = place.job("first")
    place.runs(first)
    asking = {"requests": {"cpu": "1", DONGLE: "1"}, "limits": {DONGLE: "1"}}
    container = {"name": "c", "image": "i", "resources": asking}
    second = place.job("second", pod={"containers": [container]})
    place.waits(second)
    default = cluster.processes.folder / "default.yaml"
    default.write_text(DEFAULT)

    def said(*args: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a command says without a file, and with that of a manager with the defaults."""
        options = ("--kubeconfig", str(cluster.kubeconfig), "-o", "json")
        one, other = (
            json.loads(kueuelib(*args, *options, *more).stdout)
            for more in ((), ("--config", str(default)))
        )
        return one, other

    known, assumed = said("explain", "job/second", "-n", place.ns)
    assert FOUND in str(known["notes"])
    assert FOUND not in str(assumed)
    assert DONGLE not in str(known["problems"])
    assert DONGLE in str(assumed["problems"])

    known, assumed = said("pending", "-n", place.ns)
    assert FOUND in str(known["notes"])
    assert FOUND not in str(assumed)

    known, assumed = said("doctor")
    assert FOUND in str(known["notes"])
    checks = [
        {one["check"] for one in each["findings"] if one["object"]["namespace"] == place.ns}
        for each in (known, assumed)
    ]
    assert checks == [set(), {"never-fits"}]
