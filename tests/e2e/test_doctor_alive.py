"""`kueuelib doctor` while a manager runs, and before one was started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from place import Place
from real_plane import lacking, real_cluster
from rest import KUEUE, WORKLOADS, Rest, condition, eventually, queues
from ward import DOMAIN, HOOKS, LEASE, doctor, groups, of_crd, typed, workload
from warm import Processes

from kueuelib.api.crd import all_crds
from kueuelib.testing.processes import LocalCluster


def test_a_check_that_does_not_decide_is_told_after_five_minutes(
    cluster: LocalCluster, rest: Rest
) -> None:
    """A manager runs, and a Job has quota; the check's controller says nothing but Pending."""
    place = Place(rest)
    place.check("slow")
    place.queue(4, checks=("slow",))
    job = place.job()
    workload = place.when(job, "QuotaReserved")
    args = ("--config", str(cluster.processes.folder / "config.yaml"))

    def told() -> list[str]:
        done = doctor(cluster.kubeconfig, *args)
        assert done.returncode == 0, done.stdout
        lines = done.stdout.splitlines()
        places = [number for number, line in enumerate(lines) if "(check-pending)" in line]
        return lines[places[0] : places[0] + 3] if places else []

    assert told() == []
    (entry,) = workload["status"]["admissionChecks"]
    entry = {**entry, "message": "thinking", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    path = f"{place.workloads}/{workload['metadata']['name']}/status"
    rest.merge(path, {"status": {"admissionChecks": [entry]}})
    hint, problem, fix = told()
    assert hint == f"hint: AdmissionCheck {place.named('slow')} (check-pending)"
    key = f"{place.ns}/{workload['metadata']['name']}"
    who = "its controller example.com/by-hand"
    assert f"{who} keeps 1 Workload with quota waiting, {key}" in problem
    assert fix.startswith(f"  -> kubectl describe admissioncheck {place.named('slow')}")
    place.answer(workload, "slow", "Ready")
    place.admitted(job)
    assert told() == []


def test_a_workload_without_owner_is_told_and_its_quota_comes_back(
    cluster: LocalCluster, rest: Rest
) -> None:
    """A manager runs; the only quota is held by a Workload that no job owns."""
    place = Place(rest)
    place.queue(1)
    path = f"{place.workloads}/left"
    left = workload("left", "q")
    rest.create(place.workloads, {**left, "metadata": {"name": "left", "namespace": place.ns}})
    eventually(lambda: condition(rest.get(path), "Admitted")["status"] == "True")
    job = place.job()
    args = ("--config", str(cluster.processes.folder / "config.yaml"), "-o", "json")

    def told() -> list[tuple[str, str, str]]:
        found = json.loads(doctor(cluster.kubeconfig, *args).stdout)["findings"]
        of_ours = [one for one in found if one["check"] == "quota-unowned"]
        return [(one["severity"], one["object"]["name"], one["fix"]) for one in of_ours]

    assert told() == []
    since = {"lastTransitionTime": "2024-01-01T00:00:00Z"}
    conditions = [{**one, **since} for one in rest.get(path)["status"]["conditions"]]
    rest.merge(f"{path}/status", {"status": {"conditions": conditions}})
    ((severity, name, fix),) = told()
    assert (severity, name) == ("hint", "left")
    assert fix.startswith(f"kubectl -n {place.ns} delete workload left  # unless")
    rest.delete(path)  # what the command does
    place.admitted(job)
    assert told() == []


@contextmanager
def embedded_cluster(folder: Path) -> Iterator[LocalCluster]:
    with Processes(folder) as processes:
        cluster = LocalCluster(processes)
        cluster.start_server()
        yield cluster


REAL = pytest.param(
    real_cluster,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
)


@pytest.mark.parametrize("made", [embedded_cluster, REAL])
def test_before_a_manager_runs_doctor_tells_one_cause(made: Any, tmp_path: Path) -> None:
    """Everything is installed, and queues and Workloads are there; no manager was ever started."""
    with made(tmp_path) as cluster, Rest(cluster.kubeconfig) as rest:
        empty = doctor(cluster.kubeconfig)
        assert empty.returncode == 4, empty.stderr
        cluster.install()
        for kind in ("mutating", "validating"):
            path = f"{HOOKS}/{kind}webhookconfigurations/kueue-{kind}-webhook-configuration"
            hooks = rest.get(path)["webhooks"]
            rest.merge(path, {"webhooks": [{**one, "failurePolicy": "Ignore"} for one in hooks]})
        nodes = {"spec": {"controllerName": f"{DOMAIN}/provisioning-request"}}
        rest.create(f"{KUEUE}/admissionchecks", {**typed("AdmissionCheck", "nodes"), **nodes})
        queues(rest, cpu=2)
        checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]}}
        checked = {"namespaceSelector": {}, **checks, **groups("on-demand", "1")}
        queue = {**typed("ClusterQueue", "checked"), "spec": checked}
        rest.create(f"{KUEUE}/clusterqueues", queue)
        for name in ("one", "two"):
            rest.create(WORKLOADS, workload(name, "team"))
        done = doctor(cluster.kubeconfig)
        again = json.loads(doctor(cluster.kubeconfig, "-o", "json").stdout)
        cluster.start_manager()
        cluster.wait_for_manager()
        config = str(cluster.processes.folder / "config.yaml")
        args = ("--config", config, "-o", "json")

        def left() -> list[tuple[str, Any]]:
            found = json.loads(doctor(cluster.kubeconfig, *args).stdout)["findings"]
            return [(one["check"], one["cause"]) for one in found if one["severity"] == "error"]

        # The check has no parameters: that is not the manager's to mend.
        eventually(lambda: left() == [("queue-inactive", None)])
    roots = lambda text: [  # noqa: E731
        line for line in text.splitlines() if line.startswith("error: ")
    ]
    assert roots(empty.stdout) == [
        f"error: {of_crd('admissionchecks')} and {len(all_crds()) - 1} more (crd-missing)"
    ]
    assert done.returncode == 4
    assert roots(done.stdout) == [f"error: Lease kueue-system/{LEASE} (leader)"]
    url = f"https://127.0.0.1:{cluster.webhook_port}"
    start = "-> kueuelib manager --config FILE --kubeconfig KUBECONFIG  # the manager's own"
    assert f"{start}, on the machine that {url} names" in done.stdout
    assert "pods," not in done.stdout
    follow = [line for line in done.stdout.splitlines() if line.startswith("  so: ")]
    assert {line.rpartition(" (")[2].removesuffix(")") for line in follow} == {
        *("webhook-unreachable", "queue-inactive", "queue-status", "fits-but-waits")
    }
    errors = [one for one in again["findings"] if one["severity"] == "error"]
    assert len(errors) >= 5
    assert [one["check"] for one in errors if one["cause"] is None] == ["leader"]
