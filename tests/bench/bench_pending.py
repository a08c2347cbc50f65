"""`kueuelib pending` and `kueuelib report` about queues in cohorts: how long until each answer.

The processor time is that of the command, with its interpreter and its imports. All modules are
compiled before, as pip compiles what it installs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from figures import show
from full_cluster import embedded
from samples import workload

Obj = dict[str, Any]
API = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
FLAVORS = ("on-demand", "spot")
QUEUES = 10
"""Nine ClusterQueues in three cohorts, and one without."""
RUNNING = 40
ROUNDS = 7


def queues() -> Iterator[Obj]:
    """Full ClusterQueues of two flavors, each with a LocalQueue in `default`."""
    for name in FLAVORS:
        yield {**API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}}
    rows = [{"name": "cpu", "nominalQuota": "8"}, {"name": "memory", "nominalQuota": "64Gi"}]
    flavors = [{"name": name, "resources": rows} for name in FLAVORS]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    for number in range(QUEUES):
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
        if number < QUEUES - 1:
            spec["cohortName"] = f"cohort-{number // 3}"
        name = f"q{number}"
        yield {**API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
        meta = {"name": name, "namespace": "default"}
        yield {**API, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": name}}


def workloads(waiting: int) -> Iterator[Obj]:
    """Those that hold the quota, and those that wait, of 1 to 20 CPUs and four priorities."""
    for number in range(RUNNING + waiting):
        obj, queue = workload(number), f"q{number % QUEUES}"
        cpu = 4 if number < RUNNING else 1 + number % 20
        obj["metadata"]["namespace"] = "default"
        obj["spec"] |= {"queueName": queue, "priority": number % 4}
        (pods,) = obj["spec"]["podSets"]
        requests = {"cpu": f"{250 * cpu}m", "memory": "1Gi"}
        pods["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
        if number < RUNNING:
            obj["status"]["admission"]["clusterQueue"] = queue
            flavor = FLAVORS[number // QUEUES % 2]
            (assignment,) = obj["status"]["admission"]["podSetAssignments"]
            assignment["flavors"] = {"cpu": flavor, "memory": flavor}
            assignment["resourceUsage"] = {"cpu": str(cpu), "memory": "4Gi"}
        else:
            obj["status"] = {}
        yield obj


class Run:
    """One run of a command, to its end.

    Attributes:
        first: seconds until the first row, or the end of the first line.
        ended: seconds until the end.
        cpu: seconds of processor time.
        rows: lines of output.
    """

    def __init__(self, kubeconfig: Path, *args: str) -> None:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(kubeconfig.with_name("compiled"))}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "kueuelib", *args, "--kubeconfig", str(kubeconfig)]
        began, before = time.perf_counter(), os.times()
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            second = process.stdout.readline()
            self.first = time.perf_counter() - began
            self.rows = 1 + bool(second) + sum(1 for _ in process.stdout)
        self.ended = time.perf_counter() - began
        after = os.times()
        self.cpu = sum(after[2:4]) - sum(before[2:4])
        assert process.returncode == 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("waiting", [19, 100])
def test_the_first_answer(waiting: int, tmp_path: Path) -> None:
    with embedded(tmp_path, [*queues(), *workloads(waiting)]) as server:
        pending, report = ("pending", "-A"), ("report",)
        _, *listed = [Run(server.kubeconfig, *pending) for _ in range(1 + ROUNDS)]
        _, *drawn = [Run(server.kubeconfig, *report) for _ in range(1 + ROUNDS)]
        searched = Run(server.kubeconfig, *pending, "--changes")
        page = Run(server.kubeconfig, *report, "--changes", "10")
    assert {one.rows for one in (*listed, searched)} == {waiting + 1}

    def said(runs: list[Run]) -> str:
        ended, cpu = median(one.ended for one in runs), [one.cpu for one in runs]
        return f"{ended:.2f} s, processor {median(cpu):.2f} s, at best {min(cpu):.2f} s"

    show(
        f"{waiting} Workloads wait in {QUEUES} ClusterQueues",
        [
            ("pending", said(listed)),
            ("report", said(drawn)),
            ("pending --changes", said([searched])),
            ("  until the first row", f"{searched.first:.2f} s"),
            ("  for each row", f"{searched.cpu / waiting:.2f} s of processor time"),
            ("report --changes 10", said([page])),
        ],
    )
