"""`kueuelib explain` as a user types it, and that what it says holds."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from rest import JOBS, KUEUE, PODS, WORKLOADS, Obj, Rest, eventually, is_true, job, queues, urgent
from warm import Processes, kueuelib

from kueuelib.testing.processes import LocalCluster


class Explain:
    """The command with the cluster's kubeconfig."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._kubeconfig = str(cluster.kubeconfig)

    def run(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return kueuelib("explain", *args, "--kubeconfig", self._kubeconfig, stdin=stdin)

    def json(self, *args: str, stdin: str = "") -> Obj:
        done = self.run(*args, "-o", "json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        found: Obj = json.loads(done.stdout)
        return found

    def text(self, *args: str, stdin: str = "") -> str:
        done = self.run(*args, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def explain(cluster: LocalCluster) -> Explain:
    return Explain(cluster)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A crowded cluster for tests that only ask."""
    with Processes(tmp_path_factory.mktemp("shared")) as processes:
        found = LocalCluster(processes)
        found.start()
        with Rest(found.kubeconfig) as rest:
            crowd(rest)
        yield found


@pytest.fixture
def crowded(shared: LocalCluster) -> Iterator[tuple[Rest, Explain]]:
    """A client of that cluster, and the command."""
    with Rest(shared.kubeconfig) as rest:
        yield rest, Explain(shared)


def crowd(rest: Rest) -> None:
    """Two CPUs, both in use, and a Job of two pods that waits."""
    queues(rest, cpu=2)
    rest.create(JOBS, job("first", seconds=600, pods=2))
    eventually(lambda: not rest.get(f"{JOBS}/first")["spec"]["suspend"])
    rest.create(JOBS, job("second", seconds=600, pods=2))
    eventually(lambda: len(rest.items(WORKLOADS)) == 2)

    def settled() -> bool:
        found = rest.get(f"{KUEUE}/clusterqueues/team")["status"]
        pods = rest.items(PODS)
        assert all(pod["status"]["phase"] == "Running" for pod in pods)
        return (found["pendingWorkloads"], found["reservingWorkloads"], len(pods)) == (1, 1, 2)

    eventually(settled)


def change(found: Obj, kind: str) -> Obj:
    (one,) = (each for each in found["changes"] if each["kind"] == kind)
    return one


def versions(rest: Rest) -> dict[str, str]:
    """The resource versions of what explain looks at."""
    paths = (WORKLOADS, f"{KUEUE}/clusterqueues", f"{KUEUE}/resourceflavors")
    return {
        one["metadata"]["uid"]: one["metadata"]["resourceVersion"]
        for path in paths
        for one in rest.items(path)
    }


def test_a_job_that_waits_is_explained_and_the_proposed_quota_admits_it(
    rest: Rest, explain: Explain
) -> None:
    crowd(rest)

    def told() -> bool:
        return explain.json("job/second").get("told", {}).get("reason") == "WaitingForQuota"

    eventually(told)
    before = versions(rest)
    found = explain.json("job/second", "-n", "default")
    text = explain.text("job/second")
    assert versions(rest) == before
    assert found["verdict"] == "waits"
    assert (found["position"], found["ahead"], found["clusterQueue"]) == (1, [], "team")
    assert found["reason"]["message"] == found["told"]["message"]
    (row,) = found["table"]
    amounts = {name: row[name] for name in ("requested", "used", "nominal", "available")}
    assert amounts == {"requested": "2", "used": "2", "nominal": "2", "available": "0"}
    assert change(found, "quota")["details"]["amounts"][0]["by"] == 2000
    assert "raise nominalQuota of flavor on-demand: cpu by 2 (to 4)" in text
    assert "2 more needed" in text

    queue = rest.get(f"{KUEUE}/clusterqueues/team")
    groups = queue["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = "3999m"
    rest.merge(f"{KUEUE}/clusterqueues/team", {"spec": {"resourceGroups": groups}})
    less = explain.json("job/second")
    assert change(less, "quota")["details"]["amounts"][0]["by"] == 1
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = "4"
    rest.merge(f"{KUEUE}/clusterqueues/team", {"spec": {"resourceGroups": groups}})
    eventually(lambda: not rest.get(f"{JOBS}/second")["spec"]["suspend"])
    held = explain.json("job/second")
    assert (held["verdict"], held["changes"]) == ("holds quota", [])


def test_a_workload_and_a_pod_of_a_job_lead_to_the_same_answer(
    crowded: tuple[Rest, Explain],
) -> None:
    rest, explain = crowded
    (name,) = (
        wl["metadata"]["name"] for wl in rest.items(WORKLOADS) if is_true(wl, "QuotaReserved")
    )
    pod = eventually(lambda: rest.items(PODS))[0]["metadata"]["name"]
    assert explain.json(f"workload/{name}")["workload"] == f"default/{name}"
    of_pod = explain.json(f"pod/{pod}")
    assert of_pod["workload"] == f"default/{name}"
    assert of_pod["object"] == f"Pod {pod} of Job first"


def test_manifests_are_answered_without_being_submitted(crowded: tuple[Rest, Explain]) -> None:
    rest, explain = crowded
    before = versions(rest)
    small, lost = job("small", seconds=1), job("lost", seconds=1)
    lost["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "absent"
    found = explain.json("-f", "-", stdin=yaml.safe_dump_all([small, lost]))
    assert versions(rest) == before
    assert [one["object"] for one in found] == ["Job small", "Job lost"]
    assert all(not one["submitted"] for one in found)
    assert found[0]["position"] == 2
    assert change(found[0], "quota")["details"]["amounts"][0]["by"] == 1000
    assert found[1]["problems"][0]["subject"] == "LocalQueue default/absent"
    assert found[1]["reason"]["reason"] == "Misconfigured"


def test_bad_questions_are_answered_with_the_object_the_field_and_the_fix(
    crowded: tuple[Rest, Explain],
) -> None:
    _, explain = crowded
    broken = job("broken", seconds=1)
    del broken["spec"]["template"]["spec"]["containers"]
    unnamed = {**job("x", seconds=1), "metadata": {}}
    cases = (
        (("job/absent",), "", 1, "Job absent does not exist in namespace default; there are first"),
        (("job/first", "-n", "void"), "", 1, "Namespace void does not exist"),
        (("workload/absent",), "", 1, "Workload absent does not exist"),
        (("first",), "", 2, "is not KIND/NAME"),
        (("deployment/x",), "", 1, "no Workload in namespace default belongs to deployment x"),
        ((), "", 2, "give either KIND/NAME or -f FILE"),
        (("-f", "/nowhere.yaml"), "", 2, "/nowhere.yaml: No such file"),
        (("-f", "-"), "", 2, "standard input: holds no object"),
        (("-f", "-"), "a: [", 2, "standard input: malformed YAML"),
        (("-f", "-"), json.dumps(broken), 2, "Job broken: spec.template.spec.containers"),
        (("-f", "-"), json.dumps(unnamed), 2, "metadata.name is missing"),
    )
    for args, stdin, code, text in cases:
        done = explain.run(*args, stdin=stdin)
        assert done.returncode == code, (args, done.stderr)
        assert text in done.stderr, args
        assert "Traceback" not in done.stderr


def test_what_is_missing_is_named_even_without_any_queue(rest: Rest, explain: Explain) -> None:
    rest.create(JOBS, job("early", seconds=1))
    eventually(lambda: rest.items(WORKLOADS))
    found = explain.text("job/early")
    assert "LocalQueue default/team: does not exist; create it" in found
    queues(rest, cpu=1, local=False)
    created = explain.text("job/early")
    assert "create LocalQueue default/team with spec.clusterQueue: team" in created


def test_when_a_job_starts_follows_from_the_limits_of_those_before_it(
    rest: Rest, explain: Explain
) -> None:
    """One CPU: a Job with a deadline runs, and one without a limit waits before another one."""
    queues(rest, cpu=1)
    first = job("first", seconds=3000)
    first["spec"]["activeDeadlineSeconds"] = 3600
    rest.create(JOBS, first)
    eventually(lambda: any(is_true(found, "Admitted") for found in rest.items(WORKLOADS)))
    rest.create(JOBS, job("second", seconds=600))
    eventually(lambda: len(rest.items(WORKLOADS)) == 2)
    found = explain.json("--when", "job/second")
    assert found["known"] is True
    assert 0 < found["p50Seconds"] == found["p90Seconds"] <= 3600
    time.sleep(1.1)  # times of creation count whole seconds
    rest.create(JOBS, job("third", seconds=600))
    eventually(lambda: len(rest.items(WORKLOADS)) == 3)
    found = explain.json("--when", "job/third")
    assert found["known"] is False
    assert [name.rpartition("-")[0] for name in sorted(found["unknownRunTimes"])] == [
        "default/job-second",
        "default/job-third",
    ]
    done = explain.run("--when", "job/nobody")
    assert (done.returncode, done.stderr) == (
        1,
        "kueuelib: Job nobody does not exist in namespace default\n",
    )


def member(name: str, seconds: int = 600) -> Obj:
    """A pod of a group of two."""
    labels = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/pod-group-name": "pair"}
    notes = {"kueue.x-k8s.io/pod-group-total-count": "2", "kueuelib.dev/run-seconds": str(seconds)}
    container = {"name": "work", "image": "work:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": notes},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


def test_a_group_is_told_in_every_stage_what_it_waits_for(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes, frameworks=("batch/job", "pod"))
        cluster.start()
        with Rest(cluster.kubeconfig) as rest:
            lives_of_a_group(rest, Explain(cluster))


def lives_of_a_group(rest: Rest, explain: Explain) -> None:
    queues(rest, cpu=2)
    preemption = {"withinClusterQueue": "LowerPriority"}
    rest.merge(f"{KUEUE}/clusterqueues/team", {"spec": {"preemption": preemption}})

    def asked(what: str = "workload/pair") -> tuple[Obj, str]:
        return explain.json(what), explain.text(what)

    rest.create(PODS, member("a"))
    found, text = asked("pod/a")
    assert found["verdict"] == "no workload"
    assert "The group has 1 of 2 pods" in text

    rest.create(PODS, member("b"))
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/pair"), "Admitted"))
    assert asked()[0]["verdict"] == "holds quota"

    rest.create(JOBS, urgent(rest, job("winner", seconds=600, pods=2)))
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/pair"), "Requeued") is False)
    eventually(lambda: not rest.get(f"{JOBS}/winner")["spec"]["suspend"])
    found, text = asked()
    assert (found["verdict"], found["position"], found["changes"]) == ("waits", None, [])
    waits = "WaitingForReplacementPods: The group waits for 2 pods to be replaced"
    assert f"It waits: {waits}" in text
    assert "with its pods it would still wait: couldn't assign flavors" in text

    rest.delete(f"{JOBS}/winner", propagationPolicy="Background")
    eventually(lambda: len(rest.items(WORKLOADS)) == 1)
    for name, lacking in (("c", "2 pods"), ("d", "1 pod")):
        found, text = asked()
        assert f"The group waits for {lacking} to be replaced" in text
        assert [one["kind"] for one in found["changes"]] == ["pods-return"]
        assert "create the missing pods of the group" in text
        rest.create(PODS, member(name, seconds=3))

        def noticed(name: str = name) -> bool:
            workload = rest.get(f"{WORKLOADS}/pair")
            owners = {one["name"] for one in workload["metadata"]["ownerReferences"]}
            assert name in owners
            return True

        eventually(noticed)
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/pair"), "Admitted"))
    eventually(lambda: is_true(rest.get(f"{WORKLOADS}/pair"), "Finished"))
    found, _ = asked()
    assert (found["verdict"], found["changes"]) == ("finished", [])
