"""Recordings of clusters whose flavors have topologies."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from places_world import NOW, RACK, TAINT, node, placed, pod_on, pods, world

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.cli.replay.scenario import scenario_of
from kueuelib.recording.history import PresentObjects
from kueuelib.recording.reader import FORMAT, parse
from kueuelib.recording.rerun import Rerun
from kueuelib.recording.writer import Pseudonyms, RecordedEngine, Tape
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.topology.nodes import node_facts
from kueuelib.simulator.forecast import objects_of
from kueuelib.testing import scenarios

HEADER: Obj = {
    "recording": FORMAT,
    "version": "1",
    "at": 0.0,
    "life": "x",
    "part": 1,
    "by": "manager",
    "hash": "",
    "hashed": False,
    "configuration": {},
}
WORLDS = Path(__file__).parents[2] / "scenarios/data/tas.jsonl.gz"


def cluster() -> World:
    """Two racks, of which one has a tainted and one a cordoned node, and Jobs."""
    nodes = [
        node("h11", "r1"),
        node("h12", "r1", taints=[TAINT]),
        node("h21", "r2"),
        node("h22", "r2", unschedulable=True),
    ]
    jobs = pods("job", 6, required=RACK), pods("small", 2, unconstrained=True)
    holder = placed(pods("x", 2, queue="b"), ("h21", 2), queue="b")
    return world(nodes, *jobs, holder, foreign=(pod_on("agent", "h11", 1),))


def played(tape: Tape, *more: events.Event) -> RecordedEngine:
    """An engine that has decided about the cluster, and then about each further fact."""
    found = cluster()
    engine = RecordedEngine(found.settings, tape)
    for event in found.events():
        engine.observe(event, NOW)
    for number, fact in enumerate((None, *more), start=1):
        now = NOW + number
        if fact is not None:
            engine.observe(fact, now)
        while (cycle := engine.next_cycle(now)) is not None:
            engine.settle(decide(cycle, now), now)
    return engine


def replayed(tape: Tape, settings: Any) -> Rerun:
    again = Rerun(lambda _: Engine(settings))
    for line in parse([orjson.dumps(HEADER), *tape.take()], "tape"):
        assert again.take(line) is None
    return again


@pytest.mark.parametrize("hashed", [False, True])
def test_every_placement_is_decided_again(hashed: bool) -> None:
    tape = Tape(Pseudonyms().rename) if hashed else Tape()
    pod_ends = events.ForeignPod(ObjectKey("other", "agent"), "h11", None)
    gone = events.NodeGone("h21")
    unreadable = events.Unreadable("Node", "no"), events.Unreadable("Node", "")
    played(tape, pod_ends, *unreadable, gone, events.TopologyGone("t"))
    again = replayed(tape, cluster().settings)
    assert again.hash == tape.hash
    assert again.cycles


def test_other_places_are_another_plan() -> None:
    tape = Tape()
    played(tape)
    lines = [orjson.loads(line) for line in tape.take()]
    (admit,) = [one for line in lines for one in line.get("plan", {}).get("admit", ())]
    assert admit[0] == "ns/small"
    (pod_set,) = admit[2]
    assert pod_set[3] == [[["h21"], 2]]
    pod_set[3] = [[["h11"], 2]]
    again = Rerun(lambda _: Engine(cluster().settings))
    differences = [again.take(one) for one in parse(map(orjson.dumps, (HEADER, *lines)), "tape")]
    assert [one.why for one in differences if one is not None][:1] == ["the plans differ"]


def test_what_holds_now_is_enough_to_begin_with() -> None:
    tape = Tape()
    engine = played(
        tape, events.ForeignPod(ObjectKey("other", "new"), "h12", {"cpu": 1, "pods": 1})
    )
    objects = PresentObjects()
    for event in engine.latest():
        objects.observe(event)
    begun, found = objects.world(), cluster()
    assert begun.topologies == found.topologies
    assert begun.nodes == found.nodes
    assert begun.foreign_pods.keys() == {ObjectKey("other", name) for name in ("agent", "new")}


def test_objects_for_a_simulation_have_the_room_that_pods_of_others_leave() -> None:
    nodes = [obj for obj in objects_of(cluster()) if obj["kind"] == "Node"]
    facts = {each.name: each for each in map(node_facts, nodes)}
    wanted = dict(cluster().nodes)
    left = {**wanted["h11"].capacity, "cpu": 3000, "pods": 19}
    wanted["h11"] = attrs.evolve(wanted["h11"], capacity=left)
    assert facts == wanted


def test_a_scenario_has_the_nodes_and_decides_the_same() -> None:
    scenario, left_out = scenario_of(cluster(), NOW)
    assert left_out == []
    assert [one["name"] for one in scenario["nodes"]] == ["h11", "h12", "h21", "h22"]
    assert scenario["pods"] == [{"name": "other/agent", "node": "h11", "req": {"cpu": 1000}}]
    (holder,) = scenario["admitted"]
    assert holder["podsets"][0]["assignment"] == {
        "levels": ["kubernetes.io/hostname"],
        "domains": [[["h21"], 2]],
    }
    first, second = scenario["expect"]["cycles"][:2]
    admitted = {**first["admitted"], **second["admitted"]}
    places = admitted["small"]["main"]["assignment"]["domains"]
    assert places == [[["h21"], 2]]


def test_names_of_topologies_are_replaced_everywhere_and_nodes_keep_theirs() -> None:
    tape = Tape(Pseudonyms().rename)
    played(tape)
    facts = [orjson.loads(line) for line in tape.take()]
    (topology,) = [one["of"] for one in facts if one.get("fact") == "TopologySet"]
    (flavor,) = [one["of"] for one in facts if one.get("fact") == "FlavorSet"]
    assert topology["metadata"]["name"] == flavor["spec"]["topologyName"] != "t"
    nodes = [one["of"]["name"] for one in facts if one.get("fact") == "NodeSet"]
    assert nodes == ["h11", "h12", "h21", "h22"]
    assert "agent" not in json.dumps(facts)


class PatientEngine(RecordedEngine):
    """It does not look again at what waits because a scenario says so, which is not a fact."""

    def reconsider(self) -> None:
        pass


def test_recorded_worlds_are_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with victims, failed nodes, delayed places and nodes that come and go."""
    for line in gzip.decompress(WORLDS.read_bytes()).splitlines()[::12]:
        case = json.loads(line)["in"]
        tape = Tape(Pseudonyms().rename)
        monkeypatch.setattr(scenarios, "Engine", partial(PatientEngine, tape=tape))
        scenarios.run(case)
        again = replayed(tape, scenarios.settings_of(case))
        assert again.hash == tape.hash, case["id"]
