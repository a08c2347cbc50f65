"""Details of findings: which objects they name, and when they are made."""

from __future__ import annotations

import copy
from typing import Any

from kueuelib.api.meta import format_time

from .test_findings import (
    ELASTIC,
    FORCED,
    NOW,
    ask_for_force,
    fail_to_start,
    lose_the_job,
    name_no_cluster_queue,
)


def test_a_list_of_names_says_that_it_is_cut(patient: Any) -> None:
    for number in range(7):
        queue = copy.deepcopy(patient.get("ClusterQueue", "cq"))
        queue["metadata"] = {**queue["metadata"], "name": f"cq{number}"}
        queue["status"].update(reservingWorkloads=0, flavorsReservation=[])
        queue["spec"]["resourceGroups"] = []
        patient.objects.append(queue)
    name_no_cluster_queue(patient)
    (problem,) = [one.problem for name, one in patient.found() if name == "local-queue"]
    assert problem.endswith("there are: cq, cq0, cq1, cq2, cq3 and 3 more")


def test_a_workload_without_owner_is_given_time_until_its_job_adopts_it(patient: Any) -> None:
    lose_the_job(patient)
    fix = "kubectl -n ns delete workload runs  # unless a controller of yours finishes it"
    assert patient.only("quota-unowned").fix == fix
    runs = patient.get("Workload", "runs")
    runs["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": "u"}]
    assert patient.found() == []
    lose_the_job(patient)
    runs["status"]["conditions"][0]["lastTransitionTime"] = format_time(NOW - 240)
    assert patient.found() == []


def test_each_missing_feature_is_one_finding(patient: Any) -> None:
    ask_for_force(patient)
    waits = patient.get("Workload", "waits")
    patient.objects.append({**waits, "metadata": {**waits["metadata"], "name": "x", "uid": "x"}})
    waits["metadata"] = {**waits["metadata"], "annotations": {ELASTIC: "true"}}
    assert {name for name, _ in patient.found()} == {"feature-missing"}
    elastic, forced = sorted(one.problem for _, one in patient.found())
    assert elastic.endswith(f"requested by {ELASTIC} of the Workload")
    assert forced.endswith(f"requested by {FORCED} of pod set main; others that ask for it: 1")


def test_what_never_ran_is_mended_in_its_job(patient: Any) -> None:
    fail_to_start(patient)
    fix = "kubectl -n ns delete job train  # correct it, and submit it again"
    assert patient.only("never-ran").fix == fix


def test_what_is_finished_before_its_job_is_queued_again(patient: Any) -> None:
    fail_to_start(patient)
    patient.get("Workload", "waits")["status"]["conditions"][0]["reason"] = "Succeeded"
    patient.add("Job", "train", "ns", spec={"suspend": True}, status={})
    patient.get("Job", "train")["metadata"]["uid"] = "uid-train"
    found = patient.only("never-ran")
    assert "Job ns/train is suspended and has not ended; an older state" in found.problem
    assert found.fix == "kubectl -n ns delete workload waits  # its Job is queued again"
