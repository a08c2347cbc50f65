"""What `kueuelib simulate` costs: processor time and memory, for more and more days of one load.

The queues are those of upstream's benchmark, 30 in 5 cohorts, with its three shapes of jobs. The
rate of arrivals is always the same, so that more jobs mean more days. `SIMULATE_JOBS=50000` plays a
week.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import yaml
from baseline.shape import BASELINE
from figures import show

COUNT = int(os.environ.get("SIMULATE_JOBS", "5000"))
"""Jobs, about."""
DAYS = COUNT * 7 / 50_000
MEDIAN, SIGMA = 700.0, 1.0
"""Of the run times, in seconds: 60 % of the quota, more than all of it at times."""
WEIGHTS = {"small": 7, "medium": 2, "large": 1}
SPENT = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""
"""Runs a command, and tells its seconds and kilobytes.

A process of its own: Linux counts what the parent held when it started a program as its peak.
"""


def cluster() -> str:
    """The queues; each LocalQueue is in a namespace that all share."""
    objects = []
    for _, obj in BASELINE.queue_objects():
        if obj["kind"] != "Namespace":
            meta = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
            objects.append({**obj, "metadata": meta})
    return yaml.safe_dump_all(objects)


def load() -> str:
    """The description of the work."""
    shapes = [
        {
            "weight": WEIGHTS[each.name],
            "cpu": each.cpu,
            "priority": each.priority,
            "runSeconds": {"median": MEDIAN, "sigma": SIGMA},
        }
        for each in BASELINE.classes
    ]
    queues = {place.name: 1 for place in BASELINE.places()}
    description = {"seed": 7, "jobs": COUNT, "days": DAYS, "queues": queues, "shapes": shapes}
    return yaml.safe_dump(description)


@pytest.mark.timeout(7200)
def test_the_cost_of_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(cluster())
    (tmp_path / "synthetic.yaml").write_text(load())
    command = [sys.executable, "-m", "kueuelib", "simulate", "synthetic.yaml"]
    told = subprocess.run(
        [sys.executable, "-c", SPENT, *command, "--cluster", "cluster.yaml", "--output", "results"],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.PIPE,
    )
    cpu, peak = map(float, told.stdout.split())
    result = orjson.loads((tmp_path / "results/result.json").read_bytes())
    run = result["runs"]["baseline"]
    simulation, total, count = run["simulation"], run["total"], result["trace"]["jobs"]
    show(
        f"simulate: {count:,} jobs in {DAYS:g} days, 30 ClusterQueues",
        [
            ("processor time", f"{cpu:.1f} s, {cpu / count * 1000:.2f} ms per job"),
            ("most memory", f"{peak / 1024:.0f} MiB"),
            ("events per second of it", f"{simulation['events'] / cpu:,.0f}"),
            ("events and cycles", f"{simulation['events']:,} and {simulation['cycles']:,}"),
            ("preemptions", f"{total['preemptions']:,}"),
            ("p90 of the waits", f"{total['wait_seconds']['p90']:,.0f} s"),
        ],
    )
    assert simulation["unfinished"] == 0
