"""Quota and places decide together, in small worlds over a few cycles."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import ObjectKey
from kueuelib.api.workload import HOST
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.testing.scenario_form import PARALLEL
from kueuelib.testing.scenarios import run

Obj = dict[str, Any]
LATER = 2_000_000.0


def node(name: str, cpu: int = 4, **more: Any) -> Obj:
    labels = {"rack": "r", HOST: name, "tas": "yes", "pool": "x"}
    return {"name": name, "labels": labels, "alloc": {"cpu": cpu, "pods": 9}, **more}


def pods(name: str, queue: str, count: int, **more: Any) -> Obj:
    request = more.pop("topology", {"required": "rack"})
    pod_set = {"name": "main", "count": count, "req": {"cpu": 1}, "topology": request}
    if "on" in more:
        pod_set["assignment"] = {"levels": [HOST], "domains": [[[more.pop("on")], count]]}
        pod_set["flv"] = "f0"
    return {"name": name, "cq": queue, "created": 1, "podsets": [pod_set], **more}


def queue(cpu: int = 8, flavor: str = "f0", **more: Any) -> Obj:
    return {"groups": [{flavor: {"cpu": cpu}}], **more}


def world(**given: Any) -> Obj:
    flavors = {
        "f0": {"topologyName": "t", "labels": {"tas": "yes"}},
        "f1": {"topologyName": "t", "labels": {"pool": "x"}},
    }
    base = {"topologies": {"t": ["rack", HOST]}, "flavors": flavors, "cycles": 3}
    return {**base, "nodes": [node("n")], "cqs": {"a": queue(), "b": queue()}, **given}


def admitted(scenario: Obj) -> list[list[str]]:
    return [sorted(cycle["admitted"]) for cycle in run(scenario)["cycles"]]


def test_room_that_a_workload_of_another_tree_leaves_wakes_who_waits_for_it() -> None:
    both = {"admitted": [pods("r", "b", 4, on="n")], "pending": [pods("p", "a", 4)]}
    assert admitted(world(**both, finish={"1": ["r"]})) == [[], ["p"], []]


def test_room_on_nodes_wakes_nobody_who_waits_for_quota() -> None:
    taken = [pods("r", "b", 4, on="n"), pods("q", "a", 4, on="n")]
    waiting = {"admitted": taken, "pending": [pods("p", "a", 4)], "finish": {"1": ["r"]}}
    queues = {"a": queue(4), "b": queue()}
    cycles = run(world(**waiting, nodes=[node("n", 12)], cqs=queues))["cycles"]
    assert [len(cycle["entries"]) for cycle in cycles] == [1, 0, 0]


def test_room_on_nodes_wakes_who_needs_it_beside_that_of_victims() -> None:
    taken = [pods("r", "b", 4, on="n"), pods("low", "a", 4, on="n", prio=0)]
    waiting = {"admitted": taken, "pending": [pods("p", "a", 8, prio=1)], "finish": {"1": ["r"]}}
    queues = {"a": queue(preemption={"within": "LowerPriority"}), "b": queue()}
    cycles = run(world(**waiting, nodes=[node("n", 8)], cqs=queues))["cycles"]
    assert [sorted(cycle["preempted"]) for cycle in cycles] == [[], ["low"], []]
    assert sorted(cycles[2]["admitted"]) == ["p"]


@pytest.mark.parametrize(("cpu", "due"), [(12, False), (11, True)])
def test_room_wakes_a_preemptor_only_if_its_places_lacked_some(cpu: int, due: bool) -> None:
    """It waits for its victim, with places for its pods on the only node."""
    taken = [pods("r", "b", 4, on="n"), pods("low", "a", 4, on="n", prio=0)]
    preemptor = pods("p", "a", 4, prio=1)
    queues = {"a": queue(4, preemption={"within": "LowerPriority"}), "b": queue()}
    engines = []
    nodes = [node("n", alloc={"cpu": cpu, "pods": 12})]
    given = world(admitted=taken, pending=[preemptor], nodes=nodes, cqs=queues)
    run(
        {**given, "release_delay": 9, PARALLEL: True},
        watch=lambda engine, _: engines.append(engine),
    )
    engine = engines[-1]
    while (cycle := engine.next_cycle(LATER)) is not None:
        engine.settle(decide(cycle, LATER), LATER)
    engine.observe(events.WorkloadGone(ObjectKey("default", "r")), LATER)
    cycle = engine.next_cycle(LATER)
    assert bool(cycle is not None and cycle.promised) == due


@pytest.mark.parametrize(
    "event",
    [
        {"nodes": [node("m")]},
        {"nodes": [node("n", 8)]},
        {"pods": [{"name": "pod", "deleted": True}]},
    ],
)
def test_nodes_that_come_or_have_more_room_wake_who_waits_for_it(event: Obj) -> None:
    taken = [{"name": "pod", "node": "n", "req": {"cpu": 4}, "phase": "Running"}]
    waiting = world(pods=taken, pending=[pods("p", "a", 4)], events={"1": event})
    assert admitted(waiting) == [[], ["p"], []]


def test_flavors_that_share_nodes_do_not_give_them_twice_in_one_cycle() -> None:
    queues = {"a": queue(), "b": queue(flavor="f1")}
    waiting = [pods("p", "a", 4), pods("q", "b", 4)]
    assert admitted(world(cqs=queues, pending=waiting))[0] == ["p"]


@pytest.mark.parametrize("parallel", [False, True])
def test_a_head_whose_places_are_taken_gets_others_in_the_same_cycle(parallel: bool) -> None:
    waiting = [pods("p", "a", 3), pods("q", "b", 3)]
    found = run(world(nodes=[node("m"), node("n")], pending=waiting, **{PARALLEL: parallel}))
    first = found["cycles"][0]["admitted"]
    places = {name: first[name]["main"]["assignment"]["domains"] for name in ("p", "q")}
    assert places == {"p": [[["m"], 3]], "q": [[["n"], 3]]}


def test_pods_that_ask_nothing_are_placed_if_all_flavors_have_a_topology() -> None:
    nodes = [node("m", 1), node("n", 3)]
    waiting = [pods("p", "a", 4, topology=None)]
    (first, *_) = run(world(nodes=nodes, pending=waiting))["cycles"]
    assert first["admitted"]["p"]["main"]["assignment"]["domains"] == [[["m"], 1], [["n"], 3]]
    mixed = queue()
    mixed["groups"][0]["plain"] = {"cpu": 8}
    flavors = {"f0": {"topologyName": "t", "labels": {"tas": "yes"}}, "plain": {}}
    given = world(nodes=nodes, pending=waiting, cqs={"a": mixed}, flavors=flavors, cycles=2)
    (first, *_) = run(given)["cycles"]
    assert first["admitted"]["p"]["main"]["flavors"] == {"cpu": "plain"}
    assert not first["admitted"]["p"]["main"].get("assignment")


@pytest.mark.parametrize(("group", "flavor"), [(None, "f0"), ("g", "f1")])
def test_pod_sets_of_a_group_get_one_flavor(group: str | None, flavor: str) -> None:
    """Quota of the first flavor would do for each of them, but not for both."""
    asked = {"required": "rack", **({"group": group} if group else {})}
    head = pods("p", "a", 1, topology=asked)
    (leader,) = head["podsets"]
    head["podsets"] = [leader, {**leader, "name": "workers", "count": 3}]
    two = {"groups": [{"f0": {"cpu": 3}, "f1": {"cpu": 4}}]}
    (first, *_) = run(world(nodes=[node("n", 9)], pending=[head], cqs={"a": two}))["cycles"]
    got = {name: one["flavors"]["cpu"] for name, one in first["admitted"]["p"].items()}
    assert got == {"main": flavor, "workers": "f1"}


@pytest.mark.parametrize("parallel", [False, True])
def test_victims_leave_for_places_although_quota_would_do(parallel: bool) -> None:
    low = pods("low", "a", 4, on="n", prio=0)
    queues = {"a": queue(preemption={"within": "LowerPriority"})}
    result = run(
        world(
            cqs=queues,
            admitted=[low],
            pending=[pods("high", "a", 4, prio=1)],
            **{PARALLEL: parallel},
        )
    )
    first, second, _ = result["cycles"]
    assert first["preempted"] == {"low": {"by": "high", "reason": "InClusterQueue"}}
    assert second["admitted"]["high"]["main"]["assignment"]["domains"] == [[["n"], 4]]


@pytest.mark.parametrize("parallel", [False, True])
def test_a_head_that_never_had_places_does_not_keep_others_waiting(parallel: bool) -> None:
    running = pods("runs", "a", 2, on="n", prio=9)
    queues = {"a": queue(preemption={"within": "LowerPriority"})}
    waiting = [pods("large", "a", 3, prio=9), pods("small", "a", 1, prio=1)]
    given = world(cqs=queues, admitted=[running], pending=waiting, **{PARALLEL: parallel})
    assert admitted(given) == [[], ["small"], []]


def test_nobody_leaves_for_pods_that_no_nodes_could_hold() -> None:
    low = pods("low", "a", 4, on="n", prio=0)
    queues = {"a": queue(preemption={"within": "LowerPriority"})}
    result = run(world(cqs=queues, admitted=[low], pending=[pods("high", "a", 5, prio=1)]))
    (first, *_) = result["cycles"]
    assert not first["preempted"]
    waiting = first["pending"]["high"]
    assert (waiting["class"], waiting["qr_reason"]) == ("no-fit", "TopologyPlacementFailed")


def test_pods_wait_for_their_nodes_and_then_get_places() -> None:
    made = {"nodes": [node("o")], "ready": {"p": {"sel": {HOST: "o"}}}}
    queues = {"a": queue(provisioning=True)}
    result = run(world(cqs=queues, pending=[pods("p", "a", 3)], events={"2": made}))
    first, second, third = result["cycles"]
    assert first["admitted"]["p"]["main"]["delayed"] == "Pending"
    assert second["admitted"] == {}
    got = third["admitted"]["p"]["main"]
    assert (got["delayed"], got["assignment"]["domains"]) == ("Ready", [[["o"], 3]])


def test_a_second_pass_has_victims_and_nobody_gets_what_they_still_hold() -> None:
    low = pods("low", "a", 4, on="n", prio=0)
    queues = {"a": queue(provisioning=True, preemption={"within": "LowerPriority"}), "b": queue()}
    waiting = [pods("p", "a", 4, prio=1), pods("q", "b", 4, arrive=1)]
    events = {"1": {"ready": {"p": {}}}}
    given = world(cqs=queues, admitted=[low], pending=waiting, events=events, release_delay=1)
    first, second, *_ = run(given)["cycles"]
    assert first["admitted"]["p"]["main"]["delayed"] == "Pending"
    assert second["preempted"] == {"low": {"by": "p", "reason": "InClusterQueue"}}
    assert second["admitted"] == {}


def test_pods_of_a_failed_node_move_and_without_another_node_their_workload_is_evicted() -> None:
    running = pods("r", "a", 2, on="n", unhealthy=["n"])
    gone = node("n", ready=False)
    moved = run(world(nodes=[gone, node("m")], admitted=[running], pending=[]))["cycles"][0]
    assert moved["admitted"]["r"]["main"]["assignment"]["domains"] == [[["m"], 2]]
    lost = run(world(nodes=[gone, node("m", 1)], admitted=[running], pending=[]))["cycles"][0]
    assert lost["evicted"] == {"r": "NodeFailures"}


def test_the_first_of_the_failed_nodes_is_replaced_and_one_that_is_back_keeps_its_pods() -> None:
    running = pods("r", "a", 2, on="n", unhealthy=["n", "m"])
    running["podsets"][0]["assignment"]["domains"] = [[["m"], 1], [["n"], 1]]
    there = [node("n", ready=False), node("m", 2), node("o", 1)]
    moved = run(world(nodes=there, admitted=[running], pending=[]))["cycles"][0]
    assert moved["admitted"]["r"]["main"]["assignment"]["domains"] == [[["m"], 2]]


@pytest.mark.parametrize(("cpu", "least", "count"), [(7, 1, 4), (4, 3, 4), (7, 5, None)])
def test_fewer_pods_are_whole_slices(cpu: int, least: int, count: int | None) -> None:
    sliced = {"required": "rack", "sliceTopology": HOST, "sliceSize": 4}
    asked = pods("p", "a", 8, topology=sliced)
    asked["podsets"][0]["min"] = least
    found = run(world(nodes=[node("n", 8)], cqs={"a": queue(cpu)}, pending=[asked]))["cycles"]
    started = found[0]["admitted"].get("p", {"main": {"count": None}})
    assert started["main"]["count"] == count


def test_slices_that_do_not_divide_the_pods_are_refused() -> None:
    sliced = {"required": "rack", "sliceTopology": HOST, "sliceSize": 3}
    result = run(world(pending=[pods("p", "a", 4, topology=sliced)]))
    waiting = result["cycles"][0]["pending"]["p"]
    assert waiting["qr_reason"] == "NoMatchingFlavor"
    assert "slice size 3 must evenly divide pod count 4" in waiting["message"]
