"""Simulations with nodes: pods need places, and free room is spread over nodes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner

from kueuelib.api.workload import HOST
from kueuelib.cli.syntax import app

KUEUE = "kueue.x-k8s.io/v1beta2"
NODE = """
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {pool: a, rack: %s, kubernetes.io/hostname: %s}}
status: {allocatable: {cpu: "%s", pods: "10"}}
"""
QUEUES = f"""
apiVersion: {KUEUE}
kind: Topology
metadata: {{name: t}}
spec: {{levels: [{{nodeLabel: rack}}, {{nodeLabel: {HOST}}}]}}
---
apiVersion: {KUEUE}
kind: ResourceFlavor
metadata: {{name: f}}
spec: {{topologyName: t, nodeLabels: {{pool: a}}}}
---
apiVersion: {KUEUE}
kind: ClusterQueue
metadata: {{name: cq}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: "20"}}]}}]
---
apiVersion: {KUEUE}
kind: LocalQueue
metadata: {{name: q, namespace: default}}
spec: {{clusterQueue: cq}}
"""
BEST_FIT = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {TASProfileMixed: false}
"""


def simulate(folder: Path, *nodes: tuple[str, str, int], policy: str = "") -> dict[str, Any]:
    manifests = [NODE % (name, rack, name, cpu) for name, rack, cpu in nodes]
    (folder / "cluster.yaml").write_text("---".join([QUEUES, *manifests]))
    (folder / "trace.csv").write_text(
        "name,arrival,run_seconds,cpu,queue\na,0,100,3,q\nb,10,20,4,q\nc,20,20,4,q\n"
    )
    arguments = ["simulate", "trace.csv", "--cluster", "cluster.yaml", "--sample-seconds", "10"]
    if policy:
        (folder / "best.yaml").write_text(policy)
        arguments += ["--policy", "best.yaml"]
    arguments = [str(folder / one) if one.endswith(("csv", "yaml")) else one for one in arguments]
    done = CliRunner().invoke(app, [*arguments, "--output", str(folder / "out")])
    assert done.exit_code == 0, done.output
    assert "jobs.csv, queues.csv and places.csv" in done.output
    runs: dict[str, Any] = orjson.loads((folder / "out/result.json").read_bytes())["runs"]
    return runs


def simulate_objects(folder: Path, *manifests: str) -> tuple[dict[str, Any], str]:
    """The result of a simulation of objects, and what it prints."""
    (folder / "trace.yaml").write_text("---".join(manifests))
    arguments = ["simulate", str(folder / "trace.yaml"), "--output", str(folder / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return orjson.loads((folder / "out/result.json").read_bytes()), done.output


def test_a_job_waits_for_a_node_although_there_is_quota(tmp_path: Path) -> None:
    run = simulate(tmp_path, ("n", "r", 4), ("m", "s", 5))["baseline"]
    waits = list(csv.DictReader((tmp_path / "out/baseline/jobs.csv").read_text().splitlines()))
    assert {one["job_id"]: float(one["waiting_time"]) for one in waits} == {"a": 0, "b": 0, "c": 10}
    assert run["fragmentation"]["f"].keys() == {"rack", HOST}


def test_the_free_room_of_each_level_is_written(tmp_path: Path) -> None:
    simulate(tmp_path, ("n", "r", 4), ("m", "r", 5))
    rows = list(csv.DictReader((tmp_path / "out/baseline/places.csv").read_text().splitlines()))
    first = {one["level"]: one for one in rows if one["time"] == "0"}
    assert [first[HOST][name] for name in ("capacity", "free", "scattered", "largest")] == [
        *("9", "6", "2", "4")
    ]
    assert [first["rack"][name] for name in ("free", "scattered", "largest")] == ["6", "6", "6"]


def test_policies_for_the_choice_of_nodes_are_compared(tmp_path: Path) -> None:
    nodes = (("n", "r", 4), ("m", "r", 5), ("o", "r", 4))
    runs = simulate(tmp_path, *nodes, policy=BEST_FIT)
    assert runs.keys() == {"baseline", "best"}
    assert runs["best"]["fragmentation"]["f"][HOST]["cpu"] > 0
    assert "fragmentation of cpu" in (tmp_path / "out/report.html").read_text()


JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: %s
  namespace: default
  labels: {kueue.x-k8s.io/queue-name: q}
  annotations: {kueuelib.dev/run-seconds: "60"}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {%s}}
    spec:
      containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]
      restartPolicy: Never
