"""The budget example, as its README says: a check in its own process, and an HTTP query."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rest import JOBS, KUEUE, WORKLOADS, Rest, condition, eventually, is_true

from kueuelib.testing.processes import LocalCluster, free_port

EXAMPLE = Path(__file__).parents[2] / "examples/budget_check"
BUDGETS = "/apis/finance.example.com/v1/namespaces/default/budgets"
PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "AdmissionCheck": f"{KUEUE}/admissionchecks",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/default/localqueues",
}


def start(cluster: LocalCluster) -> str:
    """Starts the stand-in for Prometheus, which reads the file `spent`, and the check; the port."""
    folder, port = cluster.processes.folder, str(free_port())
    (folder / "spent").write_text("20")
    program = str(EXAMPLE / "prometheus.py")
    cluster.processes.start_program("prometheus", program, str(folder / "spent"), port)
    kubeconfig = str(cluster.kubeconfig)
    cluster.processes.start("check", "run", str(EXAMPLE / "budget.py"), "--kubeconfig", kubeconfig)
    return port


class Budgeted:
    """A cluster in which Jobs cost something."""

    def __init__(self, cluster: LocalCluster, rest: Rest) -> None:
        self.rest = rest
        self.file = cluster.processes.folder / "spent"
        port = start(cluster)
        for file in ("crd.yaml", "queues.yaml"):
            for obj in yaml.safe_load_all((EXAMPLE / file).read_text()):
                rest.create(PATHS[obj["kind"]], obj)
        budget = yaml.safe_load((EXAMPLE / "budget.yaml").read_text())
        budget["spec"]["prometheus"] = f"http://127.0.0.1:{port}"
        eventually(lambda: rest.items(BUDGETS) == [])
        rest.create(BUDGETS, budget)

    def spent(self, amount: float) -> None:
        self.file.write_text(str(amount))

    def job(self, name: str, cpu: int = 5) -> None:
        obj = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
        obj["metadata"] = {"name": name, "labels": obj["metadata"]["labels"]}
        container = obj["spec"]["template"]["spec"]["containers"][0]
        container["resources"]["requests"]["cpu"] = str(cpu)
        self.rest.create(JOBS, obj)

    def workload(self, job: str) -> Any:
        def found() -> Any:
            for wl in self.rest.items(WORKLOADS):
                if wl["metadata"]["ownerReferences"][0]["name"] == job:
                    return wl
            raise AssertionError(f"{job} has no workload")

        return eventually(found)

    def says(self, job: str, state: str) -> str:
        """Waits for a verdict and returns its message."""

        def reached() -> Any:
            (entry,) = self.workload(job)["status"]["admissionChecks"]
            assert entry["state"] == state, entry
            return entry

        return str(eventually(reached)["message"])

    def runs(self, job: str) -> bool:
        return not self.rest.get(f"{JOBS}/{job}")["spec"]["suspend"]


@pytest.fixture
def budgeted(cluster: LocalCluster, rest: Rest) -> Budgeted:
    return Budgeted(cluster, rest)


def test_jobs_run_while_the_budget_of_the_week_lasts(budgeted: Budgeted) -> None:
    budgeted.job("first")
    eventually(lambda: budgeted.runs("first"))
    assert budgeted.says("first", "Ready") == "costs 50, 30 left this week"

    budgeted.job("second")
    assert budgeted.says("second", "Retry") == "20 of 100 spent, 50 under way, 50 needed"
    eventually(lambda: not is_true(budgeted.workload("second"), "QuotaReserved"))
    assert not budgeted.runs("second")

    budgeted.job("huge", cpu=50)
    eventually(lambda: budgeted.workload("huge")["spec"]["active"] is False)

    def told() -> bool:
        events = budgeted.rest.items("/api/v1/namespaces/default/events")
        found = [event for event in events if event["involvedObject"]["kind"] == "Job"]
        rejected = [event for event in found if event["reason"] == "AdmissionCheckRejected"]
        return "costs 500, more than a week's budget of 100" in json.dumps(rejected)

    eventually(told)

    budgeted.spent(120)
    eventually(lambda: not budgeted.runs("first"))
    evicted = condition(budgeted.workload("first"), "Evicted")
    assert evicted["reason"] == "AdmissionCheck"
    assert "120 of 100 spent" in evicted["message"]


def test_a_number_that_is_none_lets_nobody_in_and_leaves_alone_what_runs(
    budgeted: Budgeted,
) -> None:
    budgeted.job("first")
    eventually(lambda: budgeted.runs("first"))
    budgeted.file.write_text("NaN")
    budgeted.job("second")

    def failed(job: str) -> bool:
        name = budgeted.workload(job)["metadata"]["name"]
        events = budgeted.rest.items("/api/v1/namespaces/default/events")
        found = [event for event in events if event["involvedObject"]["name"] == name]
        return any("nan was spent" in event["message"] for event in found)

    eventually(lambda: failed("first"))
    eventually(lambda: failed("second"))
    assert budgeted.runs("first")
    assert not budgeted.runs("second")


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
def test_the_commands_of_the_readme_do_what_it_says(cluster: LocalCluster, rest: Rest) -> None:
    """Its last block, line by line, in a copy of the folder; the servers are those of the test."""
    folder, port = cluster.processes.folder, start(cluster)
    for file in EXAMPLE.glob("*.yaml"):
        text = file.read_text().replace("127.0.0.1:9090", f"127.0.0.1:{port}")
        (folder / file.name).write_text(text)
    block = (EXAMPLE / "README.md").read_text().split("```")[3]
    commands = [line for line in block.splitlines() if line.strip()]
    watch = commands.pop()
    assert watch == "kubectl get jobs -w"  # it does not end by itself
    suspends = commands.pop()

    def shell(command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", f"export KUBECONFIG=kubeconfig\n{command}"],
            cwd=folder,
            env={**os.environ, "HOME": str(folder), "KUBECACHEDIR": str(folder / "cache")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def runs() -> int:
        return len([job for job in rest.items(JOBS) if not job["spec"]["suspend"]])

    def said() -> list[tuple[str, str]]:
        entries = [wl["status"]["admissionChecks"][0] for wl in rest.items(WORKLOADS)]
        return sorted((entry["state"], entry["message"]) for entry in entries)

    for number, command in enumerate(commands):
        shell(command)
        if number == commands.index("kubectl apply -f queues.yaml -f budget.yaml") + 1:
            eventually(lambda: runs() == 1)
            eventually(lambda: said() == [("Ready", "costs 50, 30 left this week")])
    told = ("Retry", "20 of 100 spent, 50 under way, 50 needed")
    eventually(lambda: said() == [("Ready", "costs 50, 30 left this week"), told])
    assert "Admission Checks" in shell(commands[-1])
    shell(suspends)
    eventually(lambda: runs() == 0)


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "budget.py").read_text().splitlines()) <= 40


def test_a_module_without_anything_to_run_is_refused(tmp_path: Path) -> None:
    module = tmp_path / "empty.py"
    module.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "kueuelib", "run", str(module)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert "holds nothing to run" in done.stderr
