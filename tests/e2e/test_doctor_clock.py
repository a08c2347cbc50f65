"""`kueuelib doctor` about a leader whose clock is wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from rest import Rest
from test_doctor_alive import REAL, embedded_cluster
from ward import LEASES, doctor, lease

from kueuelib.api.meta import format_time


@pytest.mark.parametrize("made", [embedded_cluster, REAL])
def test_the_leases_clock_is_compared_with_that_of_the_server(made: Any, tmp_path: Path) -> None:
    with made(tmp_path) as cluster, Rest(cluster.kubeconfig) as rest:
        cluster.install()
        own = lease("kueue-system", "desk_1")
        own["spec"]["leaseDurationSeconds"] = 30
        path = f"{LEASES.format('kueue-system')}/{own['metadata']['name']}"
        rest.create(path.rpartition("/")[0], own)
        for skew, words in ((600, "ahead of"), (-600, "behind"), (0, "")):
            renewed = f"{format_time(time.time() + skew)[:-1]}.000000Z"
            rest.merge(path, {"spec": {"renewTime": renewed}})
            done = doctor(cluster.kubeconfig, "-o", "json")
            found = {one["check"]: one["problem"] for one in json.loads(done.stdout)["findings"]}
            assert "leader" not in found
            assert ("clock-skew" in found) is bool(words)
            assert words in found.get("clock-skew", "")
