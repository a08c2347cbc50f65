"""A real run is recorded, also across a crash, and another process decides the same again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from place import Place
from rest import JOBS, Rest, condition, eventually, is_true, job
from test_topology import RACK, admitted, asking, queues, topology, workload_of
from warm import Processes

from kueuelib.testing.processes import LocalCluster
from kueuelib.testing.scenarios import run as run_scenario

COUNT = 24


def kueuelib(*args: str, seed: str = "1") -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, under another hash seed than the manager's."""
    env = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(
        [sys.executable, "-m", "kueuelib", *args],
        capture_output=True,
        text=True,
        env=env,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Jobs of two teams that share a cohort, of two priorities; the manager dies on the way."""
    folder = tmp_path_factory.mktemp("recorded")
    file, beside = folder / "night.gz", folder / "beside.gz"
    found = {"folder": folder, "file": file, "beside": beside}
    with Processes(folder) as processes:
        cluster = LocalCluster(processes, options=("--record", str(file)))
        cluster.start()
        kubeconfig = str(cluster.kubeconfig)
        processes.start("record", "record", str(beside), "--kubeconfig", kubeconfig, "--hash-names")
        with Rest(cluster.kubeconfig) as rest:
            place = Place(rest)
            reclaim = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
            for team in ("red", "blue"):
                place.queue(4, team, cohortName="both", preemption=reclaim)
            high = place.priority(10, "high")
            label = {"kueue.x-k8s.io/priority-class": high}
            secret = {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "env": [{"name": "TOKEN", "value": "hunter2"}],
                        "resources": {"requests": {"cpu": "2"}},
                    }
                ]
            }
            for number in range(COUNT):
                place.job(
                    f"job-{number:02d}",
                    "red" if number < 8 else ("blue", "red")[number % 2],
                    run=0.4 + number % 3 * 0.3,
                    labels=label if number % 4 == 3 else None,
                    pod=secret,
                )
                time.sleep(0.05)
                if number == COUNT // 2:
                    time.sleep(1.2)
                    processes.kill("manager")
                    cluster.start_manager()
                    cluster.wait_for_manager()

            def all_complete() -> bool:
                jobs = rest.items(place.jobs)
                assert len(jobs) == COUNT
                assert all(is_true(job, "Complete") for job in jobs)
                return True

            eventually(all_complete)
            found["namespace"] = place.ns
        assert processes.stop("record") == 0
        processes.stop("manager")
    return found


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two racks of two nodes, and the queue `team` for them; the manager records."""
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes, options=("--record", str(tmp_path / "night.gz")))
        cluster.start_server("--racks", "2x2")
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        with Rest(cluster.kubeconfig) as rest:
            topology(rest)
            queues(rest)
        yield cluster


def test_what_was_decided_about_nodes_is_decided_again(racks: LocalCluster, tmp_path: Path) -> None:
    """A Job takes more than one rack, another one waits for a rack; both programs see nodes."""
    processes, kubeconfig = racks.processes, str(racks.kubeconfig)
    beside = tmp_path / "beside.gz"
    processes.start("record", "record", str(beside), "--kubeconfig", kubeconfig, "--hash-names")
    with Rest(racks.kubeconfig) as rest:
        rest.create(JOBS, job("large", seconds=3600, pods=5, cpu="4"))
        admitted(rest, "large")
        train = job("train", seconds=3600, pods=4, cpu="4")
        rest.create(JOBS, asking(train, required_topology=RACK))

        def waiting() -> str:
            said = condition(workload_of(rest, "train"), "QuotaReserved")
            assert "At best, rack rack-1 has room for 3 of 4 pods" in said.get("message", "")
            return str(workload_of(rest, "train")["metadata"]["name"])

        name = eventually(waiting)
        eventually(lambda: assert_recorded(beside, "WorkloadSet", 2))
        at = time.time()
        rest.delete(f"{JOBS}/large")
        admitted(rest, "train")
    assert processes.stop("record") == 0
    assert processes.stop("manager") == 0
    file = tmp_path / "night.gz"
    placed = [
        pod_set[3]
        for line in lines(file)
        for admit in line.get("plan", {}).get("admit", ())
        for pod_set in admit[2]
    ]
    assert [sum(count for _, count in domains) for domains in placed] == [5, 4]
    for path in (file, beside):
        answer = kueuelib("replay", str(path), seed="77")
        assert answer.returncode == 0, answer.stdout + answer.stderr
    answer = kueuelib("replay", str(file), "--explain", f"{name}@{at!r}")
    assert "Pod set main: rack rack-1 has room for 3 of 4 pods" in answer.stdout, answer.stderr


