"""The words of `kueuelib explain` for people."""

from __future__ import annotations

import io
from typing import Any

import pytest
from places_world import RACK, node, placed, pods
from places_world import world as places_world

from kueuelib.api.codec import decode
from kueuelib.api.kueue import Topology
from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import HOST
from kueuelib.app.explaining.asking import ObjectAnswer
from kueuelib.cli.explain.command import answer_data
from kueuelib.cli.explain.text import show
from kueuelib.scheduler.explain.answer import explain
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.settings import Settings
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
    show([ObjectAnswer("Job job", submitted=True, explanation=explain(world, KEY, 1000.0))])
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


def test_the_end_of_a_workload_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"message": "nodeSelector[arch] is amd64 by the pod template"}
    ended = make_condition("Finished", reason="FailedToStart") | said
    world = queue(World().with_namespace("ns", {}).with_flavor(make_flavor("f")), "mine", 1)
    world = world.with_workload(make_workload("job", "mine", {"cpu": 1}, conditions=[ended]))
    assert f"It is finished: FailedToStart: {said['message']}" in told(world, capsys)
    data = answer_data(
        ObjectAnswer("Job job", submitted=True, explanation=explain(world, KEY, 1000.0))
    )
    assert data["finished"] == {"reason": "FailedToStart", **said}


def test_a_narrow_terminal_gets_a_block_of_lines_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow = io.StringIO()
    monkeypatch.setattr(narrow, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", narrow)
    for name, value in (("COLUMNS", "60"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    world = queue(World().with_namespace("ns", {}).with_flavor(make_flavor("f")), "mine", 1)
    world = world.with_workload(make_workload("job", "mine", {"cpu": 3, "memory": "1Gi"}))
    show([ObjectAnswer("Job job", submitted=True, explanation=explain(world, KEY, 1000.0))])
    text = narrow.getvalue()
    assert "\x1b" not in text, "no colour, and nothing bold either"
    block = """Pod set: main x 1
Resource: cpu
Flavor: f
Requested: 3
Used: 0
Nominal: 1
Borrowable: 0
Available: 1
Verdict: """
    assert block in text
    assert text.count("Pod set: main x 1") == 2, "each block says what it is about"


def test_the_label_that_no_flavor_has_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    world = World().with_namespace("ns", {}).with_flavor(make_flavor("f", {"arch": "arm64"}))
    pods = make_pod_set({"cpu": 1}, nodeSelector={"arch": "amd64"})
    world = queue(world, "mine", 1).with_workload(make_workload("job", "mine", pod_sets=[pods]))
    text = "Pod set main: the pods want arch amd64, the nodes of flavor f have arm64"
    assert text in told(world, capsys)


def test_the_levels_of_a_topology_are_named_to_who_asks_for_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = {"levels": [{"nodeLabel": "rack"}]}
    topology = decode(Topology, {"metadata": {"name": "t"}, "spec": spec})
    world = World(settings=Settings(places_pods=True), topologies={"t": topology})
    world = world.with_namespace("ns", {}).with_flavor(
        make_flavor("f", {"a": "b"}, topologyName="t")
    )
    pods = {**make_pod_set({"cpu": 1}), "topologyRequest": {"required": "rak"}}
    world = queue(world, "mine", 1).with_workload(make_workload("job", "mine", pod_sets=[pods]))
    text = "Pod set main: Topology t of flavor f has the levels rack, but not rak"
    assert text in told(world, capsys)


def test_a_resource_without_quota_is_named_in_plain_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = queue(World().with_namespace("ns", {}).with_flavor(make_flavor("f")), "mine", 1)
    asked = {"cpu": 1, "ephemeral-storage": "1Gi"}
    world = world.with_workload(make_workload("job", "mine", asked))
    text = "Pod set main: the queue has no quota for ephemeral-storage"
    assert text in told(world, capsys)


@pytest.mark.parametrize(("state", "says"), [("Ready", True), ("Pending", False)])
def test_a_reservation_whose_pods_have_no_places_says_so(
    capsys: pytest.CaptureFixture[str], state: str, says: bool
) -> None:
    world = World().with_namespace("ns", {}).with_flavor(make_flavor("f"))
    world = queue(world.with_check(make_check("nodes")), "mine", 3, checks=["nodes"])
    later = {**make_assignment({"cpu": 1}, "f"), "delayedTopologyRequest": "Pending"}
    check = {"name": "nodes", "state": state, "message": "", "lastTransitionTime": TIME}
    wl = make_workload(
        "job",
        "mine",
        pod_sets=[make_pod_set({"cpu": 1})],
        conditions=[make_condition("QuotaReserved")],
        status={
            "admission": {"clusterQueue": "mine", "podSetAssignments": [later]},
            "admissionChecks": [check],
        },
    )
    lines = told(world.with_workload(wl), capsys)
    said = "Its pods have no places on nodes yet: events SecondPassFailed say why."
    assert (said in lines) is says


def test_the_nodes_of_an_admitted_workload_are_in_text_and_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = placed(pods("job", 6, required=RACK), ("h11", 4), ("h12", 2))
    world = places_world([node("h11", "r1"), node("h12", "r1")], job)
    lines, says = told(world, capsys), "Pod set main: 4 pods on node h11, 2 on h12 (rack r1)"
    assert lines[2:4] == ["It holds quota (cpu from f).", says]
    answer = ObjectAnswer("Job job", submitted=True, explanation=explain(world, KEY, 1000.0))
    (where,) = answer_data(answer)["placed"]
    assert (where["pod_set"], where["level"], where["text"]) == ("main", HOST, says)
    first = {"kind": "DomainWithPods", "values": ["h11"], "pods": 4, "within": "rack r1"}
    assert where["domains"][0] == first
