"""The words of `kueuelib explain` for people."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.app.explaining.asking import Answer
from kueuelib.cli.explain.text import show
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.world import World
from kueuelib.testing.builders import (
    make_assignment,
    make_check,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_pod_set,
    make_workload,
)

KEY = ObjectKey("ns", "job")
TIME = "1970-01-01T00:10:00Z"


def queue(found: World, name: str, cpu: int, **rest: Any) -> World:
    found = found.with_cluster_queue(make_cluster_queue(name, {"f": {"cpu": cpu}}, **rest))
    return found.with_local_queue(make_local_queue(name, name))


HEADING = (
    "Any one of these would admit it now; a slightly smaller change would not, "
    "unless it preempts others:"
)


def told(world: World, capsys: pytest.CaptureFixture[str]) -> list[str]:
    show([Answer("Job job", submitted=True, explanation=explain(world, KEY, 1000.0))])
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_where_it_could_be_is_one_line_for_each_price(capsys: pytest.CaptureFixture[str]) -> None:
    world = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    world = queue(world, "mine", 1)
    preemption = {"withinClusterQueue": "LowerPriority"}
    for name in ("a", "b", "c"):
        world = queue(world, name, 3, cohort=f"co-{name}")
    world = queue(world, "full", 3, preemption=preemption)
    admission = {
        "clusterQueue": "full",
        "podSetAssignments": [make_assignment({"cpu": 3}, "f")],
    }
    holder = make_workload(
        "holder",
        "full",
        {"cpu": 3},
        priority=-1,
        conditions=[make_condition("QuotaReserved"), make_condition("Admitted")],
        status={"admission": admission},
    )
    world = world.with_workload(holder).with_workload(make_workload("job", "mine", {"cpu": 3}))
    submit, label = "Workload ns/job: submit it to LocalQueue", "kueue.x-k8s.io/queue-name"
    choice = "a (ClusterQueue a), b (ClusterQueue b) or c (ClusterQueue c)"
    lines = told(world, capsys)
    start = lines.index(HEADING)
    assert lines[start + 1 : -1] == [
        "ClusterQueue mine: raise nominalQuota of flavor f: cpu by 2 (to 3)",
        f"{submit} {choice} with the label {label}",
        f"{submit} full (ClusterQueue full) with the label {label} (preempts ns/holder)",
        "ClusterQueue mine: set spec.cohortName: co-a, co-b or co-c",
    ]


def test_a_minimum_of_pods_is_shown_and_lowered(capsys: pytest.CaptureFixture[str]) -> None:
    world = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    pods = make_pod_set({"cpu": 1}, count=9, min_count=5)
    found = queue(world, "mine", 3).with_workload(make_workload("job", "mine", pod_sets=[pods]))
    lines = told(found, capsys)
    assert any("main x 5-9" in line for line in lines)
    text = "3 instead of 9 pods in pod set main, and a minimum of 3 instead of 5"
    assert f"Workload ns/job: {text}" in lines


def test_what_never_fits_says_how_much_would_where_it_was_not_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    world = queue(world, "mine", 3, stopPolicy="Hold")
    lines = told(world.with_workload(make_workload("job", "mine", {"cpu": 4})), capsys)
    assert any("exceeds quota: at most 3 ever" in line for line in lines)


def test_a_check_that_did_not_decide_has_a_controller_a_time_and_a_next_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    strategy = {"admissionChecks": [{"name": "budget"}]}
    world = queue(world, "mine", 3, admissionChecksStrategy=strategy)
    assigned = [make_assignment({"cpu": 3}, "f")]
    state = {"name": "budget", "state": "Pending", "message": "", "lastTransitionTime": TIME}
    admission = {"clusterQueue": "mine", "podSetAssignments": assigned}
    status: Any = {"admission": admission, "admissionChecks": [state]}
    reserved = make_condition("QuotaReserved")
    job = make_workload("job", "mine", {"cpu": 3}, conditions=[reserved], status=status)
    lines = told(world.with_check(make_check("budget")).with_workload(job), capsys)
    assert f"Admission check budget (example.com/check) is Pending since {TIME}" in lines
    assert "Next step: look into the log of the controller that serves example.com/check" in lines