def assert_recorded(path: Path, fact: str, least: int) -> bool:
    """Whether the facts so far have reached the file, of which the last line may be cut off."""
    assert path.exists()
    data = zlib.decompressobj(31).decompress(path.read_bytes()).split(b"\n")[:-1]
    assert sum(json.loads(line).get("fact") == fact for line in data) >= least
    return True


def lines(path: Path) -> list[dict]:
    data = path.read_bytes()
    return [json.loads(line) for line in zlib.decompressobj(31).decompress(data).split(b"\n")[:-1]]


def test_every_plan_of_both_lives_is_the_same_under_other_hash_seeds(recorded: dict) -> None:
    plans = [
        line
        for part in (".1", "")
        for line in lines(Path(f"{recorded['file']}{part}"))
        if "plan" in line
    ]
    admitted = sum(len(line["plan"].get("admit", ())) for line in plans)
    assert admitted > COUNT // 2  # the last ones before the manager died may be missing
    assert any("preempt" in line["plan"] for line in plans)
    answers = [kueuelib("replay", str(recorded["file"]), seed=seed) for seed in ("1", "77")]
    for answer in answers:
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert f"hash of all plans: {plans[-1]['hash']}" in answer.stdout
        assert "of 2 engines" in answer.stdout
        assert "night.gz.1: ends in the middle, after line" in answer.stdout


def test_no_environment_and_no_other_name_is_written(recorded: dict) -> None:
    for part in (".1", ""):
        text = json.dumps(lines(Path(f"{recorded['file']}{part}")))
        assert "hunter2" not in text
        assert "job-job-01" in text or part
    text = json.dumps(lines(recorded["beside"]))
    assert "job-01" not in text
    assert f"{recorded['namespace']}-red" not in text


def test_a_watcher_beside_a_manager_tells_the_same_facts(recorded: dict) -> None:
    answer = kueuelib("replay", str(recorded["beside"]))
    assert answer.returncode == 0, answer.stderr
    assert "recorded from watches alone" in answer.stdout
    assert "names were replaced" in answer.stdout
    assert sum(line.get("fact") == "WorkloadSet" for line in lines(recorded["beside"])) >= 2 * COUNT


def test_a_changed_plan_is_shown_beside_the_replayed_one(recorded: dict, tmp_path: Path) -> None:
    found = lines(recorded["file"])
    (first, *_) = [line for line in found if line.get("plan", {}).get("admit")]
    flavor = first["plan"]["admit"][0][2][0][2]
    flavor["cpu"] = "elsewhere"
    changed = tmp_path / "changed"
    changed.write_text("".join(json.dumps(line) + "\n" for line in found))
    answer = kueuelib("replay", str(changed))
    assert answer.returncode == 1
    assert "the plans differ" in answer.stdout
    assert "cpu of elsewhere" in answer.stdout


def test_a_time_of_it_becomes_a_scenario_an_answer_and_a_simulation(
    recorded: dict, tmp_path: Path
) -> None:
    file = str(recorded["file"])
    plans = [line for line in lines(recorded["file"]) if line.get("plan", {}).get("wait")]
    waiting = plans[0]
    key, at = waiting["plan"]["wait"][0][0], waiting["at"]
    answer = kueuelib("replay", file, "--explain", f"{key}@{at + 1e-6!r}")
    assert answer.returncode == 0, answer.stderr
    assert key.partition("/")[2] in answer.stdout
    answer = kueuelib("replay", file, "--until", repr(at), "--to-scenario")
    assert answer.returncode == 0, answer.stderr
    scenario = json.loads(answer.stdout)
    assert run_scenario(scenario) == scenario["expect"]
    assert key.partition("/")[2] in [one["name"] for one in scenario["pending"]]
    policy = tmp_path / "more.yaml"
    queue = next(
        line["of"]
        for line in lines(recorded["file"])
        if line.get("fact") == "ClusterQueueSet" and "red" in line["of"]["metadata"]["name"]
    )
    quota = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    quota["nominalQuota"] = "40"
    queue["metadata"] = {"name": queue["metadata"]["name"]}
    policy.write_text(
        yaml.safe_dump({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", **queue})
    )
    output = tmp_path / "results"
    answer = kueuelib(
        "replay", file, "--until", repr(at), "--with", str(policy), "--output", str(output)
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    runs = json.loads((output / "result.json").read_text())["runs"]
    assert set(runs) == {"baseline", "more"}
    waits = [runs[name]["total"]["wait_seconds"]["mean"] for name in runs]
    assert waits[1] < waits[0]
