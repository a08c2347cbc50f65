"""Each command with an interpreter of its own, as a user starts it; other tests start copies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rest import JOBS, WORKLOADS, Rest, eventually, is_true, job, queues

from kueuelib.testing.processes import LocalCluster, Processes


def run(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kueuelib", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_commands_do_their_work_and_end_well(tmp_path: Path) -> None:
    """SIGTERM ends the manager and the API server with exit code 0: no second one is needed."""
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes)
        cluster.start()
        with Rest(cluster.kubeconfig) as rest:
            queues(rest, cpu=1)
            rest.create(JOBS, job("first", seconds=6000))
            eventually(lambda: not rest.get(f"{JOBS}/first")["spec"]["suspend"])
            rest.create(JOBS, job("second", seconds=6000))
            eventually(lambda: len(rest.items(WORKLOADS)) == 2)
            eventually(lambda: any(is_true(wl, "Admitted") for wl in rest.items(WORKLOADS)))
        config = str(tmp_path / "config.yaml")
        for command, told in (
            (("explain", "job/second"), "raise nominalQuota"),
            (("pending",), "second"),
            (("doctor", "--config", config), ""),
            (("apiserver", "dump"), "kind: Workload"),
        ):
            done = run(*command, "--kubeconfig", cluster.kubeconfig)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert told in done.stdout, command
        assert processes.stop("manager") == 0
        assert run("uninstall", "--force", "--kubeconfig", cluster.kubeconfig).returncode == 0
        assert processes.stop("apiserver") == 0