"""


def test_the_annotations_of_a_job_are_its_request_for_a_topology(tmp_path: Path) -> None:
    notes = {
        "anywhere": "",
        "preferred": 'kueue.x-k8s.io/podset-preferred-topology: "rack"',
        "required": 'kueue.x-k8s.io/podset-required-topology: "rack"',
        "slices": 'kueue.x-k8s.io/podset-slice-required-topology: "rack", '
        'kueue.x-k8s.io/podset-slice-size: "2"',
    }
    nodes = (NODE % ("n", "r", "n", 4), NODE % ("m", "s", "m", 4))
    found, _ = simulate_objects(tmp_path, QUEUES, *nodes, *(JOB % each for each in notes.items()))
    run = found["runs"]["baseline"]
    rows = csv.DictReader((tmp_path / "out/baseline/jobs.csv").read_text().splitlines())
    ended = {one["job_id"] for one in rows if one["finish_time"]}
    assert ended == {"anywhere", "preferred"}, "two pods of 3 CPUs do not fit into one rack"
    assert sum(run["simulation"]["unfinished_because"].values()) == 2


def test_annotations_about_a_topology_without_effect_are_a_note(tmp_path: Path) -> None:
    typo = "kueue.x-k8s.io/podset-required-toplogy"
    jobs = [JOB % (name, f'{typo}: "rack"') for name in ("a", "b")]
    misplaced = (JOB % ("c", "")).replace(
        "annotations: {kueuelib", "annotations: {kueue.x-k8s.io/podset-slice-size: '2', kueuelib"
    )
    nodes = (NODE % ("n", "r", "n", 4), NODE % ("m", "s", "m", 4))
    found, output = simulate_objects(tmp_path, QUEUES, *nodes, *jobs, misplaced)
    notes = found["notes"]
    first, second = notes
    assert first == (
        f"spec.template.metadata.annotations[{typo}] has no effect: this version does not know it; "
        "did you mean kueue.x-k8s.io/podset-required-topology? (in Job default/a, Job default/b)"
    )
    assert second == (
        "metadata.annotations[kueue.x-k8s.io/podset-slice-size] has no effect: "
        "it belongs in the annotations of the pod template (in Job default/c)"
    )
    assert f"Note: {notes[0]}\n" in output


def test_nodes_without_the_label_of_a_level_are_a_note(tmp_path: Path) -> None:
    nodes = NODE % ("n", "r", "n", 4), (NODE % ("m", "s", "m", 4)).replace("rack: s, ", "")
    found, _ = simulate_objects(tmp_path, QUEUES, *nodes, JOB % ("a", ""))
    notes = found["notes"]
    assert notes == ["no pods are placed on 1 node (m) of flavor f without the label rack"]


def test_an_inactive_queue_is_named_with_what_is_missing(tmp_path: Path) -> None:
    queues = QUEUES.replace("topologyName: t", "topologyName: other")
    found, output = simulate_objects(tmp_path, queues, JOB % ("a", ""))
    run = found["runs"]["baseline"]
    (example,) = run["simulation"]["unfinished_for_example"].values()
    assert example == (
        "default/a: ClusterQueue cq is inactive: ResourceFlavor f: "
        'spec.topologyName is "other", but there is no such Topology'
    )
    assert example in output


def test_several_causes_of_an_inactive_queue_are_separated_by_semicolons(tmp_path: Path) -> None:
    flavor = '{name: gone, resources: [{name: memory, nominalQuota: "1"}]}'
    second = f"{{coveredResources: [memory], flavors: [{flavor}]}}"
    queues = QUEUES.replace("topologyName: t", "topologyName: other")
    queues = queues.replace("resourceGroups:\n", f"resourceGroups:\n  - {second}\n")
    found, _ = simulate_objects(tmp_path, queues, JOB % ("a", ""))
    run = found["runs"]["baseline"]
    (example,) = run["simulation"]["unfinished_for_example"].values()
    assert example == (
        "default/a: ClusterQueue cq is inactive: ResourceFlavor gone: is named by ClusterQueue cq "
        'and does not exist; ResourceFlavor f: spec.topologyName is "other", but there is no such '
        "Topology"
    )
